"""What the checkers of histories promise: each anomaly is found, under its name, and a history without one passes.

Every anomaly is planted into a history that is sound, and each planted one stands beside the sound one, so that a
checker which finds something in every history fails as well as one which finds nothing.
"""

import inspect
import re
from collections.abc import Callable, Iterable

import pytest

from semel.testing import checkers
from semel.testing.checkers import (
    Event,
    Place,
    Seen,
    Truth,
    broken_transactions,
    dirty_offsets,
    disorder,
    duplicates,
    lost_commits,
    lost_writes,
    shared_ownership,
    stuck,
    unfaithful_copies,
    unfaithful_reads,
    zombies,
)

PLACE = ("payments", 0)
COPIES = ("copies", 0)
Found = Callable[[], Iterable[str]]


def stored(*values: str, aborted: Iterable[str] = ()) -> Truth:
    """A log with these records; the aborted ones are not among the committed."""
    seen = [Seen(offset, value) for offset, value in enumerate(values)]
    return Truth({PLACE: seen}, {PLACE: [record for record in seen if record.value not in aborted]})


def copied(*origins: str) -> Truth:
    """A group has come to offset 2 of three payments, and these are the copies."""
    payments = [Seen(offset, f"till/{offset}") for offset in range(3)]
    copies = [Seen(offset, f"copier#1/{offset}", origin) for offset, origin in enumerate(origins)]
    committed: dict[Place, list[Seen]] = {PLACE: payments, COPIES: copies}
    return Truth(committed, committed, {("copier", PLACE): 2})


def event(what: str, at_us: int = 0, **particulars: object) -> Event:
    return Event(at_us, "somebody", what, {"topic": "payments", "partition": 0, **particulars})


def acked(*values: str) -> list[Event]:
    return [event("acked", offset=0, values=list(values))]


def read(*records: tuple[int, str], until: int, isolation: int = 0) -> list[Event]:
    """A consumer read from the beginning to before `until`, and saw these."""
    return [event("read", isolation=isolation, from_offset=0, next_offset=until, records=list(records))]


def sale(outcome: str) -> list[Event]:
    """A transaction of two records, and how it ended as far as its producer knows."""
    return [
        event("part of", transaction="sale#1", values=["sale#1/0", "sale#1/1"]),
        event("outcome", transaction="sale#1", outcome=outcome),
    ]


def fenced(epoch: int, sent_us: int) -> list[Event]:
    """The owner in epoch 1 learns of itself at 5, and an owner in `epoch` is answered."""
    return [
        event("claimed", 5, owner=("sale", 1000, 1)),
        event("acked", 9, offset=0, values=["till/0"], owner=("sale", 1000, epoch), sent_us=sent_us),
    ]


def moved(outcome: str, *shown: tuple[int, int, int]) -> list[Event]:
    """A transaction moves a group to offset 2, another one to 3; each `shown` is when, what, and asked when."""
    return [
        event("offsets of", transaction="copy#1", group="copier", offsets={0: 2}),
        event("offsets of", transaction="copy#2", group="copier", offsets={0: 3}),
        event("outcome", transaction="copy#1", outcome="committed"),
        event("outcome", transaction="copy#2", outcome=outcome),
        *(
            event("offsets seen", at_us, group="copier", offsets=[offset], asked_us=asked_us)
            for at_us, offset, asked_us in shown
        ),
    ]


def committed_then_shown(offset: int, error: int = 0) -> list[Event]:
    """A client commits offset 3, and is shown another one or the same."""
    return [
        event("commit sent", group="billing", offset=3),
        event("commit answered", group="billing", offset=3, error=error),
        event("offsets seen", group="billing", offsets=[offset]),
    ]


def assigned(second_generation: int, *between: Event) -> list[Event]:
    """Two members are given the same partition."""
    first = event("assigned", group="billing", generation=1, member="a", partitions=[0])
    return [
        first,
        *between,
        event("assigned", group="billing", generation=second_generation, member="b", partitions=[0]),
    ]


TILL = "till/0", "till/1"
SALE = "sale#1/0", "sale#1/1"
SOUND: list[tuple[str, Found]] = [
    ("records that were acknowledged", lambda: lost_writes(acked(*TILL), stored(*TILL))),
    ("records of a deleted topic", lambda: lost_writes(acked(*TILL), Truth())),
    ("each record once", lambda: duplicates(stored(*TILL))),
    ("records in their order", lambda: disorder(stored(*TILL), dense={"payments"})),
    ("a sender that uses other partitions too", lambda: disorder(stored("till/0", "till/2"), dense=())),
    ("a whole read", lambda: unfaithful_reads(read((0, "till/0"), (1, "till/1"), until=2), stored(*TILL))),
    (
        "a read without what was aborted",
        lambda: unfaithful_reads(
            read((1, "till/0"), until=2, isolation=1), stored("sale#1/0", "till/0", aborted=["sale#1/0"])
        ),
    ),
    ("a stable end at the end", lambda: stuck(Truth(ends={PLACE: (7, 7)}))),
    ("a commit that is whole", lambda: broken_transactions(sale("committed"), stored(*SALE))),
    ("an abort that is not seen", lambda: broken_transactions(sale("aborted"), stored(*SALE, aborted=SALE))),
    ("an unknown end that is whole", lambda: broken_transactions(sale("unknown"), stored(*SALE))),
    ("an owner in its own epoch", lambda: zombies(fenced(epoch=1, sent_us=7))),
    ("a write from before the fence", lambda: zombies(fenced(epoch=0, sent_us=3))),
    ("copies as far as the group has come", lambda: unfaithful_copies(copied(*TILL), "copier", "payments", "copies")),
    ("offsets that move on", lambda: dirty_offsets(moved("committed", (1, 2, 0), (5, 3, 4)), "copier")),
    ("an answer that took its time", lambda: dirty_offsets(moved("committed", (5, 3, 4), (6, 2, 4)), "copier")),
    ("a commit that is shown", lambda: lost_commits(committed_then_shown(3), "billing")),
    ("a commit that was refused", lambda: lost_commits(committed_then_shown(-1, error=25), "billing")),
    ("owners of two generations", lambda: shared_ownership(assigned(2))),
    ("a group that was empty between", lambda: shared_ownership(assigned(1, event("group_emptied")))),
]
PLANTED: list[tuple[str, Found]] = [
    ("lost write", lambda: lost_writes(acked("till/0"), stored("till/1"))),
    ("lost write", lambda: lost_writes(acked("till/0"), stored())),
    ("duplicate", lambda: duplicates(stored("till/0", "till/0"))),
    ("non-monotonic send", lambda: disorder(stored("till/0", "till/2"), dense={"payments"})),
    ("non-monotonic send", lambda: disorder(stored("till/0", "till/2", "till/1"), dense=())),
    (
        "non-monotonic poll",
        lambda: unfaithful_reads(read((1, "till/1"), (0, "till/0"), until=2), stored(*TILL)),
    ),
    (
        "lost write",
        lambda: unfaithful_reads(read((0, "till/0"), (1, "till/9"), until=2), stored(*TILL)),
    ),
    (
        "aborted read",
        lambda: unfaithful_reads(
            read((0, "sale#1/0"), (1, "till/0"), until=2, isolation=1),
            stored("sale#1/0", "till/0", aborted=["sale#1/0"]),
        ),
    ),
    ("unseen", lambda: unfaithful_reads(read((1, "till/1"), until=2), stored(*TILL))),
    ("stuck last stable offset", lambda: stuck(Truth(ends={PLACE: (6, 7)}))),
    ("lost write", lambda: broken_transactions(sale("committed"), stored("sale#1/0"))),
    ("aborted read", lambda: broken_transactions(sale("aborted"), stored(*SALE))),
    ("aborted read", lambda: broken_transactions(sale("refused"), stored("sale#1/0"))),
    ("aborted read", lambda: broken_transactions(sale("aborted")[:1], stored("sale#1/0"))),
    ("torn transaction", lambda: broken_transactions(sale("unknown"), stored("sale#1/1"))),
    ("zombie write", lambda: zombies(fenced(epoch=0, sent_us=7))),
    ("lost write", lambda: unfaithful_copies(copied("till/0"), "copier", "payments", "copies")),
    ("duplicate", lambda: unfaithful_copies(copied(*TILL, "till/1"), "copier", "payments", "copies")),
    ("non-monotonic send", lambda: unfaithful_copies(copied("till/1", "till/0"), "copier", "payments", "copies")),
    ("dirty offsets", lambda: dirty_offsets(moved("aborted", (5, 3, 4)), "copier")),
    ("non-monotonic offsets", lambda: dirty_offsets(moved("committed", (3, 3, 2), (5, 2, 4)), "copier")),
    ("lost commit", lambda: lost_commits(committed_then_shown(2), "billing")),
    ("two owners", lambda: shared_ownership(assigned(1))),
]


@pytest.mark.parametrize("found", [found for _, found in SOUND], ids=[name for name, _ in SOUND])
def test_a_history_in_which_all_is_well_passes(found: Found) -> None:
    assert list(found()) == []


@pytest.mark.parametrize(("anomaly", "found"), PLANTED)
def test_a_planted_anomaly_is_found_once_and_under_its_name(anomaly: str, found: Found) -> None:
    assert [line.partition(":")[0] for line in found()] == [anomaly]


def test_every_name_of_an_anomaly_is_planted_and_every_checker_is_tried() -> None:
    source = inspect.getsource(checkers)
    names = set(re.findall(r'yield f"([a-z -]+): ', source)) | set(re.findall(r'"([a-z -]+)" (?:if|else)', source))
    names |= set(re.findall(r'else "([a-z -]+)"', source))
    assert names == {anomaly for anomaly, _ in PLANTED}
    all_of_them = {name for name, value in vars(checkers).items() if callable(value) and "yield f" in _source_of(value)}
    tried = {name for name in all_of_them if any(name in inspect.getsource(found) for _, found in PLANTED)}
    assert tried == all_of_them


def _source_of(value: object) -> str:
    return inspect.getsource(value) if inspect.isfunction(value) else ""


def test_an_anomaly_names_who_saw_what_and_where() -> None:
    [line] = lost_writes(acked("till/0"), stored("till/1"))
    assert line == "lost write: somebody was told till/0 is at 0, there is till/1"
    [line] = duplicates(stored("till/0", "till/0"))
    assert line == "duplicate: till/0 stands 2 times in ('payments', 0)"
