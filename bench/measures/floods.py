"""The measure of an honest client beside strangers who take what they can get, and beside one that is over its quota.
It must never count what those get done."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from statistics import quantiles
from typing import ClassVar

from bench import clients, strangers
from bench.measures.locks import settings_of
from bench.measures.measure import MEGABYTE, Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers.process import Broker
from bench.peers.secured import PASSWORD, USER, SecuredSemel, over_tls
from semel.client import users
from semel.client.cluster import Cluster
from semel.wire import kafka
from semel.wire.scram import Mechanism

SINGLE = "single"
GREEDY = "greedy"
PARTITIONS = 4
VALUE_BYTES = 100
ITERATIONS = 4_096
# What the greedy client may send in each second; it sends as fast as it can.
QUOTA_BYTES = 1 * MEGABYTE
# Each flood takes its turn, and the client has the broker to itself as often.
TURNS = 4
FLOODS_MOST = 2.0
GREED_MOST = 1.2
# 500 strangers may be connected, and an idle connection over TLS takes 85 KB.
MEMORY_MOST = 64.0

# Metrics and titles.
FLOODS: Mapping[str, str] = {
    "silent": "beside strangers that connect and are silent",
    "byte_by_byte": "beside TLS handshakes that come byte by byte and never end",
    "no_tls": "beside plain bytes on the port with TLS",
    "half_a_login": "beside logins that never end",
    "asking": "beside strangers who ask for versions again and again, and never log in",
    "guessing": "beside wrong passwords",
}
GREED = "greed"


class Floods(Measure):
    """One idempotent message at a time over TLS, with the broker to itself, beside 300 strangers in each second, and
    beside a client that is over its quota. Each side takes turns. A figure is the 99th percentile, divided by that of
    the client with the broker to itself."""

    name = "floods"
    contenders: ClassVar[Contenders] = {"semel": SecuredSemel}
    rows = (
        Row("one message at a time over TLS, with the broker to itself, p99 us", "alone_us", kafka=None, tansu=None),
        *(
            Row(f"p99 {title}, times that", flood, Target(Kind.VALUE_AT_MOST, FLOODS_MOST), "semel", None, None, 2)
            for flood, title in FLOODS.items()
        ),
        Row(
            "p99 beside a client that is over its quota, times that",
            GREED,
            Target(Kind.VALUE_AT_MOST, GREED_MOST),
            kafka=None,
            tansu=None,
            decimals=2,
        ),
        Row(
            "memory that the broker has come to take beside strangers, MB",
            "memory",
            Target(Kind.VALUE_AT_MOST, MEMORY_MOST),
            kafka=None,
            tansu=None,
        ),
    )

    def run(self, broker: Broker, scale: Scale) -> Figures:
        broker.start()
        assert isinstance(broker, SecuredSemel)
        with Cluster(settings_of(broker.bootstrap)) as cluster:
            users.set_password(cluster, USER, PASSWORD, ITERATIONS, Mechanism.SCRAM_SHA_256)
            quotas = kafka.alter_client_quotas
            entity = quotas.RequestEntityData(entity_type="client-id", entity_name=GREEDY)
            limit = quotas.OpData(key="producer_byte_rate", value=float(QUOTA_BYTES), remove=False)
            entries = [quotas.RequestEntryData(entity=[entity], ops=[limit])]
            cluster.ask_controller(quotas.AlterClientQuotasRequest(entries=entries, validate_only=False))
        clients.create_topic(broker, SINGLE, 1)
        clients.create_topic(broker, GREEDY, PARTITIONS)
        took_us: dict[str, list[float]] = {}
        memory_before = memory_most = 0
        for _ in range(TURNS):
            for what in ("alone", *FLOODS, GREED):
                with _beside(broker, what):
                    arguments = (SINGLE, [0], VALUE_BYTES, scale.single_warm // TURNS, scale.single_messages // TURNS)
                    load = clients.run(broker, clients.one_at_a_time, [arguments], over_tls(broker))
                    took_us.setdefault(what, []).extend(load.results[0])
                    memory_before = memory_before or broker.rss_bytes()
                    if what in FLOODS:
                        memory_most = max(memory_most, broker.rss_bytes())
        p99_us = {what: quantiles(all_us, n=100)[98] for what, all_us in took_us.items()}
        ratios = {what: one / p99_us["alone"] for what, one in p99_us.items() if what != "alone"}
        return {"alone_us": p99_us["alone"], **ratios, "memory": (memory_most - memory_before) / MEGABYTE}


def _beside(broker: SecuredSemel, what: str) -> AbstractContextManager[None]:
    """While this lasts, strangers or the greedy client use the broker."""
    if what == "alone":
        return nullcontext()
    if what == GREED:
        return _greedy(broker)
    if what == "guessing":
        return strangers.guessing(USER, broker.doors.login_port)
    port = broker.doors.login_port if what in ("half_a_login", "asking") else broker.doors.tls_port
    return strangers.connecting(getattr(strangers, what), port)


@contextmanager
def _greedy(broker: Broker) -> Iterator[None]:
    """A client that has always more to send than it may. It has 100 KB batches and five requests under way."""
    from confluent_kafka import KafkaError, Message, Producer

    configuration = clients.producer_configuration(broker.bootstrap, idempotent=False)
    producer = Producer({**configuration, "client.id": GREEDY, "batch.size": 100_000, "linger.ms": 5})
    acknowledged = 0

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        nonlocal acknowledged
        acknowledged += error is None

    for number in range(clients.MESSAGES_QUEUED_MAX):
        producer.produce(GREEDY, b"x" * 1000, partition=number % PARTITIONS, on_delivery=on_delivery)
    try:
        yield
        producer.poll(0)
        if not 0 < acknowledged < clients.MESSAGES_QUEUED_MAX:
            raise clients.LoadFailed(f"the greedy client has sent {acknowledged} of its messages")
    finally:
        producer.purge()
        producer.flush(10)
