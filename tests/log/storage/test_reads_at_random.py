"""Whatever the batches, the reads and the damage, a reader gets the batches that were written, in their order and none
left out, or an error.
"""

from random import Random
from typing import NamedTuple

import pytest

from ledger import NOW_MS
from semel.log.core.configs import parse
from semel.log.core.partition import Partition
from semel.log.storage.aborted_blocks import BLOCK_LAYOUT
from semel.log.storage.files import MemoryFile, MemoryFiles
from semel.log.storage.journal import Corrupt
from semel.log.storage.partition_log import PartitionLog
from semel.log.storage.segment import Index, Segment, footer
from semel.log.storage.segment_files import SegmentFiles
from semel.wire.batch import HEADER, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, read_header

CONFIGS = parse({"segment.bytes": "400000"})
# Around the sizes at which a read is looked at differently.
SIZES = (61, 61, 90, 300, 1500, 4096, 16_000, 17_000, 66_000, 140_000)
READS = (1, 61, 500, 5000, 16_384, 16_385, 65_536, 200_000, 1_048_576, 5_000_000)


class Written(NamedTuple):
    base: int
    next: int
    size: int


def batch(base: int, records: int, size: int, chance: Random) -> bytearray:
    """A batch of this size: its checksum is compared by no read."""
    head = (base, size - LENGTH_PREFIX_BYTES, 0, MAGIC, 1, 0, records - 1, NOW_MS, NOW_MS, -1, -1, -1, records)
    return bytearray(HEADER.pack(*head) + chance.randbytes(1) * (size - HEADER_BYTES))


class History:
    """A partition with what was written to it."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.files = MemoryFiles()
        self.segment_files = SegmentFiles(self.files, open_max=chance.choice([1, 256]))
        self.partition = PartitionLog(0, 0, "topics/0-orders/0", self.segment_files, BLOCK_LAYOUT, Partition())
        self.written: list[Written] = []
        large = chance.choice([140_000, 140_000, 2_000_000])
        weights = [chance.random() ** 3 for _ in SIZES]
        for _ in range(chance.randrange(1, 150 * SIZES[-1] // large)):
            size = chance.choices(SIZES, weights)[0]
            self._append(large if size == SIZES[-1] else size)
        self.partition.readable = self.partition.end_mark()

    def _append(self, size: int) -> None:
        base, records = self.partition.state.next_offset, self.chance.choice([1, 1, 3, 100])
        content = batch(base, records, size, self.chance)
        header = read_header(content)
        self.partition.write(header, content, NOW_MS, CONFIGS)
        self.partition.apply_append(header, NOW_MS)
        self.written.append(Written(base, header.next_offset, size))

    def compact(self) -> None:
        """Leave some batches of a sealed segment out."""
        if len(self.partition.segments) < 2:
            return
        old = self.chance.choice(self.partition.segments[:-1])
        inside = [one for one in self.written if old.base_offset <= one.base < old.next_offset]
        kept = [one for one in inside if self.chance.random() < 0.5]
        new = Segment(self.partition.directory, old.base_offset, NOW_MS, old.generation + 1)
        content, place = self.disk(old.path).data, 0
        parts = []
        for one in inside:
            if one in kept:
                parts.append(bytes(content[place : place + one.size]))
                new.note(read_header(parts[-1]))
            place += one.size
        assert isinstance(new.index, Index)
        self.disk(new.path, create=True).write_at([*parts, *footer(new.index)], 0)
        new.index = None
        assert self.partition.swap([old], new if kept else None)
        self.written = [one for one in self.written if one not in inside or one in kept]

    def disk(self, path: str, *, create: bool = False) -> MemoryFile:
        return self.files.open(path, create=create)

    def damage(self) -> None:
        segment = self.chance.choice([one for one in self.partition.segments if one.size])
        data = self.disk(segment.path).data
        at = self.chance.randrange(segment.size)
        what = self.chance.choice(["page", "end"])
        if what == "page":
            begin = at // 4096 * 4096
            end = min(begin + 4096 * self.chance.choice([1, 1, 8]), len(data))
            data[begin:end] = bytes(end - begin)
        else:
            del data[at:]

    def reads(self) -> tuple[list[Written], list[Written], bool]:
        """What a reader should get from some offset on, what it gets, and whether that is all."""
        partition, end = self.partition, self.partition.readable
        # Also where an earlier read has ended, whose place is remembered.
        begins = [self.chance.randrange(end.offset), *(one for one in partition._places if one < end.offset)]
        begin = offset = self.chance.choice(begins)
        expected = [one for one in self.written if one.next > begin]
        reads = self.chance.sample(READS, 3)
        got: list[Written] = []
        try:
            while offset < end.offset:
                data, behind = partition.read(offset, self.chance.choice(reads), end, whole_first_batch=True)
                if not data:
                    break
                at = 0
                while at < len(data):
                    header = read_header(data, at)
                    got.append(Written(header.base_offset, header.next_offset, header.batch_bytes))
                    at += header.batch_bytes
                assert at == len(data)
                assert behind >= got[-1].next
                offset = behind
        except Corrupt:
            return expected, got, False
        return expected, got, True


@pytest.mark.parametrize("seed", range(40))
def test_a_reader_gets_every_batch_in_order_or_an_error(seed: int) -> None:
    chance = Random(seed)
    history = History(chance)
    for _ in range(4):
        for _ in range(3):
            expected, got, is_all = history.reads()
            assert is_all
            assert got == expected
        if chance.random() < 0.5:
            history.compact()
    if history.written:
        history.damage()
    for _ in range(12):
        expected, got, is_all = history.reads()
        assert got == expected[: len(got)]
        assert not is_all or len(got) == len(expected)
