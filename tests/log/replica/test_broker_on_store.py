"""A broker whose journal lies in a store: nothing that was acknowledged depends on its own disk, and of two brokers one
writes.
"""

import asyncio
from pathlib import Path

import pytest

from asking import Asker, ConnectionEnded, asking, at
from eventually import SECONDS_MAX, eventually
from producing import deliver, idempotent_producer
from semel.log.broker.broker import Broker
from semel.log.broker.failure import BrokerFenced
from semel.log.core.slots import BrokenHistory
from semel.log.replica.floor import FLOOR_KEY, decode_floor
from semel.log.replica.lease import LEASE_KEY, decode_lease
from semel.log.replica.membership import VERSION
from semel.log.replica.record import encode_record
from semel.log.replica.slot import key_of
from semel.log.storage.files import MemoryFiles
from semel.log.storage.journal import Damaged
from semel.log.storage.log_settings import LogSettings
from semel.testing.served import ServedBroker
from semel.testing.stores import MemoryStore
from semel.wire.errors import ErrorCode
from semel.wire.records import decode_batches, encode_batch
from semel.wire.versions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    INIT_PRODUCER_ID,
    PRODUCE,
)
from semel_command import semel_failure

# A broker that was killed is given up after this. A broker that a busy machine keeps from running must not be.
LEASE_SECONDS = 4.0


def records_of(asker: Asker, topic: str) -> int:
    """How many records a consumer gets."""
    return sum(len(batch.records) for batch in decode_batches(asker.fetch(topic).records))


def pay(asker: Asker, *sequences: int) -> list[int]:
    """The offsets of the payments of one idempotent producer."""
    return [
        asker.produce("payments", at(1), producer_id=0, producer_epoch=0, base_sequence=sequence)
        for sequence in sequences
    ]


async def test_what_was_acknowledged_is_there_again_on_an_empty_disk() -> None:
    """Records, and the five batches of a producer that are recognised."""
    store = MemoryStore()
    async with Broker(store=store, lease_seconds=LEASE_SECONDS) as first:
        cluster_id = first.log.state.cluster_id
        await asking(first, lambda asker: asker.create("payments"))
        assert await asking(first, lambda asker: pay(asker, 0, 1, 2, 3, 4)) == [0, 1, 2, 3, 4]
        await first.kill()
    async with Broker(store=store) as second:
        assert not second.role.is_active, "the lease of the one that was killed has not ended"
        await second.activated
        assert second.log.state.cluster_id == cluster_id
        assert (first.role.epoch, second.role.epoch) == (1, 2)
        assert await asking(second, lambda asker: records_of(asker, "payments")) == 5
        assert await asking(second, lambda asker: pay(asker, 0, 1, 2, 3, 4, 5)) == [0, 1, 2, 3, 4, 5]


async def test_a_new_machine_starts_from_a_checkpoint_when_the_slots_before_it_are_gone() -> None:
    """Records, the five batches of a producer, and what was deleted."""
    store = MemoryStore()

    def is_deleted() -> bool:
        return decode_floor(store.objects.get(FLOOR_KEY).body).deleted_below > 5

    settings = LogSettings(checkpoint_bytes=1)
    async with Broker(store=store, lease_seconds=LEASE_SECONDS, settings=settings) as first:
        await asking(first, lambda asker: asker.create("payments"))
        assert await asking(first, lambda asker: pay(asker, 0, 1, 2, 3, 4)) == [0, 1, 2, 3, 4]
        for name in ("two", "three", "four"):
            await asking(first, lambda asker, name=name: asker.create(name))
        assert await asyncio.to_thread(eventually, is_deleted)
        await first.kill()
    assert {listed.key for listed in store.objects.list("journal")} >= {key_of(0)}
    assert key_of(4) not in {listed.key for listed in store.objects.list("journal")}
    async with Broker(store=store) as second:
        await second.activated
        assert await asking(second, lambda asker: records_of(asker, "payments")) == 5
        assert await asking(second, lambda asker: pay(asker, 0, 1, 2, 3, 4, 5)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("what", ["partitions", "offsets"])
async def test_no_client_is_told_of_a_part_of_its_transaction_that_a_kill_would_take(what: str) -> None:
    """The next broker would not know the transaction that the client then wants to end."""

    class Held(MemoryStore):
        """Creates nothing from some moment on."""

        def __init__(self) -> None:
            super().__init__()
            self.is_held = False
            self.holds = asyncio.Event()

        async def create(self, key: str, body: bytes | bytearray | memoryview) -> None:
            if self.is_held:
                self.holds.set()
                await asyncio.Event().wait()
            await super().create(key, body)

    def add(asker: Asker, producer_id: int) -> object:
        owner = {"transactional_id": "t", "producer_id": producer_id, "producer_epoch": 0}
        if what == "offsets":
            return asker(ADD_OFFSETS_TO_TXN, 3, **owner, group_id="g")
        return asker(
            ADD_PARTITIONS_TO_TXN,
            3,
            **{f"v3_and_below_{name}": value for name, value in owner.items()},
            v3_and_below_topics=[{"name": "payments", "partitions": [0]}],
        )

    store = Held()
    async with Broker(store=store, lease_seconds=60) as broker:
        await asking(broker, lambda asker: asker.create("payments"))
        claim = {"transactional_id": "t", "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
        owner = await asking(broker, lambda asker: asker(INIT_PRODUCER_ID, 4, **claim))
        assert owner.error_code == 0
        store.is_held = True
        answer = asyncio.create_task(asking(broker, lambda asker: add(asker, owner.producer_id)))
        await store.holds.wait()
        # Whatever was to be answered at once has been by now.
        await asking(broker, lambda asker: asker(API_VERSIONS, 0))
        await broker.kill()
        with pytest.raises(ConnectionEnded):
            await answer


def error_of_a_payment(asker: Asker) -> int:
    """How a broker answers a batch, wherever the topic is led."""
    data = [{"name": "payments", "partition_data": [{"index": 0, "records": bytes(encode_batch(at(1)))}]}]
    (topic,) = asker(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data).responses
    return int(topic.partition_responses[0].error_code)


async def test_who_stands_by_takes_and_shows_no_records() -> None:
    """It would acknowledge what the active broker never sees, and show what is not the newest."""
    store = MemoryStore()
    # Nobody takes over, however busy the machine is.
    async with Broker(store=store, lease_seconds=60) as active, Broker(store=store) as standby:
        await asking(active, lambda asker: asker.create("payments"))
        assert await asking(active, error_of_a_payment) == ErrorCode.NONE
        assert await asking(standby, error_of_a_payment) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        fetched = await asking(standby, lambda asker: asker.fetch("payments"))
        assert fetched.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_broker_whose_lease_is_somebody_elses_ends_as_fenced() -> None:
    store = MemoryStore()
    broker = Broker(store=store, lease_seconds=LEASE_SECONDS)
    await broker.start()
    content, version = store.objects.get(LEASE_KEY)
    other = decode_lease(content)._replace(epoch=2, nonce="somebody else")
    store.objects.replace(LEASE_KEY, other.encode(), version)
    with pytest.raises(BrokerFenced, match="another broker has taken over"):
        async with asyncio.timeout(SECONDS_MAX):
            await broker.failed
    await broker.kill()


async def test_a_store_of_another_version_or_depth_is_refused() -> None:
    store = MemoryStore()
    await store.create("format", encode_record("format", {"version": 1, "depth": 4, "cluster_id": "x"}))
    with pytest.raises(BrokenHistory, match="version 1"):
        await Broker(store=store).start()
    store = MemoryStore()
    await store.create("format", encode_record("format", {"version": VERSION, "depth": 5, "cluster_id": "x"}))
    with pytest.raises(BrokenHistory, match=f"version {VERSION} and depth 5"):
        await Broker(store=store).start()
    store = MemoryStore()
    await store.create("format", b"something else")
    with pytest.raises(BrokenHistory, match="none of semel's"):
        await Broker(store=store).start()


async def test_a_damaged_slot_is_named_and_refused() -> None:
    store = MemoryStore()
    async with Broker(store=store) as broker:
        await asking(broker, lambda asker: asker.create("payments"))
    body, version = await store.get(key_of(4))
    await store.replace(key_of(4), body[:-1] + b"?", version)
    with pytest.raises(BrokenHistory, match="slot 4 is damaged"):
        await Broker(store=store).start()


async def test_a_directory_is_either_a_log_or_the_cache_of_one() -> None:
    """A log of its own would be thrown away as a cache, and a cache lacks what its store has."""
    own, cache = MemoryFiles(), MemoryFiles()
    async with Broker(files=own):
        pass
    with pytest.raises(Damaged, match="holds a log of its own"):
        await Broker(files=own, store=MemoryStore()).start()
    async with Broker(files=cache, store=MemoryStore()):
        pass
    with pytest.raises(Damaged, match="holds the cache of a log in a store"):
        await Broker(files=cache).start()


async def test_the_cache_of_one_cluster_is_not_used_for_another() -> None:
    """A wrong URL would make the broker a standby of the other cluster, or begin an empty log."""
    cache, store, other, copy = MemoryFiles(), MemoryStore(), MemoryStore(), MemoryStore()
    async with Broker(files=cache, store=store) as broker:
        await asking(broker, lambda asker: asker.create("payments"))
    async with Broker(store=other):
        pass
    with pytest.raises(BrokenHistory, match=r"holds cluster .* is the cache of cluster .*: correct the URL"):
        await Broker(files=cache, store=other).start()
    empty = MemoryStore()
    with pytest.raises(BrokenHistory, match="holds no log, and the data directory is the cache"):
        await Broker(files=cache, store=empty).start()
    assert empty.objects.list("") == []
    # The same cluster may have been brought back under another prefix.
    for listed in store.objects.list(""):
        copy.objects.create(listed.key, store.objects.get(listed.key).body)
    async with Broker(files=cache, store=copy) as broker:
        assert await asking(broker, lambda asker: asker.fetch("payments").error_code) == 0


def test_semel_serve_goes_on_from_its_store_when_its_machine_is_gone(tmp_path: Path) -> None:
    """Killed, and another directory: the same records under the same offsets."""
    store = (f"--store=file://{tmp_path}/store", f"--lease-seconds={LEASE_SECONDS:.0f}")
    first = ServedBroker(tmp_path / "a", *store).start()
    assert deliver(idempotent_producer(first), "payments", [b"1", b"2"]) == [0, 1]
    first.kill()
    with ServedBroker(tmp_path / "b", *store) as second:
        second.wait_until_active()
        assert deliver(idempotent_producer(second), "payments", [b"3"]) == [2]
        with Asker(second.bootstrap) as asker:
            assert records_of(asker, "payments") == 3


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--store=ftp://x"], "names no store"),
        (["--store=file://x"], "three slashes"),
        (["--store=file:///x", "--durability=os"], "--durability os is for a log in --data"),
        (["--commit-interval=5"], "needs --store"),
        (["--cache-bytes=100000000"], "needs --store"),
        (["--store=file:///x", "--cache-bytes=1000"], "--cache-bytes 1000 is too small"),
    ],
)
def test_options_that_cannot_be_meant_are_one_line(tmp_path: Path, options: list[str], reason: str) -> None:
    assert reason in semel_failure("serve", f"--data={tmp_path}", "--listen=127.0.0.1:0", *options)
