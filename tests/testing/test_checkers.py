"""What the checkers of histories promise: each anomaly is found, under its name, and a history without one passes."""

import pytest

from semel.testing.checkers import (
    Event,
    Seen,
    Truth,
    broken_transactions,
    disorder,
    duplicates,
    lost_commits,
    lost_writes,
    shared_ownership,
    unfaithful_reads,
    zombies,
)

PLACE = ("payments", 0)


def stored(*values: str) -> Truth:
    seen = [Seen(offset, value) for offset, value in enumerate(values)]
    return Truth({PLACE: seen}, {PLACE: seen})


def event(what: str, at_us: int = 0, **particulars: object) -> Event:
    return Event(at_us, "somebody", what, {"topic": "payments", "partition": 0, **particulars})


def test_a_history_in_which_all_is_well_passes() -> None:
    truth = stored("till/0", "till/1", "sale#1/0")
    history = [
        event("acked", offset=0, values=["till/0", "till/1"]),
        event("read", isolation=1, from_offset=0, next_offset=2, records=[(0, "till/0"), (1, "till/1")]),
        event("part of", transaction="sale#1", values=["sale#1/0"]),
        event("outcome", transaction="sale#1", outcome="committed"),
    ]
    found = [*lost_writes(history, truth), *duplicates(truth), *disorder(truth, dense={"payments"})]
    assert [*found, *unfaithful_reads(history, truth), *broken_transactions(history, truth)] == []


@pytest.mark.parametrize(
    ("values", "anomaly"),
    [
        (["till/1"], "lost write: somebody was told till/0 is at 0, there is till/1"),
        ([], "lost write: somebody was told till/0 is at 0, there is None"),
    ],
)
def test_what_was_acknowledged_and_is_gone_is_lost(values: list[str], anomaly: str) -> None:
    assert list(lost_writes([event("acked", offset=0, values=["till/0"])], stored(*values))) == [anomaly]


def test_what_stands_there_twice_or_in_another_order_is_named() -> None:
    assert list(duplicates(stored("till/0", "till/0"))) == ["duplicate: till/0 stands 2 times in ('payments', 0)"]
    [anomaly] = disorder(stored("till/0", "till/2"), dense={"payments"})
    assert anomaly.startswith("non-monotonic send: till/2 at 1 ")
    assert list(disorder(stored("till/0", "till/2"), dense=())) == []


@pytest.mark.parametrize(
    ("outcome", "values", "anomaly"),
    [
        ("committed", ["sale#1/0"], "lost write"),
        ("aborted", ["sale#1/0", "sale#1/1"], "aborted read"),
        ("unknown", ["sale#1/1"], "torn transaction"),
    ],
)
def test_a_transaction_that_is_not_seen_as_it_ended_is_named(outcome: str, values: list[str], anomaly: str) -> None:
    history = [
        event("part of", transaction="sale#1", values=["sale#1/0", "sale#1/1"]),
        event("outcome", transaction="sale#1", outcome=outcome),
    ]
    [found] = broken_transactions(history, stored(*values))
    assert found.startswith(f"{anomaly}: ")


def test_a_write_of_a_fenced_owner_a_commit_that_is_gone_and_two_owners_are_named() -> None:
    fenced = [
        event("claimed", 5, owner=("sale", 1000, 1)),
        event("acked", 9, offset=0, values=["till/0"], owner=("sale", 1000, 0), sent_us=7),
    ]
    assert [found.partition(":")[0] for found in zombies(fenced)] == ["zombie write"]
    commits = [
        event("commit sent", group="billing", offset=3),
        event("commit answered", group="billing", offset=3, error=0),
        event("offsets seen", group="billing", offsets=[2]),
    ]
    assert [found.partition(":")[0] for found in lost_commits(commits, "billing")] == ["lost commit"]
    shared = [event("assigned", group="billing", generation=1, member=name, partitions=[0]) for name in ("a", "b")]
    assert [found.partition(":")[0] for found in shared_ownership(shared)] == ["two owners"]
