"""Groups and their offsets against a naive model: the list of all that was ever asked for."""

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from test_offsets import ORDERS, OTHER_PRODUCER, PAYMENTS, PRODUCER, RETENTION_MS, end, expire

from log_contents import snapshot_of
from semel.log.core.entries import (
    GroupDeleted,
    OffsetsForgotten,
    PartitionName,
    StoredOffset,
    TopicDeleted,
    TransactionalOffsets,
)
from semel.log.core.groups.groups import Groups
from semel.log.core.groups.offsets import DEFAULT_RETENTION, CommittedOffset
from semel.wire.steps import finish

NAMES = st.sampled_from(["readers", "writers"])
PRODUCERS = st.sampled_from([PRODUCER, OTHER_PRODUCER])
NUMBERS = st.sampled_from([ORDERS, PAYMENTS])
OFFSETS = st.lists(
    st.builds(StoredOffset, NUMBERS, st.integers(0, 2), st.integers(0, 99), st.integers(-1, 3), st.text(max_size=3)),
    min_size=1,
    max_size=4,
)


def by_name(snapshot: dict[str, Any]) -> dict[str, str]:
    return {kept["name"]: json.dumps(kept) for kept in snapshot["groups"]}


class GroupsAgainstModel(RuleBasedStateMachine):
    """The model is the list of all that was ever asked for; what counts is found by going through it."""

    def __init__(self) -> None:
        super().__init__()
        self.groups = Groups()
        self.now_ms = 0
        # In the order in which they were made, those of transactions that were not committed yet among them.
        self.wishes: list[dict[str, Any]] = []
        # The last snapshot that was begun, of which groups, and what they were at that moment, by their names.
        self.begun = self.groups
        self.snapshot: dict[str, Any] = {"groups": []}
        self.held: dict[str, str] = {}

    def _wish(self, group: str, producer: int | None, offsets: list[StoredOffset]) -> None:
        for stored in offsets:
            self.wishes.append(
                {
                    "group": group,
                    "producer": producer,
                    "offset": stored,
                    "at_ms": self.now_ms,
                    "pending": producer is not None,
                }
            )

    def _drop(self, *, group: str | None = None, number: int | None = None, partition: int | None = None) -> None:
        self.wishes = [
            wish
            for wish in self.wishes
            if (group not in (None, wish["group"]))
            or (number not in (None, wish["offset"].number))
            or (partition not in (None, wish["offset"].partition))
        ]

    @rule(group=NAMES, offsets=OFFSETS)
    def commit(self, group: str, offsets: list[StoredOffset]) -> None:
        self.groups.apply(self.groups.decide_commit(group, offsets, self.now_ms, retention_ms=DEFAULT_RETENTION))
        self._wish(group, None, offsets)

    @rule(group=NAMES, producer=PRODUCERS, offsets=OFFSETS)
    def commit_in_transaction(self, group: str, producer: int, offsets: list[StoredOffset]) -> None:
        self.groups.apply(TransactionalOffsets(producer, 0, group, tuple(offsets), self.now_ms))
        self._wish(group, producer, offsets)

    @rule(producer=PRODUCERS, committed=st.booleans())
    def end(self, producer: int, committed: bool) -> None:
        end(self.groups, committed=committed, producer_id=producer, names=("readers", "writers", "none"))
        ended = [wish for wish in self.wishes if wish["pending"] and wish["producer"] == producer]
        if committed:
            for wish in ended:
                wish["pending"] = False
        else:
            self.wishes = [wish for wish in self.wishes if wish not in ended]

    @rule(group=NAMES, number=NUMBERS, partition=st.integers(0, 2))
    def forget(self, group: str, number: int, partition: int) -> None:
        self.groups.apply(OffsetsForgotten(group, (PartitionName(number, partition),)))
        self._drop(group=group, number=number, partition=partition)

    @rule(number=NUMBERS)
    def delete_topic(self, number: int) -> None:
        self.groups.apply(TopicDeleted(number, 0, 0))
        self._drop(number=number)

    @rule(group=NAMES)
    def delete_group(self, group: str) -> None:
        self.groups.apply(GroupDeleted(group))
        self._drop(group=group)

    @rule()
    def take_snapshot(self) -> None:
        self.finish_snapshot()
        self.held = by_name(snapshot_of(self.groups))
        self.begun = self.groups
        self.snapshot = self.groups.begin_snapshot()

    @rule()
    def finish_snapshot(self) -> None:
        finish(self.begun.take_all())
        assert by_name(self.snapshot) == self.held

    @rule()
    def restart(self) -> None:
        self.take_snapshot()
        self.finish_snapshot()
        self.groups = Groups()
        self.groups.restore(json.loads(json.dumps(self.snapshot)))

    @rule(later_ms=st.integers(1, RETENTION_MS))
    def time_passes(self, later_ms: int) -> None:
        self.now_ms += later_ms
        pending = {(wish["group"], *wish["offset"][:2]) for wish in self.wishes if wish["pending"]}
        old = [key for key, wish in self._counting().items() if self.now_ms - wish["at_ms"] >= RETENTION_MS]
        expire(self.groups, self.now_ms)
        for group, number, partition in set(old) - pending:
            self._drop(group=group, number=number, partition=partition)
        assert {group.name for group in self.groups} == {wish["group"] for wish in self.wishes}

    def _counting(self) -> dict[tuple[str, int, int], dict[str, Any]]:
        """What counts: of each partition the last wish that does not wait."""
        return {(wish["group"], *wish["offset"][:2]): wish for wish in self.wishes if not wish["pending"]}

    @invariant()
    def what_counts_is_what_was_wished_for_last(self) -> None:
        for name in ("readers", "writers"):
            expected = {key[1:]: wish for key, wish in self._counting().items() if key[0] == name}
            group = self.groups.named(name)
            found: dict[PartitionName, CommittedOffset] = {} if group is None else dict(group.offsets.committed)
            assert {tuple(key): value[:4] for key, value in found.items()} == {
                key: (*wish["offset"][2:], wish["at_ms"]) for key, wish in expected.items()
            }

    @invariant()
    def what_waits_is_known(self) -> None:
        waiting = {(wish["group"], *wish["offset"][:2]) for wish in self.wishes if wish["pending"]}
        for group in self.groups:
            for number in (ORDERS, PAYMENTS):
                for partition in range(3):
                    expected = (group.name, number, partition) in waiting
                    assert group.offsets.is_pending(PartitionName(number, partition)) == expected

    @invariant()
    def a_snapshot_stays_what_it_was(self) -> None:
        assert by_name(self.snapshot).items() <= self.held.items()

    @invariant()
    def the_count_is_right(self) -> None:
        pending = {(wish["producer"], wish["group"], *wish["offset"][:2]) for wish in self.wishes if wish["pending"]}
        assert self.groups.offset_count == len(self._counting()) + len(pending)


TestGroupsAgainstModel = GroupsAgainstModel.TestCase
TestGroupsAgainstModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
