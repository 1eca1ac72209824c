"""Room for producers that a transaction announces: taken when it is announced, once, and then it is there."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from ledger import SETTINGS, batch
from semel.broker.broker import Broker
from semel.core.batch import TRANSACTIONAL_BIT, read_header
from semel.core.batch_checks import Sender
from semel.core.entries import PartitionName
from semel.core.producer_room import NoRoom
from semel.core.producers import Outcome
from semel.core.transaction_rules import Claim
from semel.testing.faulty import Fault, FaultyFiles


def beside(scenario: Callable[[Broker, FaultyFiles], Awaitable[None]]) -> None:
    """In a broker with one topic of eight partitions, which has room for eight producers."""

    async def run() -> None:
        files = FaultyFiles()
        async with Broker(files=files, settings=replace(SETTINGS, producer_states_max=8)) as broker:
            broker.runtime.commit(
                broker.log.state.catalog.decide_create("orders", 8, {}, bytes(16), broker.clock.now_ms())
            )
            await scenario(broker, files)

    asyncio.run(run())


def announce(broker: Broker, claim: Claim, partitions: range, address: str) -> None:
    number = broker.log.state.catalog.existing("orders").number
    names = [PartitionName(number, index) for index in partitions]
    broker.transactions.add_partitions("mine", claim.producer_id, claim.producer_epoch, names, address)


def send(broker: Broker, producer_id: int, partition: int, address: str, attributes: int = 0) -> Outcome:
    log, sent = broker.log, batch(producer_id, 0, at_ms=broker.clock.now_ms(), attributes=attributes)
    topic = log.state.catalog.existing("orders")
    where = log.state.partitions.of(topic)[partition]
    return log.append(topic, where, read_header(sent), sent, broker.clock.now_ms(), Sender(address)).outcome


def test_what_the_disk_did_not_take_is_charged_to_nobody() -> None:
    """A client tries again every tenth of a second: a minute of a full disk would be its room for a week."""

    async def scenario(broker: Broker, files: FaultyFiles) -> None:
        mine = broker.transactions.claim("mine", 60_000, None)
        announce(broker, mine, range(1), "honest")
        files.arm(Fault("ENOSPC", call="write", path="journal/*", lasting=True))
        for _ in range(3):
            with pytest.raises(OSError, match="No space"):
                announce(broker, mine, range(3), "honest")
        files.disarm()
        assert broker.log.state.producer_room.charged("honest", None) == 1
        announce(broker, mine, range(3), "honest")
        assert broker.log.state.producer_room.charged("honest", None) == 3

    beside(scenario)


def test_what_was_announced_finds_the_room_that_was_taken_for_it() -> None:
    """However much others have taken since: its transaction would have to be aborted, and could not begin anew."""

    async def scenario(broker: Broker, files: FaultyFiles) -> None:
        mine = broker.transactions.claim("mine", 60_000, None)
        announce(broker, mine, range(2), "honest")
        for producer_id, address in enumerate(["one", "two", "two", "three", "three"], 5000):
            assert send(broker, producer_id, 7, address) is Outcome.ACCEPTED
        for partition in range(2):
            assert send(broker, mine.producer_id, partition, "honest", TRANSACTIONAL_BIT) is Outcome.ACCEPTED
        with pytest.raises(NoRoom, match="honest has put 2"):
            send(broker, 6000, 7, "honest")

    beside(scenario)
