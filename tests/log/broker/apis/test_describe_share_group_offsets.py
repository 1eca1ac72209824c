"""DescribeShareGroupOffsets: where share partitions begin, and their lag."""

from __future__ import annotations

from typing import Any

from asking import Asker
from semel.wire.versions import DELETE_RECORDS, DESCRIBE_SHARE_GROUP_OFFSETS
from sharing import ACCEPT, sharer

REQUEST: dict[str, object] = {
    "groups": [{"group_id": "workers", "topics": [{"topic_name": "orders", "partitions": [0]}]}]
}


def described(ask: Asker, *partitions: int) -> list[tuple[int, int, int]]:
    topics: Any = [{"topic_name": "jobs", "partitions": partitions}] if partitions else None
    (group,) = ask(DESCRIBE_SHARE_GROUP_OFFSETS, groups=[{"group_id": "workers", "topics": topics}]).groups
    assert group.error_code == 0
    return [(p.partition_index, p.start_offset, p.lag) for topic in group.topics for p in topic.partitions]


def test_the_lag_is_what_is_not_done(ask: Asker) -> None:
    ada = sharer(ask, records=5)
    assert described(ask) == []
    assert described(ask, 0, 7) == [(0, -1, -1), (7, -1, -1)]
    ada.got(max_records=4)
    assert described(ask) == [(0, 0, 5)]
    ada.acknowledge((0, 0, [ACCEPT]), (2, 2, [ACCEPT]))
    assert described(ask) == described(ask, 0) == [(0, 1, 3)]


def test_a_share_partition_begins_where_its_log_does(ask: Asker) -> None:
    ada = sharer(ask, records=5)
    ada.got(max_records=1)
    deleted = [{"name": "jobs", "partitions": [{"partition_index": 0, "offset": 3}]}]
    ask(DELETE_RECORDS, topics=deleted, timeout_ms=1000)
    assert described(ask) == [(0, 3, 2)]
