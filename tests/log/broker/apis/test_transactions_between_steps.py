"""Transactions of which something comes between two steps of a request: it is judged anew behind each of them."""

import asyncio
import contextlib
from collections.abc import Iterable

from semel.log.broker.broker import Broker
from semel.testing.faulty import Fault, FaultyFiles
from semel.wire.errors import ErrorCode
from semel.wire.versions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    INIT_PRODUCER_ID,
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
)
from stepping import SMALL_STEPS, Asked, HungUp, after_each_step, ask, create

OWNER = {"transactional_id": "mine", "producer_id": 1000, "producer_epoch": 0}
# The connection that the client gave up, and the one that it has instead.
OLD, NEW = 1, 2


def claim(broker: Broker) -> None:
    create(broker, "orders", 2)
    claimed = ask(broker, INIT_PRODUCER_ID, 2, transactional_id="mine", transaction_timeout_ms=60_000)
    assert (claimed.producer_id, claimed.producer_epoch) == (1000, 0)


def addition(broker: Broker, over: int, partitions: Iterable[int]) -> Asked:
    fields = {**OWNER, "topics": [{"name": "orders", "partitions": list(partitions)}]}
    version_1 = {f"v3_and_below_{name}": value for name, value in fields.items()}
    return Asked(broker, ADD_PARTITIONS_TO_TXN, 3, over=over, **version_1)


def end(broker: Broker, over: int, *, committed: bool = True) -> Asked:
    return Asked(broker, END_TXN, 3, over=over, committed=committed, **OWNER)


def offsets(broker: Broker, over: int, offset: int) -> Asked:
    partitions = [
        {"partition_index": index, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
        for index in range(2)
    ]
    who = {**OWNER, "group_id": "readers", "member_id": "", "group_instance_id": None, "generation_id": -1}
    topics = [{"name": "orders", "partitions": partitions}]
    return Asked(broker, TXN_OFFSET_COMMIT, 3, over=over, topics=topics, **who)


def add_group(broker: Broker, over: int) -> None:
    assert ask(broker, ADD_OFFSETS_TO_TXN, 2, over=over, group_id="readers", **OWNER).error_code == 0


def committed_offsets(broker: Broker, *, stable: bool = False) -> Asked:
    topics = [{"name": "orders", "partition_indexes": [0, 1]}]
    return Asked(broker, OFFSET_FETCH, 7, group_id="readers", topics=topics, require_stable=stable)


def told(asked: Asked) -> list[tuple[int, int]]:
    return [(one.error_code, one.committed_offset) for one in asked.answer().topics[0].partitions]


def go_on_with(asked: Asked) -> None:
    """Take the steps that are left, to whatever end."""
    with contextlib.suppress(HungUp):
        asked.answer()


def open_parts(broker: Broker) -> int:
    return broker.log.state.transactions.open_parts("mine")


def parts_once_overtaken(broker: Broker, asked: Asked) -> int:
    """On how many partitions the next transaction is, begun on a newer connection before this request goes on."""
    assert end(broker, NEW).answer().error_code == 0
    addition(broker, NEW, (0,)).answer()
    go_on_with(asked)
    return open_parts(broker)


def test_an_end_that_is_overtaken_on_a_newer_connection_does_not_end_the_next_transaction() -> None:
    def begin(broker: Broker) -> Asked:
        claim(broker)
        addition(broker, OLD, (0, 1)).answer()
        return end(broker, OLD)

    assert set(after_each_step(begin, parts_once_overtaken)) == {1}


def test_partitions_that_are_overtaken_on_a_newer_connection_are_not_added_to_the_next_transaction() -> None:
    def begin(broker: Broker) -> Asked:
        claim(broker)
        addition(broker, OLD, (0,)).answer()
        return addition(broker, OLD, (0, 1))

    assert set(after_each_step(begin, parts_once_overtaken)) == {1}


def test_offsets_that_are_overtaken_on_a_newer_connection_are_not_put_into_the_next_transaction() -> None:
    def begin(broker: Broker) -> Asked:
        claim(broker)
        add_group(broker, OLD)
        return offsets(broker, OLD, 10)

    def go_on(broker: Broker, asked: Asked) -> list[tuple[int, int]]:
        for offset in (10, 20):
            offsets(broker, NEW, offset).answer()
            assert end(broker, NEW).answer().error_code == 0
            add_group(broker, NEW)
        offsets(broker, NEW, 30).answer()
        go_on_with(asked)
        assert end(broker, NEW).answer().error_code == 0
        return told(committed_offsets(broker))

    assert all(found == [(0, 30), (0, 30)] for found in after_each_step(begin, go_on))


async def test_a_transaction_that_began_while_the_one_before_it_was_timed_out_is_left_open() -> None:
    async with Broker(durability="os", pace=SMALL_STEPS) as broker:
        claim(broker)
        addition(broker, OLD, (0, 1)).answer()
        broker.clock.skip(60)
        # Its markers are being written now.
        broker.runtime.alarm.catch_up()
        assert not broker.turns.is_idle
        assert end(broker, OLD).answer().error_code == 0
        addition(broker, OLD, (0,)).answer()
        for _ in range(20):
            await asyncio.sleep(0)
        assert broker.turns.is_idle
        assert open_parts(broker) == 1
        assert broker.metrics.ended_transactions["timed_out"] == 0
        assert end(broker, OLD).answer().error_code == 0


async def test_a_disk_without_room_for_the_markers_is_told_of_and_looked_after() -> None:
    files = FaultyFiles()
    async with Broker(files=files, durability="os", pace=SMALL_STEPS) as broker:
        claim(broker)
        addition(broker, OLD, (0, 1)).answer()
        files.arm(Fault("ENOSPC", call="write", path="topics*"))
        assert end(broker, OLD).answer().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert broker.metrics.storage_errors == 1
        assert end(broker, OLD).answer().error_code == 0


def test_nobody_is_shown_one_part_of_a_transactions_offsets_from_before_its_end_and_another_from_behind_it() -> None:
    def begin(broker: Broker) -> Asked:
        claim(broker)
        add_group(broker, OLD)
        offsets(broker, OLD, 10).answer()
        end(broker, OLD).answer()
        add_group(broker, OLD)
        return committed_offsets(broker)

    def go_on(broker: Broker, asked: Asked) -> list[tuple[int, int]]:
        offsets(broker, OLD, 20).answer()
        end(broker, OLD).answer()
        return told(asked)

    found = after_each_step(begin, go_on)
    assert all(one in ([(0, 10)] * 2, [(0, 20)] * 2) for one in found), found
