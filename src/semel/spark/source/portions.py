"""How much of the log the next batch takes, and into how many tasks it is cut. Pure.

Both follow Spark's own Kafka source, in whole numbers: the same offsets always give the same plan. A batch exceeds its
limit only if the limit is less than the number of partitions that have new records.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from semel.client.places import Slice, TopicPartition


def limited(
    begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], offsets_max: int
) -> dict[TopicPartition, int]:
    """The ends of a batch of at most `offsets_max` offsets, divided in proportion to what each partition has.

    Each partition that has new records gets at least one, so that a busy partition cannot starve it.
    """
    lags = {place: ends[place] - begins[place] for place in sorted(ends) if ends[place] > begins[place]}
    if sum(lags.values()) <= offsets_max:
        return dict(ends)
    shares = _shares({place: lag - 1 for place, lag in lags.items()}, max(offsets_max - len(lags), 0))
    return {place: begins[place] + 1 + shares[place] if place in lags else end for place, end in ends.items()}


def _shares(weights: Mapping[TopicPartition, int], amount: int) -> dict[TopicPartition, int]:
    """`amount` in whole parts by weight; the remainder goes to the partitions that rounding cut by most."""
    whole = sum(weights.values())
    if whole == 0:
        return dict.fromkeys(weights, 0)
    shares = {place: amount * weight // whole for place, weight in weights.items()}
    left = amount - sum(shares.values())
    most_cut = sorted(weights, key=lambda place: (-(amount * weights[place] % whole), place))
    for place in most_cut[:left]:
        shares[place] += 1
    return shares


def must_wait(offsets_ready: int, offsets_min: int, waited_ms: float, wait_ms_max: int) -> bool:
    """Whether a batch with a minimum size is put off: there are too few offsets, and there is still time."""
    return offsets_ready < offsets_min and waited_ms < wait_ms_max


def split(slices: Iterable[Slice], partitions_min: int | None, records_max: int | None) -> list[Slice]:
    """Slices cut so that none has more than `records_max` offsets and there are about `partitions_min` of them."""
    pieces = [piece for piece in slices if piece.end > piece.start]
    if records_max is not None:
        pieces = [part for piece in pieces for part in _cut(piece, -(-_size(piece) // records_max))]
    if partitions_min is not None and len(pieces) < partitions_min:
        pieces = list(_cut_to(pieces, partitions_min))
    return pieces


def _cut_to(pieces: list[Slice], partitions_min: int) -> Iterator[Slice]:
    """Cuts the large slices in proportion to their size, after each small one has got one task."""
    whole = sum(map(_size, pieces))
    large = [piece for piece in pieces if _count(_size(piece), whole, partitions_min) > 1]
    large_whole = sum(map(_size, large))
    large_min = max(partitions_min - (len(pieces) - len(large)), 1)
    for piece in pieces:
        is_small = _count(_size(piece), whole, partitions_min) == 1
        yield from [piece] if is_small else _cut(piece, _count(_size(piece), large_whole, large_min))


def _count(size: int, whole: int, partitions_min: int) -> int:
    """The share of one slice in `partitions_min` tasks, rounded half up, and at least one."""
    return max((2 * size * partitions_min + whole) // (2 * whole), 1)


def _cut(piece: Slice, parts: int) -> Iterator[Slice]:
    parts = min(parts, _size(piece))
    edges = [piece.start + _size(piece) * part // parts for part in range(parts + 1)]
    for start, end in pairwise(edges):
        yield replace(piece, start=start, end=end)


def _size(piece: Slice) -> int:
    return piece.end - piece.start
