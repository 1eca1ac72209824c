"""A walk over a segment sees every other byte, however the segment is cut into the pieces that it gets."""

import random
from itertools import pairwise

import pytest

from semel.log.storage.segment import Proven, Segment
from semel.log.storage.verification import Walk
from semel.wire.batch import HEADER_BYTES, place, read_header
from semel.wire.records import Record, encode_batch


def segment_of(*sizes: int) -> tuple[Segment, bytes, list[Proven]]:
    """A segment, its bytes, and the ends of its batches."""
    segment, content, ends = Segment("topics/0-payments/0", 5, 0), b"", []
    for size in sizes:
        batch = encode_batch([Record(bytes(size), timestamp_ms=5)] * 2)
        header = place(batch, read_header(batch), segment.next_offset, 3)
        content += batch
        segment.note(header)
        ends.append(segment.whole)
    return segment, content, ends


def is_right(segment: Segment, content: bytes, begin: Proven, cuts: list[int]) -> bool:
    walk = Walk(segment, begin)
    places = [begin.size, *cuts, len(content)]
    faults = [walk.take(content[a:b], a) for a, b in pairwise(places)]
    return not any(faults) and not walk.end()


@pytest.mark.parametrize("seed", range(20))
def test_pieces_of_any_size_are_as_good_as_the_whole_and_no_change_is_missed(seed: int) -> None:
    chance = random.Random(seed)
    segment, content, ends = segment_of(*(chance.choice([0, 7, 300, 2000]) for _ in range(6)))
    begin = chance.choice([Proven(0, 5, 0), *ends[:3]])
    cuts = sorted(chance.randrange(begin.size, len(content)) for _ in range(chance.randrange(8)))
    footer = b"an index"
    assert is_right(segment, content + footer, begin, cuts)
    for at in {*range(begin.size, begin.size + HEADER_BYTES), *chance.sample(range(begin.size, len(content)), 100)}:
        other = bytearray(content)
        other[at] ^= 1 << chance.randrange(8)
        assert not is_right(segment, bytes(other), begin, cuts), at
    assert not is_right(segment, content[:-1], begin, [])
    assert not is_right(segment, content[: ends[4].size], begin, [])
