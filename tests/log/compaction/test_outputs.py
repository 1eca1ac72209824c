"""What a pass makes: a segment takes the place of those that it is made of, and a batch that of the one it was."""

from histories import DIRECTORY, NOW_MS, History

from semel.log.compaction.output import SegmentOutput
from semel.wire.batch import read_header, stamp
from semel.wire.records import Record, encode_batch


def test_a_segment_made_of_several_begins_with_the_first_of_them_and_ends_with_the_last() -> None:
    """Whatever is left in it: it is as old as its first record, and the next segment follows it."""
    history = History()
    for key, size in ((b"b", 100), (b"a", 100), (b"a", 2_000)):
        history.append([Record(key=key, value=b"v" * size)])
        history.now_ms += 1
        history.roll()
    history.clean(segment_bytes=1_200)
    made, following, _ = history.segments
    assert [record.offset for record in history.records()] == [0, 2]
    assert (made.base_offset, made.next_offset, made.begun_at_ms) == (0, following.base_offset, NOW_MS)


def test_a_segment_is_looked_into_again_at_the_first_time_at_which_a_mark_of_deletion_in_it_may_go() -> None:
    history = History()
    output = SegmentOutput(history.files, DIRECTORY, history.segments)
    history.append([Record(key=b"a", value=None)])
    output.add(history.headers()[0], history.batches()[0])
    for horizon_ms in (900, 700, 800):
        output.note_horizon(horizon_ms)
    made = output.finish()
    assert made is not None
    assert made.horizon_ms == 700


def test_a_rewritten_batch_keeps_the_time_that_the_broker_gave_to_all_of_its_records() -> None:
    history = History()
    stamped = encode_batch(
        [Record(key=b"a", value=b"1", timestamp_ms=50), Record(key=b"b", value=b"1", timestamp_ms=90)]
    )
    stamp(stamped, read_header(stamped), 5_000)
    history.append_batch(stamped)
    history.append([Record(key=b"b", value=b"2", timestamp_ms=80)])
    history.roll()
    history.clean()
    assert [header.record_count for header in history.headers()] == [1, 1]
    assert history.headers()[0].max_timestamp == 5_000
