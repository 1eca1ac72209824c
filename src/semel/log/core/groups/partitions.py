"""Sets of partitions as bits: one integer for each topic, whose bit n stands for partition n.

A member may read twenty thousand partitions, and one step of its group compares all of them a dozen times. With sets of
objects, this step kept every other client waiting for a tenth of a second; with bits a comparison takes one operation
for each topic, however many partitions it has. A set never changes. It may only have partitions that exist: a client
may name any index, which would take that many bits, so the caller must compare it with the topic first.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Final

from semel.log.core.entries import PartitionName, Span

_RUN: Final = re.compile("1+")


class Partitions:
    """A set of partitions, topic by topic."""

    __slots__ = ("_bits", "_spans")

    def __init__(self, bits: Mapping[int, int]) -> None:
        """From the bits of each topic, by the topic's number. No topic may have 0 for its bits."""
        self._bits = bits
        # The result of `spans`, when it is known.
        self._spans: tuple[Span, ...] | None = None

    @classmethod
    def of(cls, names: Iterable[PartitionName]) -> "Partitions":
        bits: dict[int, int] = {}
        for number, index in names:
            bits[number] = bits.get(number, 0) | 1 << index
        return cls(bits)

    @classmethod
    def of_indexes(cls, number: int, indexes: Iterable[int], count: int) -> "Partitions":
        """Those of these indexes that exist in one topic, which has `count` partitions."""
        # Setting the bits of an integer one by one would copy it each time, but digits are changed in place.
        digits = bytearray(b"0" * count)
        for index in indexes:
            if 0 <= index < count:
                digits[-1 - index] = ord("1")
        bits = int(digits or b"0", 2)
        return cls({number: bits} if bits else {})

    @classmethod
    def of_spans(cls, spans: Iterable[tuple[int, int, int]]) -> "Partitions":
        """The partitions in these spans, which may be in any order."""
        bits: dict[int, int] = {}
        for number, begin, end in spans:
            bits[number] = bits.get(number, 0) | span_bits(begin, end)
        return cls(bits)

    @classmethod
    def back_from(cls, spans: Iterable[Iterable[int]]) -> "Partitions":
        """The partitions whose `spans` these are."""
        kept = tuple([Span(*span) for span in spans])
        partitions = cls.of_spans(kept)
        partitions._spans = kept
        return partitions

    @classmethod
    def union(cls, sets: Iterable["Partitions"]) -> "Partitions":
        bits: dict[int, int] = {}
        for one in sets:
            for number, more in one._bits.items():
                bits[number] = bits.get(number, 0) | more
        return cls(bits)

    # Sets

    def __and__(self, other: "Partitions") -> "Partitions":
        theirs = other._bits
        return Partitions(
            {number: both for number, bits in self._bits.items() if (both := bits & theirs.get(number, 0))}
        )

    def __or__(self, other: "Partitions") -> "Partitions":
        return Partitions.union((self, other))

    def __sub__(self, other: "Partitions") -> "Partitions":
        theirs = other._bits
        return Partitions(
            {number: rest for number, bits in self._bits.items() if (rest := bits & ~theirs.get(number, 0))}
        )

    def __le__(self, other: "Partitions") -> bool:
        theirs = other._bits
        return not any(bits & ~theirs.get(number, 0) for number, bits in self._bits.items())

    def isdisjoint(self, other: "Partitions") -> bool:
        theirs = other._bits
        return not any(bits & theirs.get(number, 0) for number, bits in self._bits.items())

    def within(self, topics: Container[int]) -> "Partitions":
        """The partitions of these topics, which are given by their numbers."""
        return Partitions({number: bits for number, bits in self._bits.items() if number in topics})

    def __bool__(self) -> bool:
        return bool(self._bits)

    def __len__(self) -> int:
        return sum(map(int.bit_count, self._bits.values()))

    def __contains__(self, name: PartitionName) -> bool:
        return name[1] >= 0 and bool(self._bits.get(name[0], 0) >> name[1] & 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partitions) and self._bits == other._bits

    def __hash__(self) -> int:
        return hash(frozenset(self._bits.items()))

    def __repr__(self) -> str:
        return f"Partitions.of_spans({[tuple(span) for span in self.spans()]})"

    # Looking at them

    def by_topic(self) -> Mapping[int, int]:
        """The bits of each topic, by its number, in no particular order."""
        return self._bits

    def spans(self) -> tuple[Span, ...]:
        """The fewest possible spans of these partitions, in the order of topics and partitions."""
        if self._spans is None:
            bits = self._bits
            self._spans = tuple([Span(number, *run) for number in sorted(bits) for run in _runs(bits[number])])
        return self._spans

    def indexes(self) -> Iterator[tuple[int, list[int]]]:
        """The number of each topic and its partitions, in order."""
        for number in sorted(self._bits):
            yield number, [index for begin, end in _runs(self._bits[number]) for index in range(begin, end)]

    def __iter__(self) -> Iterator[PartitionName]:
        return (PartitionName(number, index) for number, indexes in self.indexes() for index in indexes)


NOTHING: Final = Partitions({})


def span_bits(begin: int, end: int) -> int:
    """The partitions from `begin` on, before `end`, of one topic."""
    return (1 << end) - (1 << begin)


def lowest(bits: int, count: int) -> int:
    """The first `count` partitions of these."""
    if bits.bit_count() <= count:
        return bits
    lowest_bits = 0
    for begin, end in _runs(bits):
        if end - begin >= count:
            return lowest_bits | span_bits(begin, begin + count)
        lowest_bits |= span_bits(begin, end)
        count -= end - begin
    raise AssertionError("more bits were counted than there are")


def _runs(bits: int) -> Iterable[tuple[int, int]]:
    """Where each run of consecutive partitions begins and ends."""
    if not bits & bits + 1:
        return ((0, bits.bit_length()),)
    return (run.span() for run in _RUN.finditer(f"{bits:b}"[::-1]))
