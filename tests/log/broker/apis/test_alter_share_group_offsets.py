"""AlterShareGroupOffsets: a person moves the start of share partitions of a group without members."""

from __future__ import annotations

from typing import Any

from asking import Asker
from semel.wire.errors import ErrorCode
from semel.wire.versions import ALTER_SHARE_GROUP_OFFSETS
from sharing import ACCEPT, another, sharer

REQUEST: dict[str, object] = {
    "group_id": "workers",
    "topics": [{"topic_name": "orders", "partitions": [{"partition_index": 0, "start_offset": 0}]}],
}


def alter(ask: Asker, offset: int, index: int = 0, topic: str = "jobs") -> Any:
    partitions = [{"partition_index": index, "start_offset": offset}]
    topics = [{"topic_name": topic, "partitions": partitions}]
    return ask(ALTER_SHARE_GROUP_OFFSETS, group_id="workers", topics=topics)


def test_what_was_done_is_delivered_again(ask: Asker) -> None:
    ada = sharer(ask, records=3)
    ada.got()
    ada.acknowledge((0, 2, [ACCEPT]), share_session_epoch=-1)
    assert alter(ask, 1).error_code == ErrorCode.NON_EMPTY_GROUP
    ada.beat(-1)
    assert alter(ask, 1).responses[0].partitions[0].error_code == 0
    assert another(ada, "bob").got() == [(1, 2, 1)]


def test_what_does_not_exist_is_refused_and_a_group_is_made(ask: Asker) -> None:
    ask.create("jobs")
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(ask, 0, index=5).responses[0].partitions[0].error_code == error
    assert alter(ask, 0, topic="none").responses[0].partitions[0].error_code == error
    assert alter(ask, -1).responses[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
