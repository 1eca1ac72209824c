"""A segment: any offset is found, with the index or without it, and few files are open however many there are."""

from pathlib import Path

import pytest

from ledger import batch
from semel.log.storage.files import DiskFiles, Files, MemoryFiles
from semel.log.storage.journal import Damaged
from semel.log.storage.segment import INDEX_INTERVAL_BYTES, Index, Segment, scan_index
from semel.log.storage.segment_files import SegmentFiles
from semel.wire.batch import place, read_header
from semel.wire.steps import APPEND_PIECES, Pace

BATCH_BYTES = 9_000


@pytest.fixture(params=["memory", "disk"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return MemoryFiles() if request.param == "memory" else DiskFiles(tmp_path)


def write(segment_files: SegmentFiles, segment: Segment, count: int = 1, size: int = BATCH_BYTES) -> None:
    for _ in range(count):
        sent = batch(records=3, size=size, at_ms=1000 + segment.next_offset)
        place(sent, read_header(sent), segment.next_offset)
        segment_files.write(segment, [sent], segment.size)
        segment.note(read_header(sent))


def written(segment_files: SegmentFiles, count: int, base_offset: int = 0) -> Segment:
    segment = Segment("topics/0-orders/0", base_offset, 0)
    segment.next_offset = base_offset
    write(segment_files, segment, count)
    return segment


def parts(index: Index) -> tuple[list[int], list[int], list[int]]:
    return list(index.offsets), list(index.positions), list(index.max_timestamps)


def test_the_index_leads_to_a_batch_at_or_before_any_offset_and_not_far_before(files: Files) -> None:
    segment_files = SegmentFiles(files)
    segment = written(segment_files, 50)
    index = segment_files.index_of(segment)
    for offset in range(segment.next_offset):
        position, first = index.before_offset(offset)
        assert first == position // BATCH_BYTES * 3
        exact = offset // 3 * BATCH_BYTES
        assert position % BATCH_BYTES == 0
        assert exact - INDEX_INTERVAL_BYTES - BATCH_BYTES < position <= exact
    for position in range(0, segment.size, 5000):
        place_, offset_there = index.before_position(position)
        assert (place_, offset_there) == (index.before_offset(offset_there)[0], place_ // BATCH_BYTES * 3)
        assert place_ <= position


def test_a_sealed_segment_has_the_index_it_had_while_it_grew(files: Files) -> None:
    segment_files = SegmentFiles(files)
    segment = written(segment_files, 50)
    assert segment.index is not None
    before = parts(segment.index)
    segment_files.seal(segment)
    segment_files.seal(segment)
    assert segment.index is None
    assert parts(SegmentFiles(files).index_of(segment)) == before


def test_the_index_is_made_again_from_the_batches_wherever_its_footer_is_damaged() -> None:
    files = MemoryFiles()
    segment_files = SegmentFiles(files)
    segment = written(segment_files, 50)
    assert segment.index is not None
    before = parts(segment.index)
    segment_files.seal(segment)
    file = files.open(segment.path)
    for position in range(segment.size, file.size()):
        right = file.read_at(1, position)
        file.write_at([bytes([right[0] ^ 0xFF])], position)
        assert parts(SegmentFiles(files).index_of(segment)) == before, position - segment.size
        file.write_at([right], position)
    for size in (segment.size, segment.size + 5, file.size() - 1):
        file.truncate(size)
        assert parts(SegmentFiles(files).index_of(segment)) == before


@pytest.mark.parametrize("length", [-(2**31), -12, 0, 40])
def test_a_batch_whose_length_is_nonsense_is_damage_and_not_an_endless_search(length: int) -> None:
    files = MemoryFiles()
    segment = written(SegmentFiles(files), 5)
    file = files.open(segment.path)
    file.write_at([length.to_bytes(4, "big", signed=True)], 2 * BATCH_BYTES + 8)
    with pytest.raises(Damaged, match=rf"{segment.path}: no batch of this segment at offset {2 * BATCH_BYTES}"):
        scan_index(file, segment)


def test_only_so_many_files_are_open_and_all_can_be_read(files: Files) -> None:
    segment_files = SegmentFiles(files, open_max=3)
    segments = [written(segment_files, 1, base) for base in range(0, 30, 3)]
    assert len(segment_files._open) == 3
    for segment in segments:
        assert read_header(segment_files.file_of(segment).read_at(61, 0)).base_offset == segment.base_offset
        write(segment_files, segment)
    assert len(segment_files._open) == 3
    assert segment_files.dirty == {segment.path for segment in segments}
    assert segment_files.grown == {"", "topics", "topics/0-orders", "topics/0-orders/0"}
    segment_files.forget(segments[0].path)
    assert segments[0].path not in segment_files.dirty
    segment_files.close()


def test_a_large_file_has_a_turn_to_itself_when_it_is_removed(tmp_path: Path) -> None:
    """The event loop waits while the kernel drops what it has cached of the file."""
    files = DiskFiles(tmp_path)
    segment_files = SegmentFiles(files)
    sizes = {"small": 1_000, "large": 256 * 1024 * 1024}
    for name, size in sizes.items():
        file = files.open(name, create=True)
        file.truncate(size)
        file.close()
    small, large, gone, *_ = segment_files.remove(["small", "large", "gone"])
    assert small == gone == APPEND_PIECES
    assert isinstance(large, int)
    assert large > Pace().pieces_per_turn
    assert files.names("") == []
