"""No offset is shown, and none acknowledged, that could still be lost; one that the disk refused was never there."""

from typing import Any

from test_durable_answers import beside

from asking import Asker
from held_syncs import HeldSyncs
from semel.log.broker.broker import Broker
from semel.testing.faulty import Fault, FaultyFiles
from semel.wire.errors import ErrorCode
from semel.wire.versions import API_VERSIONS, OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH

PLACE = {"partition_index": 0, "committed_offset": 5, "committed_metadata": None}
COMMIT: dict[str, Any] = {
    "group_id": "readers",
    "generation_id_or_member_epoch": -1,
    "member_id": "",
    "retention_time_ms": -1,
    "topics": [{"name": "orders", "partitions": [PLACE]}],
}
FETCH: dict[str, Any] = {"group_id": "readers", "topics": [{"name": "orders", "partition_indexes": [0]}]}


def committed(ask: Asker) -> int:
    return int(ask(OFFSET_FETCH, 2, **FETCH).topics[0].partitions[0].committed_offset)


def test_an_offset_is_neither_acknowledged_nor_shown_before_it_is_durable() -> None:
    syncs = HeldSyncs()

    def client(broker: Broker) -> None:
        ask, other = Asker(broker.bootstrap), Asker(broker.bootstrap)
        ask.create("orders")
        with syncs.held():
            acknowledged = ask.ask_later(OFFSET_COMMIT, 2, **COMMIT)
            assert syncs.began.wait(30)
            assert other(API_VERSIONS, 0).error_code == 0, "others are served meanwhile"
            shown = other.ask_later(OFFSET_FETCH, 2, **FETCH)
            assert not ask.has_answer()
            assert not other.has_answer()
        assert acknowledged().topics[0].partitions[0].error_code == 0
        assert shown().topics[0].partitions[0].committed_offset == 5

    beside(Broker(files=FaultyFiles(), disk_threads=syncs), client)
    assert syncs.began.is_set()


def test_offsets_that_the_disk_refuses_are_not_there_and_clients_try_again() -> None:
    files = FaultyFiles()

    def client(broker: Broker) -> None:
        ask = Asker(broker.bootstrap)
        ask.create("orders")
        forget = {"group_id": "readers", "topics": [{"name": "orders", "partitions": [{"partition_index": 0}]}]}

        def commit() -> int:
            return int(ask(OFFSET_COMMIT, 2, **COMMIT).topics[0].partitions[0].error_code)

        files.arm(Fault("ENOSPC", call="write", lasting=True))
        assert commit() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert committed(ask) == -1
        files.disarm()
        assert commit() == 0
        files.arm(Fault("ENOSPC", call="write", lasting=True))
        refused = ask(OFFSET_DELETE, 0, **forget).topics[0].partitions[0]
        assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert committed(ask) == 5
        files.disarm()

    beside(Broker(files=files), client)
