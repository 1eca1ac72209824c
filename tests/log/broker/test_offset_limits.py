"""Groups and their offsets do not grow beyond their limits, and what is there already goes on."""

from typing import Any

import semel
from asking import Asker
from semel.log.broker.limits import Limits
from semel.wire.errors import ErrorCode
from semel.wire.versions import OFFSET_COMMIT, OFFSET_DELETE
from transacting import TransactionalProducer


def commit(ask: Asker, group: str, *indexes: int) -> list[int]:
    """The error code of each partition."""
    partitions = [{"partition_index": index, "committed_offset": 5, "committed_metadata": None} for index in indexes]
    member: dict[str, Any] = {"member_id": "", "generation_id_or_member_epoch": -1}
    topics = [{"name": "orders", "partitions": partitions}]
    answer = ask(OFFSET_COMMIT, 9, group_id=group, topics=topics, **member)
    return [int(one.error_code) for one in answer.topics[0].partitions]


def test_offsets_in_transactions_beyond_the_limit_are_refused_until_there_is_room() -> None:
    with semel.broker(limits=Limits(group_offsets_max=2)) as broker:
        ask = Asker(broker.bootstrap)
        ask.create("orders", 4)
        producer = TransactionalProducer(ask)
        producer.claim()
        assert commit(ask, "one", 0) == [0]
        assert producer.commit_offset("one", "orders", 7, version=5) == 0
        assert producer.commit_offset("two", "orders", 7, version=5) == ErrorCode.POLICY_VIOLATION
        assert producer.commit_offset("one", "orders", 8, version=5) == 0
        producer.end(version=5)
        assert producer.commit_offset("two", "orders", 7, version=5) == 0
        ask.close()


def test_groups_and_offsets_beyond_the_limits_are_refused_until_there_is_room() -> None:
    full = ErrorCode.POLICY_VIOLATION
    with semel.broker(limits=Limits(group_name_bytes_max=5, groups_max=4, group_offsets_max=3)) as broker:
        ask = Asker(broker.bootstrap)
        ask.create("orders", 4)
        assert commit(ask, "one", 0, 1) == [0, 0]
        assert commit(ask, "two", 0) == [0]
        assert commit(ask, "three", 0) == [full]
        assert commit(ask, "\N{LATIN SMALL LETTER A WITH DIAERESIS}" * 3, 0) == [ErrorCode.INVALID_GROUP_ID]
        assert commit(ask, "two", 0, 1) == [full, full]
        assert commit(ask, "one", 0, 1) == [0, 0]
        ask(OFFSET_DELETE, group_id="one", topics=[{"name": "orders", "partitions": [{"partition_index": 0}]}])
        assert commit(ask, "two", 0, 1) == [0, 0]
        ask.close()
