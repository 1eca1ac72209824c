"""Transactions against a naive model: everything that ever happened, in a list, looked through from the beginning.

The model keeps a history for each transactional id and answers every question by reading it. It knows nothing of
producers by number, of heaps or of tables; whoever asks is known by what it was told when it last heard something.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import ParamSpec, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from semel.log.core.entries import PartitionName, TransactionalIdClaimed, TransactionEnded
from semel.log.core.transaction_rules import EPOCH_GIVEN_MAX, TransactionBounds, TransactionRules
from semel.log.core.transactions import Transactions
from semel.wire import refusals
from semel.wire.refusals import Refused

NAMES = ("a", "b")
PARTITIONS = (PartitionName(1, 0), PartitionName(1, 1), PartitionName(2, 0))
TIMEOUTS_MS = (10, 25)

P = ParamSpec("P")
T = TypeVar("T")


def attempt(decide: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T | Refused:
    """What is decided, or why nothing is."""
    try:
        return decide(*arguments, **options)
    except Refused as refused:
        return refused


@dataclass
class Incarnation:
    """What an owner of an id is told: its (producer id, epoch)."""

    identity: tuple[int, int]
    # What whoever was told of this had before, where it may ask again with it.
    asked_with: tuple[int, int] | None = None
    # Whether anybody ever hears of it.
    told: bool = True


@dataclass
class History:
    """All that ever happened to one transactional id."""

    incarnations: list[Incarnation] = field(default_factory=list)
    # ("claim",), ("join", partition, at), ("end", committed, version, epoch before)
    events: list[tuple[object, ...]] = field(default_factory=list)
    timeout_ms: int = 0

    @property
    def current(self) -> tuple[int, int]:
        return self.incarnations[-1].identity

    @property
    def open_partitions(self) -> list[object]:
        joined: list[object] = []
        for event in self.events:
            if event[0] == "join":
                joined += [event[1]] if event[1] not in joined else []
            else:
                joined = []
        return joined

    @property
    def began_at_ms(self) -> int:
        began: object = None
        for event in self.events:
            began = (event[2] if began is None else began) if event[0] == "join" else None
        assert isinstance(began, int)
        return began

    @property
    def last(self) -> tuple[object, ...]:
        return next(event for event in reversed(self.events) if event[0] != "join")


class TransactionsMachine(RuleBasedStateMachine):
    """Requests of owners and of zombies, in both versions, with repetitions, timeouts, restarts and a moving clock."""

    @initialize(first_epoch=st.sampled_from((0, EPOCH_GIVEN_MAX - 2)))
    def begin(self, first_epoch: int) -> None:
        self.bounds = TransactionBounds(timeout_ms_max=100)
        self.real = Transactions()
        self.rules = TransactionRules(self.real, self.bounds)
        self.histories: dict[str, History] = {}
        self.now_ms = 1_000
        self.ids = count(1)
        if first_epoch > 0:
            # One whose epochs are nearly used up.
            identity = (self.new_id(), first_epoch)
            self.apply(TransactionalIdClaimed("a", *identity, -1, -1, TIMEOUTS_MS[0], self.now_ms))
            self.histories["a"] = History([Incarnation(identity)], [("claim",)], TIMEOUTS_MS[0])

    def new_id(self) -> int:
        return next(self.ids)

    # -- claiming

    @rule(name=st.sampled_from(NAMES), timeout_ms=st.sampled_from(TIMEOUTS_MS))
    def a_new_process_claims(self, name: str, timeout_ms: int) -> None:
        claim = self.rules.decide_init(name, timeout_ms, None, self.new_id, self.now_ms)
        history = self.histories.get(name)
        if history is None:
            self.histories[name] = history = History()
            identity = (claim.producer_id, claim.producer_epoch)
            assert claim.producer_epoch == 0
        else:
            identity = self.following(history, claim.producer_id)
        ends = [entry for entry in claim.entries if isinstance(entry, TransactionEnded)]
        assert [list(end.partitions) for end in ends] == ([history.open_partitions] if history.open_partitions else [])
        self.apply(*claim.entries)
        assert (claim.producer_id, claim.producer_epoch) == identity
        history.incarnations.append(Incarnation(identity))
        history.events.append(("claim",))
        history.timeout_ms = timeout_ms

    @precondition(lambda self: self.histories)
    @rule(data=st.data(), timeout_ms=st.sampled_from(TIMEOUTS_MS))
    def somebody_claims_with_what_it_has(self, data: st.DataObject, timeout_ms: int) -> None:
        name, history, identity = self.somebody(data)
        last = history.incarnations[-1]
        claim = attempt(self.rules.decide_init, name, timeout_ms, identity, self.new_id, self.now_ms)
        if isinstance(claim, Refused):
            assert claim.error == refusals.PRODUCER_FENCED
            assert identity != history.current
            assert identity != last.asked_with or history.open_partitions, "a retry gets its answer"
            return
        if identity == history.current:
            expected = self.following(history, claim.producer_id)
            self.apply(*claim.entries)
            history.incarnations.append(Incarnation(expected, identity))
            history.events.append(("claim",))
            history.timeout_ms = timeout_ms
        else:
            assert identity == last.asked_with
            assert claim.entries == ()
        assert (claim.producer_id, claim.producer_epoch) == history.current

    # -- growing

    @precondition(lambda self: self.histories)
    @rule(data=st.data(), partition=st.sampled_from(PARTITIONS), how=st.sampled_from(("announce", "batch", "joins")))
    def somebody_sends(self, data: st.DataObject, partition: PartitionName, how: str) -> None:
        name, history, identity = self.somebody(data)
        allowed = identity == history.current and (how != "batch" or partition in history.open_partitions)
        try:
            if how == "announce":
                grew = self.rules.decide_add_partitions(name, *identity, [partition], self.now_ms)
                if grew is not None:
                    self.apply(grew)
            else:
                self.rules.check_batch(*identity, partition, joins=how == "joins")
                self.real.apply_batch(identity[0], partition, self.now_ms)
        except Refused:
            assert not allowed
        else:
            assert allowed
            history.events.append(("join", partition, self.now_ms))

    # -- ending

    @precondition(lambda self: self.histories)
    @rule(data=st.data(), committed=st.booleans(), version=st.sampled_from((1, 2)))
    def somebody_ends(self, data: st.DataObject, committed: bool, version: int) -> None:
        name, history, identity = self.somebody(data)
        opened = history.open_partitions
        decide = partial(self.rules.decide_end, raises_epoch=version == 2)
        end = attempt(decide, name, *identity, committed, self.new_id, self.now_ms)
        if isinstance(end, Refused):
            assert not (opened and identity == history.current), "an owner may always end what is open"
            assert end.error != refusals.PRODUCER_FENCED or identity != history.current
            return
        if end.entry is None:
            self.assert_repeats(history, identity, committed, version)
            assert (end.producer_id, end.producer_epoch) == history.current
            return
        assert identity == history.current, "only who has the current epoch ends anything"
        assert list(end.entry.partitions) == opened
        assert opened or (version == 2 and not committed)
        self.apply(end.entry)
        history.events.append(("end", committed, version, identity))
        if version == 2:
            history.incarnations.append(Incarnation(self.following(history, end.producer_id), identity))
        assert (end.producer_id, end.producer_epoch) == history.current

    def assert_repeats(self, history: History, identity: tuple[int, int], committed: bool, version: int) -> None:
        assert not history.open_partitions
        kind, *rest = history.last
        assert kind == "end"
        assert rest[0] == committed
        if version == 2:
            assert identity == history.incarnations[-1].asked_with
        else:
            assert identity == history.current

    # -- time

    @rule(milliseconds=st.integers(0, 30))
    def time_passes(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        late = {
            name
            for name, history in self.histories.items()
            if history.open_partitions and history.began_at_ms + history.timeout_ms <= self.now_ms
        }
        overdue = [producer_id for producer_id, deadline_ms in self.real.deadlines() if deadline_ms <= self.now_ms]
        ends = [self.rules.decide_timeout(producer_id, self.now_ms) for producer_id in overdue]
        assert {self.owner_of(end.producer_id) for end in ends} == late
        for end in ends:
            history = self.histories[self.owner_of(end.producer_id)]
            assert list(end.partitions) == history.open_partitions
            assert not end.committed
            self.apply(end)
            producer_id, epoch = history.current
            is_last = epoch == EPOCH_GIVEN_MAX
            after = Incarnation((producer_id, epoch + 1), None if is_last else (producer_id, epoch), told=not is_last)
            history.incarnations.append(after)
            history.events.append(("end", False, 0, (producer_id, epoch)))

    @rule()
    def the_process_starts_again(self) -> None:
        kept = json.dumps(self.real.snapshot())
        self.real = Transactions()
        self.rules = TransactionRules(self.real, self.bounds)
        self.real.restore(json.loads(kept))

    # -- what always holds

    @invariant()
    def what_is_shown_is_what_happened(self) -> None:
        if not hasattr(self, "histories"):
            return
        for name, history in self.histories.items():
            described = self.real.described(name)
            assert described is not None
            assert (described.owner.producer_id, described.owner.producer_epoch) == history.current
            assert list(described.partitions) == history.open_partitions
            assert self.real.is_open(history.current[0]) == bool(history.open_partitions)

    @invariant()
    def whoever_owns_an_id_only_ever_gets_a_later_identity(self) -> None:
        for history in getattr(self, "histories", {}).values():
            identities = [incarnation.identity for incarnation in history.incarnations]
            assert identities == sorted(set(identities))

    @invariant()
    def every_open_transaction_has_a_deadline(self) -> None:
        if not hasattr(self, "histories"):
            return
        deadlines = [
            history.began_at_ms + history.timeout_ms for history in self.histories.values() if history.open_partitions
        ]
        assert sorted(deadline_ms for _, deadline_ms in self.real.deadlines()) == sorted(deadlines)

    # -- how the model knows

    def somebody(self, data: st.DataObject) -> tuple[str, History, tuple[int, int]]:
        """An owner, or a zombie, of some id; half of the time it is the present one."""
        name = data.draw(st.sampled_from(sorted(self.histories)))
        history = self.histories[name]
        known = [incarnation.identity for incarnation in history.incarnations if incarnation.told]
        return name, history, data.draw(st.sampled_from([known[-1], *known]))

    def following(self, history: History, new_producer_id: int) -> tuple[int, int]:
        """What comes after the current identity."""
        producer_id, epoch = history.current
        if epoch + 1 > EPOCH_GIVEN_MAX:
            assert new_producer_id > producer_id
            return new_producer_id, 0
        return producer_id, epoch + 1

    def owner_of(self, producer_id: int) -> str:
        return next(name for name, history in self.histories.items() if history.current[0] == producer_id)

    def apply(self, *entries: object) -> None:
        for entry in entries:
            self.real.check(entry)  # type: ignore[arg-type]
            self.real.apply(entry)  # type: ignore[arg-type]


TransactionsMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestTransactions = TransactionsMachine.TestCase
