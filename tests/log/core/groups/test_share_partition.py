"""A share partition does what a table with one line for each record would do, over random histories of members that
acquire, acknowledge, are silent and leave, of brokers that restart, and of a log that loses records."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counted_steps import steps_of
from semel.log.core.entries import ShareBatch
from semel.log.core.groups.share_partition import (
    ACCEPT,
    ACQUIRED,
    AVAILABLE,
    DONE,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    WORDS_MAX,
    Ack,
    LogSpan,
    SharePartition,
    ShareRules,
    Wish,
    check_acks,
)
from semel.wire.refusals import INVALID_RECORD_STATE, INVALID_REQUEST, Refused

RULES = ShareRules(deliveries_max=4, locks_max=12, lock_ms=100)
ALL = Wish(records_max=1_000, is_strict=False, batch_records=1_000)
MEMBERS = ("ada", "bob")


def spans_of(*sizes: int) -> list[LogSpan]:
    """A log of batches of these sizes; a negative one is of a batch that no member may see."""
    spans, at = [], 0
    for size in sizes:
        spans.append(LogSpan(at, at + abs(size) - 1, size > 0))
        at += abs(size)
    return spans


@dataclass(frozen=True)
class Record:
    """One line of the naive table."""

    kind: int = AVAILABLE
    deliveries: int = 0
    holder: str | None = None
    until_ms: int = 0


class World:
    """A share partition, the naive table beside it, and the log of both."""

    def __init__(self, spans: list[LogSpan], rules: ShareRules = RULES) -> None:
        self.rules = rules
        self.spans = spans
        self.visible = {offset for span in spans if span.is_visible for offset in range(span.first, span.last + 1)}
        self.log_end = spans[-1].last + 1 if spans else 0
        self.log_start = 0
        self.partition = SharePartition(0)
        self.table: dict[int, Record] = {offset: Record() for offset in range(self.log_end)}
        self.now_ms = 0

    def commit(self, batches: list[ShareBatch]) -> None:
        self.partition.check(batches)
        self.partition.apply(batches)

    def acquire(self, member: str, wish: Wish = ALL, begin: int | None = None) -> list[int]:
        """What the member gets, record by record; checked against the table."""
        offset = self.partition.next_offset(self.log_start, self.rules)
        self.check_next(offset)
        if begin is None and offset is None:
            return []
        begin = begin if begin is not None else offset or 0
        before = dict(self.table)
        start = max(self.partition.start, self.log_start)
        result = self.partition.decide_acquire(self.spans, begin, self.log_start, wish, self.rules)
        self.commit(result.changes)
        until_ms = self.now_ms + self.rules.lock_ms
        self.partition.hold(result.held, member, until_ms)
        for one in result.changes:
            for offset in range(one.first, one.last + 1):
                if one.kind == DONE:
                    is_there = offset in self.visible and offset >= self.log_start
                    assert not is_there
                    assert before[offset].kind != ACQUIRED or offset < self.log_start
                    self.table[offset] = Record(DONE, one.deliveries)
        got = [offset for one in result.held for offset in range(one.first, one.last + 1)]
        for one in result.held:
            for offset in range(one.first, one.last + 1):
                assert one.deliveries == before[offset].deliveries + 1
                self.table[offset] = Record(ACQUIRED, one.deliveries, member, until_ms)
        self.check_got(got, before, max(begin, start), start, wish)
        self.check_same()
        return got

    def check_next(self, offset: int | None) -> None:
        known = range(max(self.partition.start, self.log_start), self.partition.end)
        waiting = [known_offset for known_offset in known if self.table[known_offset].kind == AVAILABLE]
        if waiting:
            assert offset == waiting[0]
        elif len(known) >= self.rules.locks_max:
            assert offset is None
        else:
            assert offset == max(self.partition.end, self.log_start)

    def check_got(self, got: list[int], before: dict[int, Record], begin: int, start: int, wish: Wish) -> None:
        could = [o for o in sorted(before) if o >= begin and o in self.visible and before[o].kind == AVAILABLE]
        could = [o for o in could if o < start + self.rules.locks_max]
        assert got == could[: len(got)], "a record was passed over, or nobody may see it"
        if wish.is_strict:
            assert len(got) <= wish.records_max
        suspects = [o for o in got if before[o].deliveries >= self.rules.suspect_from]
        if suspects:
            counts = {before[o].deliveries for o in got}
            assert len(counts) == 1
            assert counts != {self.rules.deliveries_max - 1} or len(got) == 1
        elif wish.records_max > 0 and could and before[could[0]].deliveries < self.rules.suspect_from:
            assert got
            if len(got) < wish.records_max and len(got) < len(could):
                assert before[could[len(got)]].deliveries >= self.rules.suspect_from

    def acknowledge(self, member: str, *acks: Ack) -> int:
        """The error code; checked against the table."""
        error = 0
        expected: dict[int, Record] = {}
        for ack in acks:
            words = list(ack.words) * (ack.last - ack.first + 1) if len(ack.words) == 1 else ack.words
            for offset, word in zip(range(ack.first, ack.last + 1), words, strict=True):
                if offset < self.partition.start:
                    continue
                record = self.table.get(offset, Record())
                if record.kind != ACQUIRED or record.holder != member:
                    error = -1
                elif word == RENEW:
                    expected[offset] = replace(record, until_ms=self.now_ms + self.rules.lock_ms)
                else:
                    expected[offset] = self.released(record) if word == RELEASE else Record(DONE, record.deliveries)
        try:
            done = self.partition.decide_acknowledge(member, acks, self.rules)
        except Refused as refused:
            assert error
            self.check_same()
            return refused.error
        assert not error
        self.commit(done.changes)
        self.partition.hold(done.held, member, self.now_ms + self.rules.lock_ms)
        self.table.update(expected)
        self.check_same()
        return 0

    def released(self, record: Record) -> Record:
        return Record(AVAILABLE if record.deliveries < self.rules.deliveries_max else DONE, record.deliveries)

    def leave(self, member: str) -> None:
        self.commit(self.partition.decide_release(lambda state: state.holder == member, self.rules))
        self.release_in_table(lambda record: record.holder == member)

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        deadline_ms = self.partition.next_deadline_ms()
        held = [record.until_ms for record in self.table.values() if record.holder is not None]
        assert deadline_ms is None if not held and deadline_ms is None else deadline_ms is not None
        assert not held or (deadline_ms is not None and deadline_ms <= min(held))
        self.commit(self.partition.decide_overdue(self.now_ms, self.rules))
        self.release_in_table(lambda record: record.until_ms <= self.now_ms)

    def restart(self) -> None:
        snapshot = json.loads(json.dumps(self.partition.snapshot()))
        self.partition = SharePartition.restore(snapshot)
        assert self.partition.has_acquired == any(record.kind == ACQUIRED for record in self.table.values())
        self.commit(self.partition.decide_overdue(self.now_ms, self.rules))
        self.release_in_table(lambda _: True)

    def compact(self, number: int) -> None:
        """The log loses a batch, also one whose records somebody holds."""
        if number < len(self.spans):
            gone = self.spans.pop(number)
            self.visible -= set(range(gone.first, gone.last + 1))

    def release_in_table(self, which: Any) -> None:
        for offset, record in self.table.items():
            if record.kind == ACQUIRED and which(record):
                self.table[offset] = self.released(record)
        self.check_same()

    def check_same(self) -> None:
        partition = self.partition
        runs = list(partition.runs())
        flat = {offset: state for first, last, state in runs for offset in range(first, last + 1)}
        assert sorted(flat) == list(range(partition.start, partition.end))
        assert not runs or runs[0][2].kind != DONE
        assert all(before[2] != after[2] for before, after in itertools.pairwise(runs)), "they are one run"
        assert partition.end - max(partition.start, self.log_start) <= self.rules.locks_max
        for offset, record in self.table.items():
            state = flat.get(offset)
            if state is None:
                assert record.kind == (DONE if offset < partition.start else AVAILABLE)
            else:
                assert (record.kind, record.deliveries, record.holder) == state[:3]
                assert record.until_ms == state.until_ms
            assert record.deliveries <= self.rules.deliveries_max
        assert partition.done_count == sum(state.kind == DONE for state in flat.values())


words = st.sampled_from([GAP, ACCEPT, RELEASE, RELEASE, REJECT, RENEW])
sizes = st.lists(st.integers(1, 6) | st.integers(-3, -1), min_size=2, max_size=8)
# Beside them, a member acquires after each step: otherwise nearly all steps would find nothing that is acquired.
steps = st.one_of(
    st.tuples(st.just("acknowledge"), st.sampled_from(MEMBERS), st.integers(0, 11), st.lists(words, min_size=1)),
    st.tuples(st.just("acknowledge"), st.just(None), st.integers(0, 11), st.lists(words, min_size=1, max_size=3)),
    st.tuples(st.just("leave"), st.sampled_from(MEMBERS)),
    st.tuples(st.just("wait"), st.sampled_from([1, 40, 60, 100])),
    st.tuples(st.just("restart")),
    st.tuples(st.just("delete"), st.integers(0, 8)),
    st.tuples(st.just("compact"), st.integers(0, 7)),
)
wishes = st.builds(Wish, st.integers(0, 9), st.booleans(), st.integers(1, 5))
rounds = st.tuples(steps, st.sampled_from(MEMBERS), wishes)


@settings(max_examples=150)
@given(sizes=sizes, history=st.lists(rounds, min_size=5, max_size=20))
def test_it_is_a_table_with_a_line_for_each_record(sizes: list[int], history: list[Any]) -> None:
    world = World(spans_of(*sizes))
    for (step, *rest), who, wish in history:
        world.acquire(who, wish)
        if step == "acknowledge":
            member, at, said = rest
            first = world.partition.start + at
            # Nobody in particular is whoever holds the first record, and says something only about what it holds.
            holder = member or world.table.get(first, Record()).holder
            while member is None and said and world.table.get(first + len(said) - 1, Record()).holder != holder:
                said = said[:-1]
            if holder is not None and said:
                world.acknowledge(holder, Ack(first, first + len(said) - 1, said))
        elif step == "leave":
            world.leave(*rest)
        elif step == "wait":
            world.pass_time(*rest)
        elif step == "restart":
            world.restart()
        elif step == "compact":
            world.compact(*rest)
        else:
            world.log_start = min(world.log_start + rest[0], world.log_end)


def test_records_are_acquired_once_and_in_order() -> None:
    world = World(spans_of(3, 3))
    assert world.acquire("ada", replace_records(2)) == [0, 1, 2]
    assert world.acquire("bob", replace_records(2)) == [3, 4, 5]
    assert world.acquire("ada") == []


def test_a_strict_limit_divides_a_batch_and_the_rest_is_for_the_next() -> None:
    world = World(spans_of(5))
    strict = Wish(records_max=2, is_strict=True, batch_records=1)
    assert [world.acquire("ada", strict) for _ in range(3)] == [[0, 1], [2, 3], [4]]


def test_an_answer_is_divided_where_a_batch_of_the_log_ends() -> None:
    partition = SharePartition(0)
    got = partition.decide_acquire(spans_of(2, 2, 2, 2), 0, 0, Wish(100, False, 3), RULES).held
    assert [(batch.first, batch.last) for batch in got] == [(0, 3), (4, 7)]


def test_what_compaction_removes_while_a_member_holds_it_is_still_the_members() -> None:
    world = World(spans_of(2, 2, 2))
    assert world.acquire("ada", replace_records(4)) == [0, 1, 2, 3]
    world.compact(1)
    assert world.acknowledge("ada", Ack(0, 0, [RELEASE])) == 0
    assert world.acquire("bob") == [0, 4, 5]
    assert world.acknowledge("ada", Ack(1, 3, [ACCEPT])) == 0


def test_what_compaction_has_removed_between_two_batches_is_done() -> None:
    world = World(spans_of(2, 2, 2))
    world.compact(1)
    assert world.acquire("ada") == [0, 1, 4, 5]
    assert world.acknowledge("ada", Ack(0, 1, [ACCEPT])) == 0
    assert world.partition.start == 4


def test_records_before_those_that_were_read_are_not_passed_over() -> None:
    """The start may be set back while a member's request reads on from where it was."""
    partition = SharePartition(0)
    assert partition.decide_acquire(spans_of(2, 2, 2), 4, 0, ALL, RULES).changes == []
    assert partition.decide_acquire(spans_of(2, 2, 2), 0, 0, ALL, RULES).held == [ShareBatch(0, 5, ACQUIRED, 1)]


def test_what_is_released_comes_again_and_is_counted() -> None:
    world = World(spans_of(4))
    world.acquire("ada")
    assert world.acknowledge("ada", Ack(0, 3, [ACCEPT, RELEASE, REJECT, ACCEPT])) == 0
    assert world.partition.start == 1
    assert world.acquire("bob") == [1]
    assert world.table[1].deliveries == 2
    assert world.acknowledge("bob", Ack(1, 1, [ACCEPT])) == 0
    assert (world.partition.start, world.partition.end, world.partition.run_count) == (4, 4, 0)


def test_a_record_is_not_delivered_more_often_than_allowed_however_often_the_broker_restarts() -> None:
    world = World(spans_of(1))
    deliveries = 0
    while world.acquire("ada"):
        deliveries += 1
        world.restart()
    assert deliveries == RULES.deliveries_max
    assert world.partition.start == 1


def test_suspects_are_delivered_with_ever_fewer_others_and_at_last_alone() -> None:
    rules = ShareRules(deliveries_max=5, locks_max=100)
    world = World(spans_of(16), rules)
    got = []
    for _ in range(6):
        got.append(len(world.acquire("ada")))
        world.leave("ada")
    # Three whole deliveries, then one half; those are the last ones of some.
    assert got[:4] == [16, 16, 16, 8]
    assert got[4:] == [1, 1]


def test_nobody_acknowledges_what_another_holds_and_nothing_of_a_refused_request_counts() -> None:
    world = World(spans_of(2, 2))
    world.acquire("ada", replace_records(1))
    world.acquire("bob", replace_records(1))
    assert world.acknowledge("ada", Ack(0, 1, [ACCEPT]), Ack(2, 3, [ACCEPT])) == INVALID_RECORD_STATE
    assert world.table[0].kind == ACQUIRED
    assert world.acknowledge("ada", Ack(0, 9, [ACCEPT])) == INVALID_REQUEST


def test_a_renewed_lock_begins_again_unless_the_group_forbids_it() -> None:
    world = World(spans_of(1))
    world.acquire("ada")
    world.pass_time(99)
    world.acknowledge("ada", Ack(0, 0, [RENEW]))
    world.pass_time(99)
    assert world.table[0].holder == "ada"
    world.pass_time(1)
    assert world.table[0].kind == AVAILABLE
    world.acquire("ada")
    world.rules = replace(RULES, may_renew=False)
    with pytest.raises(Refused) as refused:
        world.partition.decide_acknowledge("ada", [Ack(0, 0, [RENEW])], world.rules)
    assert refused.value.error == INVALID_RECORD_STATE


def test_a_million_runs_take_less_than_40_mb() -> None:
    kinds, deliveries = [AVAILABLE, DONE] * 500_000, [1] * 1_000_000
    snapshot = {"firsts": list(range(1_000_000)), "kinds": kinds, "deliveries": deliveries, "end": 1_000_000}
    tracemalloc.start()
    partition = SharePartition.restore(snapshot)
    size_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert partition.run_count == 1_000_000
    assert size_bytes < 40_000_000


def test_a_million_records_in_flight_are_a_few_runs() -> None:
    rules = ShareRules(locks_max=1_000_000)
    partition = SharePartition(0)
    some = partition.decide_acquire([LogSpan(0, 10**6 - 1, True)], 0, 0, Wish(10**6, False, 10**6), rules)
    partition.apply(some.changes)
    partition.hold(some.held, "ada", 1)
    assert partition.run_count == 1
    partition.apply(partition.decide_acknowledge("ada", [Ack(5, 10**6 - 2, [ACCEPT])], rules).changes)
    assert partition.run_count == 3


@pytest.mark.parametrize(
    "acks",
    [
        [Ack(3, 2, [ACCEPT])],
        [Ack(4, 6, [ACCEPT]), Ack(3, 9, [ACCEPT])],
        [Ack(0, 2, [])],
        [Ack(0, 2, [ACCEPT, ACCEPT])],
        [Ack(0, 0, [5])],
        [Ack(0, 0, [-1])],
        [Ack(0, 0, [RENEW])],
        [Ack(0, WORDS_MAX, [ACCEPT] * (WORDS_MAX + 1))],
    ],
)
def test_acknowledgements_that_make_no_sense_are_refused(acks: list[Ack]) -> None:
    with pytest.raises(Refused) as refused:
        list(check_acks(acks, renews=False, word_max=RENEW))
    assert refused.value.error == INVALID_REQUEST


def test_no_record_gets_two_words_in_one_request() -> None:
    """What the first word gives back, the second one no longer finds."""
    partition = SharePartition(0)
    partition.apply([ShareBatch(0, 9, ACQUIRED, 1)])
    partition.hold([ShareBatch(0, 9, ACQUIRED, 1)], "ada", 1)
    acks = [Ack(0, 3, [ACCEPT]), *[Ack(3, 3, [RELEASE])] * 50_000]
    with pytest.raises(Refused) as refused:
        partition.decide_acknowledge("ada", check_acks(acks, renews=False, word_max=RENEW), RULES)
    assert refused.value.error == INVALID_RECORD_STATE


def test_a_group_whose_window_became_smaller_looks_for_nothing_behind_it() -> None:
    """Its members would look for those records again and again, and get none."""
    partition = SharePartition(0)
    partition.apply([ShareBatch(0, 149, ACQUIRED, 1), ShareBatch(150, 199, AVAILABLE, 1)])
    assert partition.next_offset(0, ShareRules(locks_max=200)) == 150
    assert partition.next_offset(0, ShareRules(locks_max=100)) is None


def test_words_about_records_that_are_done_are_not_looked_at() -> None:
    partition = SharePartition(50_000)
    partition.apply([ShareBatch(50_000, 50_009, ACQUIRED, 1)])
    partition.hold([ShareBatch(50_000, 50_009, ACQUIRED, 1)], "ada", 1)
    acks = [Ack(0, 50_009, [ACCEPT, RELEASE] * 25_005)]
    assert steps_of(lambda: partition.decide_acknowledge("ada", acks, RULES)) < 10_000


@pytest.mark.parametrize("batch", [ShareBatch(1, 2, DONE, 0), ShareBatch(0, -1, DONE, 0), ShareBatch(0, 0, 7, 0)])
def test_an_entry_that_would_leave_a_gap_is_damage(batch: ShareBatch) -> None:
    with pytest.raises(ValueError, match="cannot follow"):
        SharePartition(0).check([batch])


def replace_records(count: int) -> Wish:
    return ALL._replace(records_max=count)
