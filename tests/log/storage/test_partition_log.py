"""A partition on disk: what may be read, what is kept and what goes, whichever file it is in."""

import re
from pathlib import Path

import pytest

from ledger import NOW_MS, batch
from semel.log.core.configs import SEGMENT_BYTES_DEFAULT, TopicConfigs, parse
from semel.log.core.partition import Partition
from semel.log.core.producer_table import Snapshot
from semel.log.storage.aborted_blocks import BLOCK_LAYOUT
from semel.log.storage.checkpoint import PartitionParts
from semel.log.storage.files import DiskFiles, Files, MemoryFiles
from semel.log.storage.journal import Corrupt
from semel.log.storage.partition_log import _REMEMBERED_PLACES_MAX, SEGMENTS_MAX, Mark, PartitionLog
from semel.log.storage.segment import Index
from semel.log.storage.segment_files import SegmentFiles
from semel.wire.batch import place, read_header

CONFIGS = parse({"segment.bytes": "1024"})


@pytest.fixture(params=["memory", "disk"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return MemoryFiles() if request.param == "memory" else DiskFiles(tmp_path)


def made(files: Files, segment_files: SegmentFiles | None = None) -> PartitionLog:
    return PartitionLog(0, 0, "topics/0-orders/0", segment_files or SegmentFiles(files), BLOCK_LAYOUT, Partition())


def append(
    partition: PartitionLog,
    size: int = 300,
    records: int = 1,
    *,
    at_ms: int = NOW_MS,
    stamp_ms: int = NOW_MS,
    configs: TopicConfigs = CONFIGS,
) -> bytes:
    sent = batch(records=records, size=size, at_ms=stamp_ms, mark=partition.state.next_offset)
    place(sent, read_header(sent), partition.state.next_offset)
    header = read_header(sent)
    partition.write(header, sent, at_ms, configs)
    partition.apply_append(header, at_ms)
    partition.readable = partition.end_mark()
    return bytes(sent)


def bases(partition: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in partition.segments]


def test_whatever_is_asked_for_the_answer_is_whole_batches_from_the_right_one_on(files: Files) -> None:
    partition = made(files)
    sent = [append(partition, 100 + 37 * number, 3) for number in range(12)]
    marks = [Mark(0, 0, 0)]
    again = made(MemoryFiles())
    for number in range(12):
        append(again, 100 + 37 * number, 3)
        marks.append(again.end_mark())
    assert len(bases(partition)) > 3
    for count, until in enumerate(marks):
        for offset in range(until.offset):
            first = offset // 3
            for bytes_max in (0, 1, 99, 100, 450, 1000, 2000, 100_000):
                for whole in (True, False):
                    data, behind = partition.read(offset, bytes_max, until, whole_first_batch=whole)
                    options = {b"".join(sent[first:last]): last * 3 for last in range(first, count + 1)}
                    assert behind == (options[bytes(data)] if data else offset)
                    assert len(data) <= bytes_max or (whole and data == sent[first])
                    if whole or bytes_max >= len(sent[first]):
                        assert data
        assert partition.read(until.offset, 1000, until, whole_first_batch=True) == (b"", until.offset)


def test_small_batches_after_one_that_is_larger_than_any_read_are_read_too(files: Files) -> None:
    partition = made(files)
    roomy = parse({"segment.bytes": str(SEGMENT_BYTES_DEFAULT)})
    sent = [append(partition, size, configs=roomy) for size in (300_000, 100, 100, 300_000, 100)]
    assert [bytes(data) for _, data in partition.batches(0, partition.readable)] == sent
    for offset, large in ((0, sent[0]), (3, sent[3])):
        assert partition.read(offset, 1, partition.readable, whole_first_batch=True) == (large, offset + 1)


def test_a_mark_ends_reading_where_it_was_set_however_the_log_has_grown_and_rolled(files: Files) -> None:
    partition = made(files)
    sent = [append(partition) for _ in range(2)]
    until = partition.end_mark()
    for _ in range(5):
        append(partition, 700)
    assert partition.read(0, 10_000, until, whole_first_batch=True) == (b"".join(sent), 2)
    assert [bytes(data) for _, data in partition.batches(0, until)] == sent


def test_a_segment_ends_at_its_size_and_a_larger_batch_has_one_to_itself(files: Files) -> None:
    partition = made(files)
    # The first two fill a segment to its last byte.
    for size in (524, 500, 500, 5000, 100):
        append(partition, size)
    assert bases(partition) == [0, 2, 3, 4]


def test_a_segment_ends_at_its_age(files: Files) -> None:
    configs = parse({"segment.ms": "1000"})
    partition = made(files)
    for at_ms in (0, 999, 1000, 1500, 2000, 2001):
        append(partition, at_ms=at_ms, configs=configs)
    assert bases(partition) == [0, 2, 4]


def test_a_segment_that_was_begun_in_vain_is_as_old_as_its_first_batch(files: Files) -> None:
    """Or a quiet topic would have a file for each batch that comes after compaction has sealed the last one."""
    configs = parse({"segment.ms": "1000"})
    partition = made(files)
    append(partition, at_ms=0, configs=configs)
    partition.roll(500)
    for at_ms in (5_000, 5_999, 6_000):
        append(partition, at_ms=at_ms, configs=configs)
    assert bases(partition) == [0, 1, 3]


def test_what_goes_by_size_is_whole_segments_and_never_the_last(files: Files) -> None:
    partition = made(files)
    for _ in range(9):
        append(partition)
    assert bases(partition) == [0, 3, 6]
    assert partition.retained_from(NOW_MS, -1, -1) == 0
    assert partition.retained_from(NOW_MS, -1, 2700) == 0
    assert partition.retained_from(NOW_MS, -1, 1801) == 0
    assert partition.retained_from(NOW_MS, -1, 1800) == 3
    assert partition.retained_from(NOW_MS, -1, 0) == 6


def test_what_goes_by_age_is_every_segment_whose_latest_record_is_too_old(files: Files) -> None:
    partition = made(files)
    for number in range(6):
        append(partition, 600, stamp_ms=1000 * number)
    assert partition.retained_from(4000, 2000, -1) == 2
    assert partition.retained_from(3000, 2000, -1) == 1
    assert partition.retained_from(2000, 2000, -1) == 0
    assert partition.retained_from(10_000, 2000, -1) == 6
    assert partition.retained_from(10_000, -1, -1) == 0


def test_records_without_a_timestamp_are_as_old_as_their_stay_here(files: Files) -> None:
    """By their own word they would be from before 1970, and gone at the first look."""
    partition = made(files)
    for at_ms in (1000, 2000, 3000):
        append(partition, 600, at_ms=at_ms, stamp_ms=-1)
    # The first segment got its last record before the second was begun.
    assert partition.retained_from(4000, 2000, -1) == 0
    assert partition.retained_from(4001, 2000, -1) == 1
    assert partition.retained_from(100_000, 2000, -1) == 2


def test_nothing_goes_that_nobody_could_read_yet(files: Files) -> None:
    partition = made(files)
    for _ in range(4):
        append(partition, 600, stamp_ms=0)
    partition.readable = Mark(1, 0, 600)
    assert partition.retained_from(10_000, 1, 0) == 1


def test_deleting_records_lets_go_of_the_files_that_hold_nothing_else(files: Files) -> None:
    segment_files = SegmentFiles(files)
    partition = made(files, segment_files)
    for _ in range(9):
        append(partition)
    paths = [segment.path for segment in partition.segments]
    partition.apply_log_start(2)
    assert segment_files.unnamed == []
    partition.apply_log_start(5)
    partition.apply_log_start(4)
    assert segment_files.unnamed == paths[:1]
    assert partition.state.log_start == 5
    assert partition.read(5, 1, partition.readable, whole_first_batch=True)[0]
    partition.apply_log_start(9)
    assert segment_files.unnamed == paths
    assert partition.read(9, 1000, partition.readable, whole_first_batch=True) == (b"", 9)
    again = append(partition)
    assert partition.read(9, 1000, partition.readable, whole_first_batch=True)[0] == again
    assert partition.segments[0].path not in paths


def test_a_file_that_the_next_batch_will_go_into_is_never_let_go_of(files: Files) -> None:
    segment_files = SegmentFiles(files)
    partition = made(files, segment_files)
    append(partition, 900)
    # The segment is begun, but the batch in it was refused later on: it is not part of the log.
    sent = batch(size=900)
    partition.write(read_header(sent), sent, NOW_MS, CONFIGS)
    assert bases(partition) == [0, 1]
    partition.apply_log_start(1)
    assert [path[-6:] for path in segment_files.unnamed] == ["00.log"]
    assert bases(partition) == [1]


def test_the_first_record_since_a_time_and_the_latest_time_are_found_in_what_can_be_read(files: Files) -> None:
    partition = made(files)
    for number in range(9):
        append(partition, stamp_ms=1000 + number * 10)
    until = partition.readable
    assert partition.latest_timestamp(until) == 1080
    partition.state.apply_log_start(4)
    found = next(iter(partition.batches(4, until)))
    assert found[0].max_timestamp == 1040
    assert partition.latest_timestamp(until) == 1080
    partition.apply_log_start(9)
    assert partition.latest_timestamp(partition.readable) == -1


def test_a_partition_with_very_many_segments_still_ends_one_that_is_as_large_as_segments_usually_are(
    tmp_path: Path,
) -> None:
    """Or retention could never let go of what comes from then on."""
    partition = made(DiskFiles(tmp_path))
    (tmp_path / partition.directory).mkdir(parents=True)
    (tmp_path / partition.directory / f"{SEGMENTS_MAX - 1:020}.log").touch()
    segments = [(number, number + 1, 100, 0, 0, 0, -1, 0) for number in range(SEGMENTS_MAX - 1)]
    segments.append((SEGMENTS_MAX - 1, SEGMENTS_MAX, SEGMENT_BYTES_DEFAULT - 500, 0, 0, 0, -1, 0))
    record = {
        "log_start": 0,
        "next_offset": SEGMENTS_MAX,
        "epochs": [],
        "cleaned_until": 0,
        "given_up": [],
        "segments": segments,
    }
    partition.restore(record, PartitionParts(Index(), Snapshot({}, []), {}, b"", b""))
    counts = []
    for _ in range(2):
        append(partition, 500)
        counts.append(len(bases(partition)))
    assert counts == [SEGMENTS_MAX, SEGMENTS_MAX + 1]


def test_the_latest_time_is_that_of_a_record_that_is_left_though_its_segment_has_held_a_later_one(files: Files) -> None:
    partition = made(files)
    for stamp_ms in (3000, 2000, 1000):
        append(partition, stamp_ms=stamp_ms)
    assert bases(partition) == [0]
    partition.apply_log_start(1)
    assert partition.latest_timestamp(partition.readable) == 2000


def test_between_two_marks_lie_the_bytes_of_every_segment_between_them(files: Files) -> None:
    """A fetch that waits for so many bytes would wait on, though they are there."""
    partition = made(files)
    ends = [Mark(0, 0, 0)]
    for _ in range(10):
        append(partition)
        ends.append(partition.end_mark())
    assert bases(partition) == [0, 3, 6, 9]
    for first, begin in enumerate(ends):
        for last in range(first, len(ends)):
            assert partition.bytes_between(begin, ends[last]) == 300 * (last - first)


def test_of_all_places_where_readers_went_on_only_some_are_remembered(files: Files) -> None:
    partition = made(files)
    for _ in range(40):
        append(partition)
    for offset in range(40):
        partition.read(offset, 300, partition.readable, whole_first_batch=True)
    assert len(partition._places) == _REMEMBERED_PLACES_MAX


def listened(partition: PartitionLog) -> list[str]:
    """What is told of damage from now on."""
    told: list[str] = []
    partition._segment_files.damage.tell = lambda path, line: told.append(line)
    return told


def read_until_damage(partition: PartitionLog, offset: int, bytes_max: int) -> None:
    """As a consumer does: what is before the damage is right."""

    def read_all(offset: int) -> None:
        while offset < partition.readable.offset:
            data, offset = partition.read(offset, bytes_max, partition.readable, whole_first_batch=True)
            assert len(data) % 300 == 0

    with pytest.raises(Corrupt):
        read_all(offset)


@pytest.mark.parametrize("length", [-(2**31), -12, 0, 40])
def test_a_batch_whose_length_is_nonsense_is_damage_wherever_reading_comes_upon_it(length: int) -> None:
    files = MemoryFiles()
    partition = made(files)
    for _ in range(3):
        append(partition)
    path = partition.segments[0].path
    files.open(path).write_at([length.to_bytes(4, "big", signed=True)], 300 + 8)
    for offset, bytes_max in ((0, 500), (2, 500)):
        told = listened(partition)
        read_until_damage(partition, offset, bytes_max)
        assert re.search(f"{path}: no batch of this segment at offset 300", told.pop())
        partition._segment_files.damage.marks.clear()


@pytest.mark.parametrize("bytes_max", [0, 400, 100_000])
@pytest.mark.parametrize("left_bytes", [0, 30, 300, 330, 899])
def test_a_segment_that_somebody_cut_is_damage_wherever_reading_comes_upon_it(left_bytes: int, bytes_max: int) -> None:
    files = MemoryFiles()
    partition = made(files)
    for _ in range(3):
        append(partition)
    path = partition.segments[0].path
    files.open(path).truncate(left_bytes)

    told = listened(partition)
    read_until_damage(partition, 0, bytes_max)
    assert re.search(f"{path}: ends at offset {left_bytes}, in the middle of a batch", told.pop())


@pytest.mark.parametrize("length", [-(2**31), -12, 0, 40, 889, 2**31 - 1])
def test_a_first_batch_whose_length_is_nonsense_is_damage_and_takes_no_memory(length: int) -> None:
    files = MemoryFiles()
    partition = made(files)
    for _ in range(3):
        append(partition)
    path = partition.segments[0].path
    files.open(path).write_at([length.to_bytes(4, "big", signed=True)], 8)
    told = listened(partition)
    read_until_damage(partition, 0, 0)
    assert re.search(f"{path}: no batch of this segment at offset 0", told.pop())
