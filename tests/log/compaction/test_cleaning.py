"""One pass over any history: what stays is what the rules say, and no consumer comes to another result than before."""

from typing import Any

import pytest
from histories import KEY_BYTES, NOW_MS, RETENTION_MS, History, Kept, last_values
from hypothesis import given
from hypothesis import strategies as st

from semel.log.compaction import keys, passes
from semel.log.compaction.keys import BYTES_PER_KEY
from semel.log.compaction.plan import is_overdue
from semel.log.compaction.rewrite import without_superseded
from semel.wire.batch import HEADER_BYTES, HORIZON_BIT, BatchHeader, read_header
from semel.wire.records import CODECS, Record, encode_batch

LONG_KEY = b"a key that is too long to stand for itself"
KEYS = (b"", b"a", b"b", b"c", LONG_KEY, LONG_KEY + b"!")
RECORD = st.builds(
    Record,
    key=st.sampled_from(KEYS),
    value=st.one_of(st.none(), st.binary(max_size=40), st.just(b"v" * 300)),
    headers=st.sampled_from(([], [("h", b"1")], [("h", None), ("i", b"")])),
    timestamp_ms=st.integers(NOW_MS - 10_000_000, NOW_MS),
)
OPENED_BYTES = 1_000_000
# What a batch may be to be opened: now and then less, as after a start with a lower limit.
LIMIT = st.sampled_from((OPENED_BYTES, OPENED_BYTES, 150))
STEP = st.one_of(
    st.tuples(
        st.just("append"),
        st.lists(RECORD, min_size=1, max_size=6),
        st.sampled_from(CODECS),
        st.sampled_from((-1, -1, 7, 8)),
    ),
    st.tuples(st.just("end"), st.sampled_from((7, 8)), st.booleans()),
    st.tuples(st.just("roll")),
)


def played(steps: list[Any]) -> History:
    history = History()
    for step in steps:
        getattr(history, step[0])(*step[1:])
    history.end_all()
    history.roll()
    return history


def naive(history: History, end: int) -> list[Kept]:
    """All that has to stay, as the rules are written down, while no mark of deletion has had its time."""
    records = history.records()

    def is_aborted(record: Kept) -> bool:
        return any(p == record.producer_id and first <= record.offset <= at for p, first, at in history.aborted)

    last = {r.key: r.offset for r in records if not r.is_marker and not is_aborted(r) and r.offset < end}
    return [r for r in records if r.is_marker or r.offset >= end or (not is_aborted(r) and last[r.key] == r.offset)]


@given(st.lists(STEP, max_size=25))
def test_the_last_record_of_every_key_stays_at_its_offset_and_nothing_else_does(steps: list[Any]) -> None:
    history = played(steps)
    if not history.sealed:
        return
    end = history.sealed[-1].next_offset
    expected, table = naive(history, end), last_values(history.committed())
    history.clean()
    assert history.records() == expected
    assert last_values(history.committed()) == table


@given(
    st.lists(
        st.one_of(STEP, st.tuples(st.just("clean"), st.sampled_from((0, RETENTION_MS, 10**9)), LIMIT)), max_size=40
    ),
    st.sampled_from((KEY_BYTES, 8 * BYTES_PER_KEY)),
    st.sampled_from((1, 1000, 10**6)),
)
def test_passes_at_any_time_never_change_what_a_consumer_ends_up_with(
    steps: list[Any], key_bytes: int, segment_bytes: int
) -> None:
    history, cleaned_until = History(), 0
    plain = History()
    opens_all = True
    for step in [*steps, ("end", 7, True), ("end", 8, False), ("roll",), ("clean", 0, OPENED_BYTES)]:
        if step[0] != "clean":
            getattr(history, step[0])(*step[1:])
            getattr(plain, step[0])(*step[1:])
            continue
        history.now_ms += step[1]
        if history.sealed:
            opens_all = opens_all and step[2] == OPENED_BYTES
            done = history.clean(
                cleaned_until, key_bytes=key_bytes, segment_bytes=segment_bytes, opened_bytes_max=step[2]
            )
            assert done.until >= cleaned_until
            cleaned_until = done.until
        assert last_values(history.committed()) == last_values(plain.committed())
        shown = history.records()
        assert [record.offset for record in shown] == sorted({record.offset for record in shown})
        assert set(shown) <= {record for record in plain.records() if not record.is_marker} | {
            record for record in shown if record.is_marker
        }
        below = [record for record in history.committed() if record.offset < cleaned_until]
        assert not opens_all or len({record.key for record in below}) == len(below), "two records of one key"


@given(st.lists(STEP, max_size=25))
def test_when_their_time_is_up_all_marks_of_deletion_go_but_the_last_offset_stays(steps: list[Any]) -> None:
    history = played(steps)
    if not history.sealed:
        return
    end = history.sealed[-1].next_offset
    history.clean()
    cleaned = history.records()
    history.now_ms += RETENTION_MS - 1
    history.clean(end)
    assert history.records() == cleaned, "something went before its time"
    history.now_ms += 1
    history.clean(end)
    assert all(record.is_marker or record.value is not None or record.offset == end - 1 for record in history.records())
    # A marker's own time begins when the last of its records is gone.
    history.now_ms += RETENTION_MS
    history.clean(end)
    left = history.records()
    # The producers of whose present transaction a record is left. Each has several, one after the other.
    with_records: set[int] = set()
    for record in left:
        if not record.is_marker:
            with_records.add(record.producer_id)
            continue
        assert record.producer_id in with_records or record.offset == end - 1, record
        with_records.discard(record.producer_id)
    assert left[-1].offset == end - 1


def test_what_is_clean_stays_clean_when_its_last_segment_is_gone() -> None:
    """Of an aborted transaction nothing stays, and then the segment before ends the sealed part of the log."""
    history = History()
    history.append([Record(key=b"a", value=b"1")])
    history.roll()
    history.append([Record(key=b"a", value=b"2")], producer_id=7)
    history.roll()
    history.end(7, False)
    history.append([Record(key=b"a", value=b"3")])
    first = history.clean(segment_bytes=1)
    assert (first.until, history.sealed[-1].next_offset) == (2, 1)
    again = history.clean(first.until, segment_bytes=1)
    assert (again.until, again.is_complete) == (2, True)


def test_a_pass_that_finds_nothing_to_do_writes_nothing() -> None:
    history = History()
    for key in KEYS:
        history.append([Record(key=key, value=b"1")])
        history.roll()
    done = history.clean(segment_bytes=1)
    assert (done.tally.written_bytes, done.tally.removed_records) == (0, 0)
    assert [segment.generation for segment in history.segments] == [0] * len(history.segments)


def test_small_segments_become_one_and_large_ones_stay_apart() -> None:
    history = History()
    for number in range(6):
        history.append([Record(key=b"%d" % number, value=b"v" * (100 if number < 4 else 1000))])
        history.roll()
    history.clean(segment_bytes=1200)
    assert [(segment.base_offset, segment.generation) for segment in history.segments] == [
        *((0, 1), (4, 0), (5, 0)),
        (6, 0),
    ]


def test_segments_of_which_nothing_is_left_go_without_a_file_in_their_place() -> None:
    history = History()
    for value in (b"1", b"2", b"3"):
        history.append([Record(key=b"a", value=value)])
        history.roll()
    before = history.files.names("topics/0-orders/0")
    history.clean(segment_bytes=1)
    assert [segment.base_offset for segment in history.segments] == [2, 3]
    assert history.files.names("topics/0-orders/0") == before


def test_what_changes_in_the_header_of_a_rewritten_batch_is_what_has_to() -> None:
    history = History()
    history.append([Record(key=b"a", value=b"1", timestamp_ms=50), Record(key=b"b", value=b"1", timestamp_ms=90)])
    history.append([Record(key=b"b", value=b"2", timestamp_ms=80), Record(key=b"c", value=None, timestamp_ms=70)])
    history.roll()
    (first, second), now_ms = history.headers(), history.now_ms
    history.clean()
    rewritten, marked = history.headers()
    assert rewritten == first._replace(
        length=rewritten.length, checksum=rewritten.checksum, max_timestamp=50, record_count=1
    )
    assert marked == second._replace(
        length=marked.length,
        checksum=marked.checksum,
        attributes=HORIZON_BIT,
        base_timestamp=now_ms + RETENTION_MS,
    )
    assert [record.timestamp_ms for record in history.records()] == [50, 80, 70]


@pytest.mark.parametrize("codec", CODECS)
def test_a_rewritten_batch_is_compressed_as_its_producer_compressed_it(codec: str) -> None:
    history = History()
    history.append([Record(key=b"a", value=b"1" * 2000), Record(key=b"b", value=b"1" * 2000)], codec)
    history.append([Record(key=b"a", value=b"2")])
    history.roll()
    history.clean()
    assert history.headers()[0].attributes == CODECS.index(codec)
    assert [(record.key, record.value) for record in history.records()] == [(b"b", b"1" * 2000), (b"a", b"2")]


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_bomb_stays_as_it_is_and_supersedes_nothing(codec: str) -> None:
    history = History()
    history.append([Record(key=b"a", value=b"1"), Record(key=b"b", value=b"1")])
    history.append([Record(key=b"a", value=b"0" * 5_000_000)], codec)
    history.append([Record(key=b"b", value=b"2")])
    history.roll()
    bomb = history.batches()[1]
    done = history.clean(opened_bytes_max=1_000_000)
    assert done.tally.unopened_batches == 1
    assert history.batches()[1] == bomb
    assert [record.offset for record in history.records()] == [0, 2, 3]


@pytest.mark.parametrize("why", ["too large", "too many records", "damaged"])
def test_a_mark_of_deletion_stays_as_long_as_a_batch_before_it_stays_unopened(why: str) -> None:
    """Or what it deletes would come back to whoever reads from the beginning."""
    history = History()
    history.append([Record(key=b"a", value=b"1" * 300), *[Record(key=b"b", value=b"1")] * 20])
    history.roll()
    history.append([Record(key=b"a", value=None)])
    history.append([Record(key=b"c", value=b"1")])
    history.roll()
    rules = {"opened_bytes_max": 200} if why == "too large" else {}
    key_bytes = 10 * BYTES_PER_KEY if why == "too many records" else KEY_BYTES
    if why == "damaged":
        file = history.segment_files.file_of(history.segments[0])
        whole = file.read_at(1, HEADER_BYTES + 3)
        file.write_at([b"\xff"], HEADER_BYTES + 3)
    end = history.sealed[-1].next_offset
    for _ in range(3):
        history.clean(0, key_bytes=key_bytes, segment_bytes=1, **rules)
        history.now_ms += RETENTION_MS
    if why == "damaged":
        history.segment_files.file_of(history.segments[0]).write_at([whole], HEADER_BYTES + 3)
    for _ in range(3):
        # As after a start with larger limits: the value can be seen again, and what deleted it was long ago.
        history.clean(end)
        history.now_ms += RETENTION_MS
        assert b"a" not in last_values(history.committed())


def due_passes(history: History, key_bytes: int) -> int:
    """Make passes as long as marks of deletion are due; how many that took."""
    end = history.sealed[-1].next_offset
    count = 0
    while any(is_overdue(segment, history.now_ms) for segment in history.sealed):
        history.clean(end, key_bytes=key_bytes, segment_bytes=1)
        count += 1
        assert count < 20, "passes without an end"
    return count


def test_more_marks_of_deletion_than_the_table_holds_go_in_several_passes() -> None:
    history = History()
    for number in range(100):
        history.append([Record(key=b"%d" % number, value=None)])
        if number % 25 == 24:
            history.roll()
    history.append([Record(key=b"last", value=b"1")])
    history.roll()
    history.clean()
    history.now_ms += RETENTION_MS
    assert due_passes(history, 40 * BYTES_PER_KEY) > 2
    assert [record.key for record in history.records()] == [b"last"]


def test_more_marks_of_deletion_in_one_batch_than_half_the_table_holds_go_too() -> None:
    history = History()
    history.append([Record(key=b"%d" % number, value=None) for number in range(30)])
    history.append([Record(key=b"%d more" % number, value=None) for number in range(15)])
    history.append([Record(key=b"last", value=b"1")])
    history.roll()
    history.clean()
    history.now_ms += RETENTION_MS
    assert due_passes(history, 40 * BYTES_PER_KEY) == 2
    assert [record.key for record in history.records()] == [b"last"]


@pytest.mark.parametrize("before", [0, 40])
def test_marks_of_deletion_behind_an_unopened_batch_do_not_call_for_passes_without_end(before: int) -> None:
    history = History()
    for number in range(100):
        if number == before:
            history.append_payload(b"no record", 1)
        history.append([Record(key=b"%d" % number, value=None)])
        if number % 25 == 24:
            history.roll()
    history.append([Record(key=b"last", value=b"1")])
    history.roll()
    history.clean(segment_bytes=1)
    history.now_ms += RETENTION_MS
    due_passes(history, 40 * BYTES_PER_KEY)
    assert [header.record_count for header in history.headers()] == [1] * (102 - before)


def test_a_mark_of_deletion_at_the_end_goes_when_there_is_more() -> None:
    history = History()
    history.append([Record(key=b"a", value=None)])
    history.roll()
    history.clean()
    history.now_ms += RETENTION_MS
    assert due_passes(history, KEY_BYTES) == 1
    assert [record.key for record in history.records()] == [b"a"]
    end = history.next_offset
    history.append([Record(key=b"b", value=b"1")])
    history.roll()
    assert not any(is_overdue(segment, history.now_ms) for segment in history.sealed), "a pass for one record"
    history.clean(end)
    assert [record.key for record in history.records()] == [b"b"]


@pytest.mark.parametrize("place", [HEADER_BYTES + 3, 25, 33])
def test_a_batch_that_is_damaged_stays_as_it_is(place: int) -> None:
    history = History()
    history.append([Record(key=b"a", value=b"1"), Record(key=b"b", value=b"1")])
    history.append([Record(key=b"a", value=b"2"), Record(key=b"c", value=b"1")])
    history.roll()
    segment = history.segments[0]
    history.segment_files.file_of(segment).write_at([b"\xff"], place)
    damaged = history.batches()[0]
    history.append([Record(key=b"c", value=b"2")])
    history.roll()
    done = history.clean(segment_bytes=10**6)
    assert done.tally.unopened_batches == 1
    assert history.batches()[0] == damaged


def test_a_damaged_batch_of_an_aborted_transaction_is_shown_to_nobody_after_a_pass() -> None:
    """Clients need not check the checksum, and the list of aborted transactions no longer names this one."""
    history = History()
    history.append([Record(key=b"a", value=b"1")], producer_id=7)
    history.end(7, committed=False)
    history.append([Record(key=b"b", value=b"1")])
    history.roll()
    history.segment_files.file_of(history.segments[0]).write_at([b"\xff"], HEADER_BYTES + 3)
    history.clean()
    assert history.aborted == []
    assert [batch.base_offset for batch in map(read_header, history.batches())] == [1, 2]


@given(st.binary(max_size=60), st.integers(1, 5), st.integers(0, 70))
def test_records_that_are_none_stop_no_pass(garbage: bytes, count: int, cut: int) -> None:
    history = History()
    good = encode_batch([Record(key=b"a", value=b"1")] * count)
    payload = (bytes(good[HEADER_BYTES:])[:cut] + garbage)[:100]
    history.append_payload(payload, count)
    history.append([Record(key=b"a", value=b"2")])
    history.roll()
    before = history.batches()
    history.clean()
    assert history.batches()[-1] == before[-1]


@pytest.mark.parametrize("left_out", [1, 3])
def test_a_batch_that_is_none_behind_its_first_record_stays_when_later_ones_have_its_keys(
    left_out: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even when more of them have been found than are remembered."""
    monkeypatch.setattr(keys, "_LEFT_OUT_MAX", 1)
    history = History()
    good = bytes(encode_batch([Record(key=b"a", value=b"1")])[HEADER_BYTES:])
    for _ in range(left_out):
        history.append_payload(good + b"\x01garbage", 2)
    history.append([Record(key=b"a", value=b"2")])
    history.roll()
    before = history.batches()
    assert history.clean().tally.unopened_batches == left_out
    assert history.batches() == before


def test_a_batch_with_no_last_record_of_a_key_goes_without_being_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    history = History()
    for number in range(6):
        history.append([Record(key=b"a", value=b"%d" % number), Record(key=b"b", value=b"%d" % number)])
    history.roll()
    opened: list[int] = []

    def noted(header: BatchHeader, *rest: Any, **options: Any) -> Any:
        opened.append(header.base_offset)
        return without_superseded(header, *rest, **options)

    monkeypatch.setattr(passes, "without_superseded", noted)
    history.clean()
    assert opened == [10]
    assert [record.value for record in history.records()] == [b"5", b"5"]


def test_a_segment_of_which_nothing_is_left_is_read_once() -> None:
    """On a store it may have to be fetched for that."""
    history = History()
    for number in range(4):
        history.append([Record(key=b"a", value=b"%d" % number), Record(key=b"b", value=b"%d" % number)])
        history.roll()
    sizes = [segment.size for segment in history.sealed]
    done = history.begin()
    done.survey()
    (group,) = done.groups()
    assert done.to_read(group) == history.sealed[-1:]
    done.rewrite(group)
    assert (done.tally.read_bytes, done.tally.removed_records) == (sum(sizes) + sizes[-1], 6)


def test_which_segments_are_read_again_is_known_without_the_table_of_keys() -> None:
    """The event loop asks, and the first question to the table sorts it."""
    history = History()
    for value in (b"1", b"2"):
        history.append([Record(key=b"a", value=value)])
        history.roll()
    done = history.begin()
    done.survey()
    (group,) = done.groups()
    del done.last_offsets
    assert done.to_read(group) == history.sealed[-1:]


@pytest.mark.parametrize("kept", ["a batch that cannot be opened", "a transaction's marker"])
def test_a_segment_is_read_again_if_it_may_have_more_than_superseded_records(kept: str) -> None:
    history = History()
    history.append([Record(key=b"a", value=b"1")])
    if kept == "a transaction's marker":
        history.append([Record(key=b"a", value=b"2")], producer_id=7)
        history.end(7, True)
    else:
        history.append([Record(key=b"b", value=b"2" * 2000)], "gzip")
    history.roll()
    history.append([Record(key=b"a", value=b"3"), Record(key=b"b", value=b"3")])
    history.roll()
    done = history.clean(opened_bytes_max=1000)
    assert len(history.records()) == 3
    assert done.tally.removed_records == (2 if kept == "a transaction's marker" else 1)


def test_in_several_rounds_a_small_table_comes_to_the_same_as_a_large_one() -> None:
    def made() -> History:
        history = History()
        for number in range(200):
            history.append([Record(key=b"%d" % (number * 7 % 50), value=b"%d" % number)])
            if number % 20 == 19:
                history.roll()
        return history

    large, small = made(), made()
    large.clean()
    rounds = cleaned_until = 0
    while cleaned_until < 200:
        cleaned_until = small.clean(cleaned_until, key_bytes=12 * BYTES_PER_KEY).until
        rounds += 1
    assert rounds > 3
    assert small.records() == large.records()


def test_segments_on_both_sides_of_what_a_repair_has_given_up_stay_two() -> None:
    """Readers are told of the damage only between segments."""
    history = History()
    for _ in range(4):
        history.append([Record(key=b"a", value=b"1")])
        history.roll()
    done = history.begin()
    done.survey()
    before, damaged, *after = history.sealed
    done.segments = [before, *after]
    assert done.groups() == [done.segments]
    done.given_up = [(damaged.base_offset, damaged.next_offset)]
    assert done.groups() == [[before], after]
