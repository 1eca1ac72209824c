"""An audit against a naive comparison of multisets: every lost, doubled, foreign and altered id, and no other."""

from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.audit.comparison import SIZES, Sizes
from semel.audit.errors import AuditFailed
from semel.audit.places import Piece
from semel.audit.places.given import Given
from semel.audit.run import Plan, run
from semel.audit.verdict import ALTERED, DOUBLED, FOREIGN, KINDS, LOST, SinkVerdict, Verdict

KEY = "000102030405060708090a0b0c0d0e0f"


class Event(NamedTuple):
    id: bytes
    at_ms: int | None
    amount: Decimal | None


class InSmallPieces(Given):
    """So that a few rows already have borders between them."""

    _piece_rows = 3


def place(events: Iterable[Event], time: str | None = "at_ms", amount: str | None = "amount") -> Given:
    columns = list(zip(*events, strict=True)) or [(), (), ()]
    types = (pa.binary(), pa.int64(), pa.decimal128(20, 2))
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return InSmallPieces(pa.table(dict(zip(Event._fields, arrays, strict=True))), time=time, amount=amount)


def audited(source: Given, *sinks: Given, plan: Plan | None = None, sizes: Sizes = SIZES) -> Verdict:
    return run(source, sinks, plan or Plan(key=KEY, processes=1), lambda what, done, total: None, sizes)


def named(verdict: SinkVerdict) -> dict[str, dict[bytes, int]]:
    """What the verdict lists, after having looked that its counts agree with it."""
    found = {}
    for kind in KINDS:
        findings = getattr(verdict, kind)
        found[kind] = {one.id: one.rows for one in findings.listed}
        assert (findings.ids, findings.rows) == (len(found[kind]), sum(found[kind].values()))
    return found


def naively(sent: list[Event], stored: list[Event], window_ms: int | None, once: bool) -> dict[str, dict[bytes, int]]:
    """The same by plain dictionaries, id after id and window after window."""

    def counted(events: list[Event]) -> Counter[tuple[bytes, int | None, Decimal | None]]:
        windows = ((e, None if window_ms is None or e.at_ms is None else e.at_ms // window_ms) for e in events)
        return Counter((event.id, window, event.amount) for event, window in windows)

    expected, there = counted(sent), counted(stored)
    if once:
        expected = Counter(dict.fromkeys(expected, 1))
    found: dict[str, Counter[bytes]] = {kind: Counter() for kind in KINDS}
    for id in {event.id for event in (*sent, *stored)}:
        for window in {row[1] for row in (*expected, *there) if row[0] == id}:
            of_window = [row for row in {*expected, *there} if row[:2] == (id, window)]
            missing = sum(max(expected[row] - there[row], 0) for row in of_window)
            extra = sum(max(there[row] - expected[row], 0) for row in of_window)
            altered = min(missing, extra)
            found[ALTERED][id] += altered
            found[LOST][id] += missing - altered
            was_sent = any(expected[row] for row in of_window)
            found[DOUBLED if was_sent else FOREIGN][id] += extra - altered
        moved = min(found[LOST][id], found[FOREIGN][id])
        found[ALTERED][id] += moved
        found[LOST][id] -= moved
        found[FOREIGN][id] -= moved
    return {kind: {id: rows for id, rows in counts.items() if rows} for kind, counts in found.items()}


EVENTS = st.lists(
    st.builds(
        Event,
        st.sampled_from([b"", b"1", b"2", b"17", b"payment-17", bytes(9), b"\xff", b"another id, and a long one"]),
        st.none() | st.integers(-25, 45),
        st.none() | st.sampled_from([Decimal("1.50"), Decimal(0), Decimal(-3)]),
    ),
    max_size=25,
)


@given(
    EVENTS,
    EVENTS,
    st.sampled_from([None, 1, 10, 1000]),
    st.booleans(),
    st.sampled_from([1, 2, 64]),
    st.sampled_from([1, 3]),
    st.booleans(),
)
def test_it_finds_what_a_naive_comparison_finds(
    sent: list[Event],
    stored: list[Event],
    window_ms: int | None,
    once: bool,
    buckets: int,
    groups: int,
    with_amounts: bool,
) -> None:
    amount = "amount" if with_amounts else None
    plan = Plan(window_ms=window_ms, once=once, buckets=buckets, processes=1, key=KEY)
    sizes = Sizes(group_bytes_max=1, groups_max=groups, counted_rows=4)
    verdict = audited(place(sent, amount=amount), place(stored, amount=amount), plan=plan, sizes=sizes)
    if not with_amounts:
        sent, stored = ([event._replace(amount=None) for event in events] for events in (sent, stored))
    expected = naively(sent, stored, window_ms, once)
    assert named(verdict.sinks[0]) == expected
    assert verdict.is_clean == (not any(expected.values()))
    assert (verdict.source.rows, verdict.sinks[0].sink.rows) == (len(sent), len(stored))


@given(EVENTS, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_is_nothing_to_it(sent: list[Event], chance: object) -> None:
    shuffled = list(sent)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    verdict = audited(place(sent), place(shuffled), plan=Plan(window_ms=1, processes=1))
    assert verdict.is_clean
    assert verdict.sinks[0].rows_compared == 0


def test_with_once_an_id_that_only_the_sink_has_is_reported_though_its_bucket_is_empty_in_the_source() -> None:
    plan = Plan(once=True, buckets=64, processes=1, key=KEY)
    [sink] = audited(Given(["a", "a", "b"]), Given(["a", "b", "x", "y", "z"]), plan=plan).sinks
    assert named(sink) == {LOST: {}, DOUBLED: {}, FOREIGN: {b"x": 1, b"y": 1, b"z": 1}, ALTERED: {}}


def test_a_lost_row_whose_id_is_stored_is_a_repetition_and_one_whose_id_is_missing_is_none() -> None:
    [sink] = audited(Given(["a", "a", "a", "b", "c", "c"]), Given(["a", "c", "c"])).sinks
    assert named(sink)[LOST] == {b"a": 2, b"b": 1}
    assert (sink.lost.rows, sink.lost.repeats) == (3, 2)


def test_an_id_that_is_stored_in_another_window_is_no_repetition() -> None:
    early, late = Event(b"a", 0, None), Event(b"a", 20, None)
    [sink] = audited(place([early, early, late]), place([late]), plan=Plan(window_ms=10, processes=1)).sinks
    assert (sink.lost.rows, sink.lost.repeats) == (2, 0)


def test_a_pair_does_not_cancel_itself() -> None:
    """With an exclusive or of hashes both sides would be that of `a`, with three rows."""
    verdict = audited(Given(["a", "b", "b"]), Given(["a", "c", "c"]), plan=Plan(buckets=1))
    assert named(verdict.sinks[0]) == {LOST: {b"b": 2}, DOUBLED: {}, FOREIGN: {b"c": 2}, ALTERED: {}}


def test_numbers_whose_sums_agree_are_told_apart() -> None:
    """1 + 4 is 2 + 3: a hash that is linear would not notice."""
    verdict = audited(Given([1, 4]), Given([2, 3]), plan=Plan(buckets=1))
    assert named(verdict.sinks[0]) == {LOST: {b"1": 1, b"4": 1}, DOUBLED: {}, FOREIGN: {b"2": 1, b"3": 1}, ALTERED: {}}


def test_each_audit_has_a_key_of_its_own_and_can_be_repeated_with_it() -> None:
    first, second = (audited(Given([1]), Given([2]), plan=Plan()) for _ in range(2))
    assert first.key != second.key
    assert audited(Given([1]), Given([2]), plan=Plan(key=first.key)) == first


def test_several_sinks_are_judged_each_for_itself() -> None:
    verdict = audited(Given([1, 2]), Given([2, 1]), Given([1]), Given([1, 2, 2]))
    assert [sink.is_clean for sink in verdict.sinks] == [True, False, False]
    assert [(sink.lost.rows, sink.doubled.rows) for sink in verdict.sinks] == [(0, 0), (1, 0), (0, 1)]
    assert not verdict.is_clean


def test_the_counts_are_exact_where_not_all_ids_are_named() -> None:
    verdict = audited(Given(range(1000)), Given([]), plan=Plan(listed_max=3))
    [sink] = verdict.sinks
    assert (sink.lost.rows, sink.lost.ids) == (1000, 1000)
    assert [finding.text for finding in sink.lost.listed] == ["0", "1", "10"]
    assert audited(Given(range(1000)), Given([]), plan=Plan(listed_max=0)).sinks[0].lost.ids == 1000


def test_a_row_without_an_id_is_counted_and_proves_nothing() -> None:
    verdict = audited(Given([b"1", None]), Given([b"1", None]))
    assert (verdict.source.without_id, verdict.sinks[0].sink.without_id) == (1, 1)
    assert verdict.source.rows == 1
    assert not verdict.is_clean


def test_rows_without_an_id_that_are_counted_have_to_be_as_many_on_each_side() -> None:
    counted = Plan(counts_without_id=True)
    alike = audited(Given([b"1", None]), Given([None, b"1"]), plan=counted)
    assert alike.is_clean
    assert alike.as_json()["counts_without_id"]
    for stored in ([b"1"], [b"1", None, None]):
        apart = audited(Given([b"1", None]), Given([None, b"1"]), Given(stored), plan=counted)
        assert [sink.is_clean for sink in apart.sinks] == [True, False]
        assert not apart.is_clean


def test_only_the_events_of_the_asked_time_take_part() -> None:
    sent = [Event(b"%d" % number, number, None) for number in range(10)]
    verdict = audited(place(sent), place(sent[3:8]), plan=Plan(since_ms=3, before_ms=8))
    assert verdict.is_clean
    assert verdict.source.rows == 5
    assert audited(place(sent), place(sent[3:8]), plan=Plan(since_ms=2, before_ms=8)).sinks[0].lost.rows == 1


def test_the_windows_that_differ_are_named_with_their_counts() -> None:
    sent = [Event(b"%d" % number, number, None) for number in range(30)]
    stored = [*sent[:12], *sent[13:], Event(b"x", None, None)]
    verdict = audited(place(sent), place(stored), plan=Plan(window_ms=10))
    windows = [(window.begin_ms, window.source_rows, window.sink_rows) for window in verdict.sinks[0].windows]
    assert windows == [(None, 0, 1), (10, 10, 9)]


def test_an_event_with_another_time_is_altered_only_where_it_is_in_another_window() -> None:
    source, sink = place([Event(b"a", 11, None)]), place([Event(b"a", 29, None)])
    assert audited(source, sink, plan=Plan(window_ms=100)).is_clean
    assert named(audited(source, sink, plan=Plan(window_ms=10)).sinks[0])[ALTERED] == {b"a": 1}


def test_amounts_that_were_swapped_are_found_although_their_sum_is_the_same() -> None:
    sent = [Event(b"a", None, Decimal(5)), Event(b"b", None, Decimal(7))]
    stored = [Event(b"a", None, Decimal(7)), Event(b"b", None, Decimal(5))]
    verdict = audited(place(sent, time=None), place(stored, time=None))
    assert (verdict.source.amount, verdict.sinks[0].sink.amount) == (Decimal(12), Decimal(12))
    assert named(verdict.sinks[0])[ALTERED] == {b"a": 1, b"b": 1}
    assert audited(place(sent, amount=None), place(stored, amount=None)).is_clean


class Changing(Given):
    """A table to which somebody writes while it is counted."""

    def pieces(self) -> list[Piece]:
        return [_ChangingPiece(list(super().pieces()))]


class _ChangingPiece:
    rows = 0

    def __init__(self, pieces: list[Piece]) -> None:
        self._pieces = pieces

    def read(self, wanted: object) -> object:
        yield from self._pieces[0].read(wanted)  # type: ignore[arg-type]
        self._pieces = list(Given([1, 2, 3]).pieces())


def test_what_changes_while_it_is_audited_gets_no_verdict() -> None:
    with pytest.raises(AuditFailed, match="changed while it was audited"):
        audited(Given([1, 2, 4]), Changing([1, 2]), plan=Plan(buckets=1, processes=1))


def test_too_many_windows_are_refused_before_they_take_the_memory() -> None:
    many = place([Event(b"1", number, None) for number in range(5000)])
    with pytest.raises(AuditFailed, match="take longer windows or fewer buckets"):
        audited(many, many, plan=Plan(window_ms=1))


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (Plan(buckets=3), "power of two"),
        (Plan(key="17"), "hexadecimal digits"),
        (Plan(window_ms=10), "time=COLUMN"),
        (Plan(processes=0), "1 at least"),
        (Plan(listed_max=-1), "0 at least"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_with_the_reason(plan: Plan, reason: str) -> None:
    with pytest.raises(AuditFailed, match=reason):
        audited(Given([1]), Given([1]), plan=plan)


def test_any_number_of_ids_may_be_named() -> None:
    [sink] = audited(Given(range(5)), Given([]), plan=Plan(listed_max=1 << 70)).sinks
    assert (sink.lost.ids, len(sink.lost.listed)) == (5, 5)


def test_a_column_that_a_table_in_memory_lacks_is_named() -> None:
    with pytest.raises(AuditFailed, match="what was given has no column 'key': there are id"):
        audited(Given(pa.table({"id": ["p-1"]}), id="key"), Given([]))


def test_amounts_on_one_side_only_are_refused() -> None:
    with pytest.raises(AuditFailed, match="on all sides or on none"):
        audited(place([]), place([], amount=None))


def test_processes_find_what_one_process_finds() -> None:
    sent = Given(range(3000))
    stored = Given([*range(1, 3000), 17])
    plan = Plan(key=KEY, processes=2)
    assert audited(sent, stored, plan=plan) == audited(sent, stored, plan=Plan(key=KEY, processes=1))
