"""A member of a share group, request by request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from asking import Asker, at
from semel.wire.versions import (
    INCREMENTAL_ALTER_CONFIGS,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    SHARE_GROUP_HEARTBEAT,
)

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
GROUP = 32


def configure(ask: Asker, group: str = "workers", **configs: str) -> None:
    """Set configurations of a group; `auto_offset_reset` stands for `share.auto.offset.reset`."""
    changes = [
        {"name": f"share.{name.replace('_', '.')}", "config_operation": 0, "value": value}
        for name, value in configs.items()
    ]
    resource = {"resource_type": GROUP, "resource_name": group, "configs": changes}
    (answer,) = ask(INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False).responses
    assert answer.error_code == 0, answer.error_message


class Sharer:
    """One member, which reads one topic."""

    def __init__(self, ask: Asker, topic_id: bytes, member_id: str = "ada", group: str = "workers") -> None:
        self.ask = ask
        self.topic_id = topic_id
        self.member_id = member_id
        self.group = group
        self.epoch = 0

    def beat(self, epoch: int = 0, *names: str) -> Any:
        said = {"rack_id": None, "subscribed_topic_names": names or None}
        return self.ask(
            SHARE_GROUP_HEARTBEAT, group_id=self.group, member_id=self.member_id, member_epoch=epoch, **said
        )

    def fetch(self, *, acks: Iterable[tuple[int, int, list[int]]] = (), **options: Any) -> Any:
        """The whole answer."""
        return self.fetch_later(acks=acks, **options)()

    def fetch_later(self, *, acks: Iterable[tuple[int, int, list[int]]] = (), version: int = 2, **options: Any) -> Any:
        fields: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": self.epoch,
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1_000_000,
            "max_records": 500,
            "batch_size": 500,
            "share_acquire_mode": 0,
            "is_renew_ack": False,
            "topics": self._topics(acks, {"partition_max_bytes": 0}),
            "forgotten_topics_data": [],
            **options,
        }
        self.epoch = fields["share_session_epoch"] + 1
        return self.ask.ask_later(SHARE_FETCH, version, **fields)

    def got(self, **options: Any) -> list[tuple[int, int, int]]:
        """What it acquires: the first and the last offset of each range, and how often that was delivered."""
        answer = self.fetch(**options)
        assert answer.error_code == 0, answer.error_message
        return [
            (batch.first_offset, batch.last_offset, batch.delivery_count)
            for topic in answer.responses
            for partition in topic.partitions
            for batch in partition.acquired_records
        ]

    def acknowledge(self, *acks: tuple[int, int, list[int]], version: int = 2, **options: Any) -> Any:
        """The error of its partition, or of all."""
        fields: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": self.epoch,
            "is_renew_ack": False,
            "topics": self._topics(acks, {}),
            **options,
        }
        self.epoch = fields["share_session_epoch"] + 1
        answer = self.ask(SHARE_ACKNOWLEDGE, version, **fields)
        if answer.error_code:
            return answer.error_code
        (topic,) = answer.responses
        (partition,) = topic.partitions
        return partition.error_code

    def _topics(self, acks: Iterable[tuple[int, int, list[int]]], more: dict[str, int]) -> list[dict[str, Any]]:
        batches = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": types} for first, last, types in acks
        ]
        partition = {"partition_index": 0, "acknowledgement_batches": batches, **more}
        return [{"topic_id": self.topic_id, "partitions": [partition]}]


def sharer(ask: Asker, records: int = 0, member_id: str = "ada") -> Sharer:
    """A member of the group `workers`, which begins at the first of so many records, each a batch of its own."""
    topic = ask.create("jobs")
    for number in range(records):
        ask.produce("jobs", at(1000 + number))
    configure(ask, auto_offset_reset="earliest")
    member = Sharer(ask, topic.topic_id, member_id)
    assert member.beat(0, "jobs").error_code == 0
    return member


def another(first: Sharer, member_id: str, ask: Asker | None = None) -> Sharer:
    """One more member of the same group."""
    member = Sharer(ask or first.ask, first.topic_id, member_id, first.group)
    assert member.beat(0, "jobs").error_code == 0
    return member
