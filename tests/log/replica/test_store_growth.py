"""Brokers as processes that keep checkpoints and delete, and are killed in the middle of it with their disks: a
transactional producer goes on, every committed record is there once, and the store does not grow with what is gone.

They write hundreds of megabytes, so they are slow tests; tests/log/replica/test_store_checkpoints.py stops a broker
between any two calls of the store.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from asking import Asker
from eventually import eventually
from producing import transacted
from semel.log.replica.floor import FLOOR_KEY, Floor, decode_floor
from semel.log.store import StoreError, open_store
from semel.testing.postgres import PostgresMissing, PostgresServer
from semel.testing.seaweedfs import SeaweedMissing, SeaweedServer
from takeover_pair import SETTINGS, Pair, fresh_bucket, values_of

pytestmark = pytest.mark.slow

NOISE = bytes(200_000)
NOISE_PER_TRANSACTION = 10
# A checkpoint is due after 64 MiB. There is the journal behind the one before the last, and what is on its way.
STORE_BYTES_MAX = 4 * 64 * 1024 * 1024


@contextmanager
def url_of(engine: str, directory: Path) -> Iterator[str]:
    """A fresh store."""
    with ExitStack() as stack:
        try:
            if engine == "bucket":
                server = SeaweedServer()
                stack.callback(server.stop)
                yield fresh_bucket(server)
            elif engine == "postgres":
                database = PostgresServer()
                stack.callback(database.stop)
                yield f"{database.new_database()}?prefix=log&allow_async=1"
            else:
                yield f"file://{directory}/store"
        except (SeaweedMissing, PostgresMissing) as missing:
            pytest.skip(str(missing))


def asked(url: str) -> tuple[Floor, int, set[str]]:
    """The floor, how many bytes there are, and the keys of all objects."""

    async def ask() -> tuple[Floor, int, set[str]]:
        store = open_store(url)
        try:
            floor = decode_floor((await store.get(FLOOR_KEY)).body)
            listed = [each async for each in store.list("")]
        finally:
            await store.close()
        return floor, sum(each.size_bytes for each in listed), {each.key for each in listed}

    return asyncio.run(ask())


def in_the_middle_of(what: str, url: str) -> Callable[[], bool]:
    """Whether the active broker is in the middle of a checkpoint or of a deletion that has begun since now."""
    floor, _, before = asked(url)

    def looked() -> bool:
        try:
            found, _, keys = asked(url)
        except StoreError:
            return False
        if what == "deletion":
            return found.deleted_below > floor.deleted_below
        return any(key.startswith("segments/") for key in keys - before)

    return looked


class Writer:
    """Transactions, each with one number for the ledger and much noise that is deleted soon."""

    def __init__(self, bootstrap: str) -> None:
        self.committed: list[bytes] = []
        self._bootstrap = bootstrap
        self._over = threading.Event()
        self._errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join()
        if self._errors:
            raise self._errors[0]

    def _run(self) -> None:
        try:
            settings = {"bootstrap.servers": self._bootstrap, "transactional.id": "writer", "linger.ms": 5}
            producer = Producer({**SETTINGS, **settings, "transaction.timeout.ms": 120_000})
            producer.init_transactions(120)
            number = 0
            while not self._over.is_set():
                value = b"%d" % number
                if self._write(producer, value):
                    self.committed.append(value)
                number += 1
                if number % 10 == 0:
                    self._delete_noise()
        except BaseException as error:
            self._errors.append(error)

    def _write(self, producer: Producer, value: bytes) -> bool:
        def produce() -> None:
            for _ in range(NOISE_PER_TRANSACTION):
                producer.produce("noise", NOISE, partition=0)
            producer.produce("ledger", value, partition=0)

        return transacted(producer, produce, 120)

    def _delete_noise(self) -> None:
        admin = AdminClient({**SETTINGS, "bootstrap.servers": self._bootstrap})
        for future in admin.delete_records([TopicPartition("noise", 0, -1)]).values():
            # A takeover in between: the next round deletes more.
            future.exception()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("engine", "rounds"), [("directory", 3), ("bucket", 1), ("postgres", 1)])
def test_kills_in_the_middle_of_checkpoints_and_deletions_lose_nothing_and_the_store_stays_small(
    engine: str, rounds: int, tmp_path: Path
) -> None:
    with url_of(engine, tmp_path) as url:
        pair = Pair(tmp_path, url)
        writer = Writer(pair.bootstrap)
        try:
            with Asker(pair.active.bootstrap) as asker:
                asker.create("ledger")
                asker.create("noise", segment_bytes="4000000")
            writer.start()
            for what in ("checkpoint", "deletion") * rounds:
                before = len(writer.committed)
                assert eventually(in_the_middle_of(what, url)), f"no {what} began; {pair.active.output}"
                pair.take_over("kill")
                assert eventually(lambda before=before: len(writer.committed) > before + 5), "the producer goes on"
            enough = STORE_BYTES_MAX // (len(NOISE) * NOISE_PER_TRANSACTION)
            while (before := len(writer.committed)) <= enough:
                assert eventually(lambda before=before: len(writer.committed) > before), "the producer goes on"
            writer.end()
            floor, size_bytes, keys = asked(url)
            assert size_bytes < STORE_BYTES_MAX
            assert min(int(key.partition("/")[2]) for key in keys if key.startswith("journal/")) == 0, "the first fence"
            assert values_of(pair.bootstrap, "ledger") == writer.committed
            assert floor.epoch > 2 * rounds - 1
        finally:
            writer.end()
            pair.end()
