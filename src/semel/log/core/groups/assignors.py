"""Which member of a group reads which partition: the server-side assignors `uniform` and `range` of KIP-848, and the
one of share groups.

An assignor is a function. It takes the topics that each member subscribes to and the partitions that each had before,
and returns the partitions that each gets now. Every partition of a topic goes to exactly one of the members that
subscribe to it, or in a share group to at least one. An assignor keeps no state and never fails: it leaves out a topic
without subscribers, and gives no partitions to a member without topics. It works in steps, because there may be two
thousand members and ten thousand topics.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heapreplace
from itertools import accumulate, chain
from typing import Final, NamedTuple

from semel.log.core.groups.partitions import Partitions, lowest, span_bits
from semel.wire.steps import Steps


class Reader(NamedTuple):
    """A member as an assignor sees it: the numbers of the topics it subscribes to, and the partitions it had before."""

    topics: frozenset[int]
    previous: Partitions
    instance_id: str | None = None


Assignment = dict[str, Partitions]
# Members or topics that are looked at for one piece of work.
_PER_PIECE: Final = 10
# The members by their ids, and how many partitions each topic has, by its number.
Assignor = Callable[[Mapping[str, Reader], Mapping[int, int]], Steps[Assignment]]


def assign_ranges(readers: Mapping[str, Reader], partition_counts: Mapping[int, int]) -> Steps[Assignment]:
    """Divide each topic into ranges of nearly equal length, one for each of its readers, in the same order of readers.

    So topics with the same number of partitions and the same readers are divided alike, and can be joined partition by
    partition. Static members come first, in the order of their instance ids, so that they keep their place when others
    join and leave.
    """
    shares: dict[str, dict[int, int]] = {member_id: {} for member_id in readers}
    in_order = sorted(readers, key=lambda member_id: _place_in_line(member_id, readers[member_id]))
    for number, those_who_read in (yield from _wanted_by(readers, partition_counts, in_order)).items():
        share, left_over = divmod(partition_counts[number], len(those_who_read))
        begin, place_count = 0, min(partition_counts[number], len(those_who_read))
        # If there are more readers than partitions, the last readers get none.
        for place, member_id in enumerate(those_who_read[: partition_counts[number]]):
            end = begin + share + (place < left_over)
            shares[member_id][number] = span_bits(begin, end)
            begin = end
        yield 1 + place_count // _PER_PIECE
    return {member_id: Partitions(bits) for member_id, bits in shares.items()}


def _place_in_line(member_id: str, reader: Reader) -> tuple[bool, str]:
    return reader.instance_id is None, reader.instance_id or member_id


def assign_uniformly(readers: Mapping[str, Reader], partition_counts: Mapping[int, int]) -> Steps[Assignment]:
    """Assign as evenly as the subscriptions allow over all topics together, with as few changes as possible."""
    spread = _Spread(readers)
    yield from spread.hand_out(readers, partition_counts)
    return (yield from spread.even())


# The member that gives, the kind of topics, and the member that takes.
_Step = tuple[str, int, str]


def assign_shares(readers: Mapping[str, Reader], partition_counts: Mapping[int, int]) -> Steps[Assignment]:
    """Every partition to equally many members with the same topics, and nearly equally many partitions to each of them.

    A member may get other partitions whenever somebody comes or goes. In a share group that costs nothing: what it has
    acquired stays its own.
    """
    given: dict[str, Partitions] = {}
    alike: dict[frozenset[int], list[str]] = {}
    for member_id in sorted(readers):
        alike.setdefault(readers[member_id].topics, []).append(member_id)
    for topics, member_ids in alike.items():
        numbers = sorted(number for number in topics if partition_counts.get(number))
        ends = list(accumulate(partition_counts[number] for number in numbers))
        count, place_count = len(member_ids), ends[-1] if ends else 0
        # The partitions of all topics in a row, so often that each member gets one at least.
        row = -(-count // place_count) * place_count if place_count else 0
        for place, member_id in enumerate(member_ids):
            bits: dict[int, int] = {}
            at, end = -(-row * place // count), -(-row * (place + 1) // count)
            while at < end:
                slot = bisect_right(ends, at % place_count)
                begin = partition_counts[numbers[slot]] - (ends[slot] - at % place_count)
                some = min(end - at, ends[slot] - at % place_count)
                bits[numbers[slot]] = bits.get(numbers[slot], 0) | span_bits(begin, begin + some)
                at += some
            given[member_id] = Partitions(bits)
            yield 1 + len(bits) // _PER_PIECE
    return given


class _Spread:
    """An assignment that is being made even.

    Topics with the same readers are of one kind, because their partitions are interchangeable when loads are compared.
    If all members subscribe to the same topics there is only one kind, and each step is fast.
    """

    def __init__(self, readers: Mapping[str, Reader]) -> None:
        self._loads = dict.fromkeys(sorted(readers), 0)
        # For each member and each kind: the bits of each topic.
        self._assigned: dict[str, dict[int, dict[int, int]]] = {member_id: {} for member_id in self._loads}
        self._readers_of: list[tuple[str, ...]] = []

    def hand_out(self, readers: Mapping[str, Reader], partition_counts: Mapping[int, int]) -> Steps[None]:
        """Let each member keep what it had, as far as that is even, and give away all other partitions."""
        # By the identity of the readers: those of one kind are the same object, and to compare thousands takes long.
        kinds: dict[int, int] = {}
        kind_of: dict[int, int] = {}
        unread: list[dict[int, int]] = []
        readers_of = yield from _wanted_by(readers, partition_counts, self._loads)
        for number, those_who_read in readers_of.items():
            kind_of[number] = kind = kinds.setdefault(id(those_who_read), len(kinds))
            if kind == len(self._readers_of):
                self._readers_of.append(those_who_read)
                unread.append({})
            unread[kind][number] = span_bits(0, partition_counts[number])
        yield len(kind_of) // _PER_PIECE
        for member_id in self._loads:
            reader = readers[member_id]
            for number, bits in reader.previous.by_topic().items():
                if number in kind_of and number in reader.topics:
                    own = bits & unread[kind_of[number]][number]
                    unread[kind_of[number]][number] ^= own
                    self._give(member_id, kind_of[number], number, own)
            yield 1 + len(reader.previous.by_topic()) // _PER_PIECE
        if len(unread) == 1:
            yield from self._take_back_beyond_share(unread[0])
        # The kinds with the fewest readers come first, because they leave the least choice.
        for kind in sorted(range(len(unread)), key=lambda kind: len(self._readers_of[kind])):
            yield from self._hand_out(kind, unread[kind])

    def even(self) -> Steps[Assignment]:
        """Move partitions from members with many to members with few, as long as that makes the assignment more even.

        A partition may have to pass through other members: a member with many and one with few may have no topic in
        common.
        """
        may_give = set(self._assigned)
        while may_give:
            richest = max(may_give, key=lambda member_id: (self._loads[member_id], member_id))
            yield 1 + len(may_give) // _PER_PIECE
            way, met = yield from self._way_to_someone_poorer(richest)
            for giver, kind, taker in way:
                number, bit = self._take_one(giver, kind)
                self._give(taker, kind, number, bit)
            if not way:
                # Every member that can be reached from here has as many partitions or one less, and can reach no
                # others.
                may_give -= met
        return {
            # Each topic is of one kind only.
            member_id: Partitions({number: bits for topics in of_kind.values() for number, bits in topics.items()})
            for member_id, of_kind in self._assigned.items()
        }

    def _give(self, member_id: str, kind: int, number: int, bits: int) -> None:
        if bits:
            topics = self._assigned[member_id].setdefault(kind, {})
            topics[number] = topics.get(number, 0) | bits
            self._loads[member_id] += bits.bit_count()

    def _take_one(self, member_id: str, kind: int) -> tuple[int, int]:
        topics = self._assigned[member_id][kind]
        number, bits = topics.popitem()
        bit = 1 << bits.bit_length() - 1
        if bits != bit:
            topics[number] = bits ^ bit
        self._loads[member_id] -= 1
        return number, bit

    def _take_back_beyond_share(self, unread: dict[int, int]) -> Steps[None]:
        """If there is one kind, take back all partitions beyond an even share at once: `even` would move them one by
        one.
        """
        partition_count = sum(self._loads.values()) + sum(map(int.bit_count, unread.values()))
        share, left_over = divmod(partition_count, len(self._readers_of[0]))
        for member_id in sorted(self._readers_of[0], key=lambda member_id: -self._loads[member_id]):
            may_keep = share + (left_over > 0)
            left_over -= self._loads[member_id] >= may_keep
            topics = self._assigned[member_id].get(0, {})
            while self._loads[member_id] > may_keep:
                number, bits = topics.popitem()
                own = lowest(bits, max(bits.bit_count() - (self._loads[member_id] - may_keep), 0))
                if own:
                    topics[number] = own
                unread[number] |= bits ^ own
                self._loads[member_id] -= (bits ^ own).bit_count()
                yield 1

    def _hand_out(self, kind: int, unread: Mapping[int, int]) -> Steps[None]:
        """Give each partition to the member with the fewest; neighbouring partitions of a topic stay together."""
        if len(self._readers_of[kind]) == 1:
            for number, bits in unread.items():
                self._give(self._readers_of[kind][0], kind, number, bits)
            yield 1 + len(unread) // _PER_PIECE
            return
        by_load = [(self._loads[member_id], member_id) for member_id in self._readers_of[kind]]
        heapify(by_load)
        yield len(by_load) // _PER_PIECE
        for number, bits in unread.items():
            shares = _shares(by_load, bits.bit_count())
            for member_id, share in shares:
                part = lowest(bits, share)
                bits ^= part
                self._give(member_id, kind, number, part)
            if shares:
                # With more partitions than members, all members were sorted.
                yield 1 + (len(shares) if len(shares) < len(by_load) else 3 * len(by_load)) // _PER_PIECE

    def _way_to_someone_poorer(self, source: str) -> Steps[tuple[list[_Step], set[str]]]:
        """A path from `source` to a member with at least two partitions fewer, if any, and all members visited."""
        came_by: dict[str, tuple[str, int]] = {}
        met = {source}
        kinds_seen: set[int] = set()
        waiting = deque([source])
        while waiting:
            member_id = waiting.popleft()
            by_kind = self._assigned[member_id]
            for kind in [kind for kind, topics in by_kind.items() if topics and kind not in kinds_seen]:
                kinds_seen.add(kind)
                for other in self._readers_of[kind]:
                    if other in met:
                        continue
                    met.add(other)
                    came_by[other] = (member_id, kind)
                    if self._loads[other] <= self._loads[source] - 2:
                        return _way_back(came_by, other), met
                    waiting.append(other)
                yield len(self._readers_of[kind]) // _PER_PIECE
            yield 1 + len(by_kind) // _PER_PIECE
        return [], met


def _shares(by_load: list[tuple[int, str]], count: int) -> list[tuple[str, int]]:
    """How many of `count` partitions each gets, if each partition goes to the member that then has the fewest.

    `by_load` is a heap of loads and members, and stays one.
    """
    shares = []
    if count <= len(by_load):
        for _ in range(count):
            load, member_id = by_load[0]
            heapreplace(by_load, (load + 1, member_id))
            shares.append((member_id, 1))
        return shares
    # In one go: raise the members with the fewest partitions to one level.
    by_load.sort()
    remaining, poorest = count, 1
    while poorest < len(by_load) and (by_load[poorest][0] - by_load[poorest - 1][0]) * poorest <= remaining:
        remaining -= (by_load[poorest][0] - by_load[poorest - 1][0]) * poorest
        poorest += 1
    share, remaining = divmod(remaining, poorest)
    level = by_load[poorest - 1][0] + share
    for place, (member_id, load) in enumerate(sorted((member_id, load) for load, member_id in by_load[:poorest])):
        by_load[place] = level + (place < remaining), member_id
        shares.append((member_id, by_load[place][0] - load))
    heapify(by_load)
    return shares


def _wanted_by(
    readers: Mapping[str, Reader], partition_counts: Mapping[int, int], in_order: Iterable[str]
) -> Steps[dict[int, tuple[str, ...]]]:
    """The readers of each topic that has any, in the order of `in_order`. Equal readers are the same object.

    Members with the same topics are handled together: many members with many topics would be too many pairs.
    """
    wishes: dict[frozenset[int], list[tuple[int, str]]] = {}
    for place, member_id in enumerate(in_order):
        wishes.setdefault(readers[member_id].topics, []).append((place, member_id))
    wanted_by: dict[int, list[int]] = {}
    for wish, topics in enumerate(wishes):
        for number in topics & partition_counts.keys():
            wanted_by.setdefault(number, []).append(wish)
        yield 1 + len(topics) // _PER_PIECE
    those_who_wish = list(wishes.values())
    those_who_read: dict[tuple[int, ...], tuple[str, ...]] = {}
    for several in map(tuple, wanted_by.values()):
        if several not in those_who_read:
            those = sorted(chain.from_iterable(those_who_wish[wish] for wish in several))
            those_who_read[several] = tuple([member_id for _, member_id in those])
            yield 1 + len(those) // _PER_PIECE
    return {number: those_who_read[tuple(wanted_by[number])] for number in sorted(wanted_by)}


def _way_back(came_by: Mapping[str, tuple[str, int]], end: str) -> list[_Step]:
    """The path to `end`, its last step first, so that no member passes on a partition that it has just been given."""
    way = []
    while end in came_by:
        giver, kind = came_by[end]
        way.append((giver, kind, end))
        end = giver
    return way


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
# The assignor of a group whose members do not name one.
DEFAULT_ASSIGNOR: Final = "uniform"
