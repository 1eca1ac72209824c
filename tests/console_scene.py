"""A cluster with something on every page of the console: for the tests in a browser, and for the pictures in the docs.

    with scene(tmp_path) as stage:
        with started("console", "--listen", "127.0.0.1:0", *stage.options()) as console: ...

Every part is the real one: a broker in a process of its own, a producer whose ACKs are lost on the way, transactions,
groups, an application's tables, kept verdicts, a store with a standby.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from sqlalchemy import insert

from semel import outbox, schema
from semel.audit.history import keep
from semel.audit.verdict import Counted, Finding, Findings, SinkVerdict, Verdict, WindowCount
from semel.chaos.plan import Fault
from semel.chaos.proxy import ChaosProxy
from semel.client import admin
from semel.client.cluster import Cluster
from semel.client.groups import QUERY_NOTE
from semel.client.settings import ClientSettings
from semel.database import engine_of
from semel.inbox.quarantine import Aside, Cause, put
from semel.outbox.tables import quarantine
from semel.spark.lanes.options import PROGRESS_PREFIX
from semel.spark.lanes.progress import encode
from semel.spark.lanes.protocol import Digest, Marker, Order, Written
from semel.testing.served import ServedBroker

HOUR_MS: Final = 3_600_000
STUCK: Final = "billing-7"
PAYMENTS: Final = 40
LOST_ACKS: Final = 6


@dataclass
class Stage:
    """What there is to look at, and where."""

    broker: ServedBroker
    database: str
    audits: Path
    store: str | None

    def options(self) -> list[str]:
        """What a console takes to show all of it."""
        told = ["--bootstrap", self.broker.bootstrap, "--decisions", self.broker.metrics_address]
        told += ["--database", self.database, "--audits", str(self.audits)]
        return told + ([] if self.store is None else ["--store", self.store])


@contextmanager
def scene(directory: Path, *, has_store: bool = False) -> Iterator[Stage]:
    with ExitStack() as stack:
        broker = stack.enter_context(ServedBroker(directory / "data", metrics=True))
        store = None
        if has_store:
            store = f"file://{directory}/store"
            for number in (1, 2):
                stack.enter_context(ServedBroker(directory / f"local-{number}", f"--store={store}"))
        url = f"sqlite:///{directory}/shop.db"
        _application(url)
        kept_audits(directory / "audits")
        produced(broker)
        open_producer = _transactions(broker)
        _groups(broker)
        _pipelines(broker)
        yield Stage(broker, url, directory / "audits", store)
        del open_producer


def produced(broker: ServedBroker) -> None:
    """Payments of one idempotent producer, some of whose ACKs are lost on the way; and orders."""
    with cluster_of(broker) as cluster:
        admin.create_topic(cluster, "payments", 3, {"retention.ms": "604800000", "min.insync.replicas": "1"})
        admin.create_topic(cluster, "orders", 1, {})
        admin.create_topic(cluster, "refunds", 1, {"cleanup.policy": "compact"})
    with ChaosProxy(broker.bootstrap) as network:
        settings = {"enable.idempotence": True, "linger.ms": 0, "log_level": 0, "retry.backoff.ms": 10}
        producer = Producer({"bootstrap.servers": network.bootstrap, **settings, "reconnect.backoff.ms": 1})
        for number in range(PAYMENTS):
            if number % (PAYMENTS // LOST_ACKS) == 1:
                network.arm(Fault.DROP_ACK)
            value = json.dumps({"id": f"p-{number:04}", "amount": f"{number * 7 % 90 + 1}.00", "to": "acme"})
            producer.produce("payments", value, key=f"customer-{number % 9}", partition=number % 3)
            assert producer.flush(60) == 0
    orders = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(5):
        orders.produce(
            "orders", json.dumps({"id": f"order-{number}", "total": f"{20 + number}.00"}), key=f"order-{number}"
        )
    assert orders.flush(60) == 0


def produced_on(broker: ServedBroker, stop: threading.Event) -> None:
    """Payments until it is to stop, some of whose ACKs are lost."""
    with ChaosProxy(broker.bootstrap) as network:
        settings = {"enable.idempotence": True, "linger.ms": 0, "log_level": 0, "retry.backoff.ms": 10}
        producer = Producer({"bootstrap.servers": network.bootstrap, **settings, "reconnect.backoff.ms": 1})
        number = 0
        while not stop.wait(0.02):
            number += 1
            if number % 41 == 0:
                network.arm(Fault.DROP_ACK)
            producer.produce("payments", json.dumps({"id": f"p-on-{number}"}), partition=1 + number % 2)
            producer.poll(0)
        producer.flush(60)


def _transactions(broker: ServedBroker) -> Producer:
    """One that was aborted, one that is open and holds readers back; answers the producer of the open one."""
    settings = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
    ended = Producer({**settings, "transactional.id": "billing-3"})
    ended.init_transactions(60)
    ended.begin_transaction()
    ended.produce("payments", json.dumps({"id": "p-void", "amount": "13.00"}), key="customer-0", partition=0)
    assert ended.flush(60) == 0
    ended.abort_transaction(60)
    stuck = Producer({**settings, "transactional.id": STUCK, "transaction.timeout.ms": 900_000})
    stuck.init_transactions(60)
    stuck.begin_transaction()
    stuck.produce("payments", json.dumps({"id": "p-open", "amount": "8.00"}), key="customer-1", partition=0)
    assert stuck.flush(60) == 0
    behind = Producer({**settings, "enable.idempotence": True})
    for number in range(4):
        behind.produce("payments", json.dumps({"id": f"p-behind-{number}"}), key="customer-2", partition=0)
    assert behind.flush(60) == 0
    return stuck


def _groups(broker: ServedBroker) -> None:
    for group, offsets in (("billing", (5, 9, 13)), ("shipping", (13, 13, 13)), ("fraud-check", (0, 2, 4))):
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "log_level": 0})
        places = [TopicPartition("payments", number, offset) for number, offset in enumerate(offsets)]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()


def _pipelines(broker: ServedBroker) -> None:
    """The markers of a sink with two lanes, and a query that shows how far it is."""
    progress = f"{PROGRESS_PREFIX}payments-enriched"
    with cluster_of(broker) as cluster:
        admin.create_topic(cluster, progress, 2, {"cleanup.policy": "compact"})
    settings = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
    for lane, batch_id in ((0, 41), (1, 42)):
        producer = Producer({**settings, "transactional.id": f"semel-lane-payments-enriched-{lane}"})
        producer.init_transactions(60)
        producer.begin_transaction()
        written = (Written("8f2c-query", batch_id, Digest(1_000 + batch_id, 1)),)
        marker = Marker("payments-enriched", lane, 2, Order.CONSECUTIVE, written)
        producer.produce(progress, encode(marker), key=f"payments-enriched/{lane}", partition=lane)
        producer.commit_transaction(60)
    consumer = Consumer({**settings, "group.id": "spark-payments"})
    places = [TopicPartition("payments", number, 8, metadata=QUERY_NOTE) for number in range(3)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def _application(url: str) -> None:
    engine = engine_of(url)
    schema.make(engine)
    with engine.begin() as connection:
        for number in range(12):
            outbox.add(connection, "orders", key=f"order-{number}", value=json.dumps({"id": number}))
        reason = "MESSAGE_TOO_LARGE: the record has 1,400,000 bytes"
        connection.execute(insert(quarantine), {"number": 3, "reason": reason, "refused_at_ms": _ago(0.2)})
        put(connection, Aside("billing", "id:evt-91", Cause.FAILED, "KeyError: 'amount'", _ago(0.4)))
    engine.dispose()


def kept_audits(directory: Path) -> None:
    for number in range(14):
        sent = 40_000 + 137 * number
        lost, doubled = {5: (0, 31), 6: (12, 4), 11: (3, 0)}.get(number, (0, 0))
        keep(
            _verdict(sent, lost, doubled), directory, began_ms=_ago(14 - number), seconds=1.7 + number / 10, question={}
        )


def _verdict(sent: int, lost: int, doubled: int) -> Verdict:
    def findings(count: int, kind: str) -> Findings:
        listed = tuple(Finding(f"p-{kind}-{number:03}".encode(), 1) for number in range(min(count, 100)))
        return Findings(count, count, listed)

    windows = (WindowCount(_ago(3), 900, 900 - lost + doubled),) if lost or doubled else ()
    sink = Counted("postgresql://app@db/shop/payments", sent - lost + doubled, 0, None)
    verdict = SinkVerdict(
        sink, findings(lost, "lost"), findings(doubled, "doubled"), Findings(), Findings(), 64, 64, windows
    )
    return Verdict(Counted("semel://127.0.0.1:9092/payments", sent, 0, None), (verdict,), "00")


def _ago(hours: float) -> int:
    return time.time_ns() // 1_000_000 - round(hours * HOUR_MS)


def cluster_of(broker: ServedBroker) -> Cluster:
    host, _, port = broker.bootstrap.rpartition(":")
    return Cluster(ClientSettings(bootstrap=((host, int(port)),)))
