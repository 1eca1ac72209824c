"""The measures of what locks cost: TLS, logins and access rules. A client that has not logged in, or does not trust the
certificate, must never be counted."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import ClassVar

from bench import clients
from bench.measures.measure import MEGABYTE, MISSING, Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers.process import Broker
from bench.peers.secured import (
    CIPHER,
    PASSWORD,
    USER,
    GuardedSemel,
    SecuredKafka,
    SecuredSemel,
    over_tls,
    with_logins,
)
from bench.sides import take_turns
from semel.client import users
from semel.client.cluster import Cluster
from semel.client.settings import ClientSettings, from_options
from semel.log.core.access import CLUSTER_NAME, Operation, Pattern, Permission, ResourceType
from semel.wire.kafka.create_acls import AclCreation, CreateAclsRequest
from semel.wire.scram import Mechanism

TOPIC = "sealed"
SINGLE = "sealed-single"
PARTITIONS = 4
KILOBYTE = 1000
SMALL_BYTES = 100
ITERATIONS = 4_096
LOGINS = 1_000
RULES = 10_000
RULES_PER_REQUEST = 500
FLOODS = 16


class Tls(Measure):
    """Produce and read 1 KB messages, and send one 100 B message at a time, over TLS 1.3 with the same cipher on both
    sides. What counts is what the broker can do with a CPU second, since one client is slower than either."""

    name = "tls"
    contenders: ClassVar[Contenders] = {"semel": SecuredSemel, "kafka": SecuredKafka}
    notes = (f"TLS 1.3, {CIPHER}; a certificate with a key on the curve P-256",)
    rows = (
        Row(
            "produce 1 KB over TLS, MB per broker CPU second",
            "produced_per_cpu_second",
            Target(Kind.RATIO_AT_LEAST, 1.5),
            tansu=None,
        ),
        Row("the same, MB/s", "produced_per_second", tansu=None, decimals=1),
        Row(
            "consume 1 KB over TLS, MB per broker CPU second",
            "consumed_per_cpu_second",
            Target(Kind.RATIO_AT_LEAST, 1.0),
            tansu=None,
        ),
        Row("the same, MB/s", "consumed_per_second", tansu=None, decimals=1),
        Row("one idempotent message at a time over TLS, p50 us", "p50_us", Target(Kind.RATIO_AT_MOST, 0.8), tansu=None),
    )

    def run(self, broker: Broker, scale: Scale) -> Figures:
        broker.start()
        for topic, partitions in ((f"{TOPIC}-warm", PARTITIONS), (TOPIC, PARTITIONS), (SINGLE, 1)):
            clients.create_topic(broker, topic, partitions)
        address = over_tls(broker)
        warm, count = scale.warm_bytes // KILOBYTE, scale.flood_bytes // KILOBYTE
        for topic, messages in ((f"{TOPIC}-warm", warm), (TOPIC, count)):
            arguments = (topic, PARTITIONS, KILOBYTE, messages, True)
            written = clients.run(broker, clients.flood, [arguments], address)
        stored = clients.count_stored(broker, TOPIC, PARTITIONS)
        reads = [clients.run(broker, clients.read_all, [(TOPIC, PARTITIONS, stored)], address) for _ in range(2)]
        single = (SINGLE, [0], SMALL_BYTES, scale.single_warm, scale.single_messages)
        took_us = clients.run(broker, clients.one_at_a_time, [single], address).results[0]
        return {
            "produced_per_cpu_second": count * KILOBYTE / MEGABYTE / written.broker_cpu_seconds,
            "produced_per_second": count * KILOBYTE / MEGABYTE / written.elapsed_seconds,
            "consumed_per_cpu_second": reads[1].results[0] / MEGABYTE / reads[1].broker_cpu_seconds,
            "consumed_per_second": reads[1].results[0] / MEGABYTE / reads[1].elapsed_seconds,
            "p50_us": median(took_us),
            MISSING: written.results[0] - stored,
        }


class Logins(Measure):
    """A thousand clients log in by SCRAM-SHA-256, one after the other, over a connection each. The client is semel's
    own on both sides, and hashes the password each time, so that it takes far longer than the broker. As many logins
    before them warm the brokers up."""

    name = "logins"
    contenders: ClassVar[Contenders] = {"semel": SecuredSemel, "kafka": SecuredKafka}
    rows = (
        Row(
            "broker CPU seconds for 1,000 logins by SCRAM",
            "cpu_seconds",
            Target(Kind.RATIO_AT_MOST, 1.0),
            tansu=None,
            decimals=2,
        ),
    )

    def run(self, broker: Broker, scale: Scale) -> Figures:
        broker.start()
        with Cluster(settings_of(broker.bootstrap)) as cluster:
            users.set_password(cluster, USER, PASSWORD, ITERATIONS, Mechanism.SCRAM_SHA_256)
        arguments = (USER, PASSWORD, LOGINS)
        for _ in ("warm", "measured"):
            load = clients.run(broker, clients.log_in, [arguments], with_logins(broker))
        return {"cpu_seconds": load.broker_cpu_seconds}


class AccessChecks(Measure):
    """Messages of 100 B by a client whose rights are decided by ten thousand rules, beside another broker on which
    there are only those that let it, by turns. Half of the rules are about this client and other topics, and half about
    this topic and other clients."""

    name = "access-checks"
    contenders: ClassVar[Contenders] = {"semel": GuardedSemel}
    rows = (
        Row(
            "broker CPU with 10,000 access rules, times that with two",
            "ratio",
            Target(Kind.VALUE_AT_MOST, 1.03),
            kafka=None,
            tansu=None,
            decimals=3,
        ),
    )

    def run(self, broker: Broker, scale: Scale) -> Figures:
        few = GuardedSemel()
        try:
            for one, rules in ((few, LETS_IN), (broker, [*LETS_IN, *OTHER_RULES])):
                one.start()
                _add(one, rules)
                clients.create_topic(one, TOPIC, PARTITIONS)
            # Each flood is long enough for a checkpoint.
            arguments = (TOPIC, PARTITIONS, SMALL_BYTES, scale.small_messages // 4, True)
            spent: dict[int, list[float]] = {few.port: [], broker.port: []}
            # The first turn warms up.
            for turn, side in take_turns((few, broker), 1 + FLOODS):
                load = clients.run(side, clients.flood, [arguments])
                if turn:
                    spent[side.port].append(load.broker_cpu_seconds)
            # Turn by turn, because the machine is faster at some times than at others.
            pairs = zip(spent[broker.port], spent[few.port], strict=True)
            return {"ratio": median(many / two for many, two in pairs)}
        finally:
            few.stop()


def settings_of(bootstrap: str, **login: str) -> ClientSettings:
    options = {"bootstrap.servers": bootstrap, **{name.replace("_", "."): value for name, value in login.items()}}
    return from_options({f"kafka.{name}": value for name, value in options.items()})


def _rule(kind: ResourceType, name: str, principal: str = "User:ANONYMOUS") -> AclCreation:
    return AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=Pattern.LITERAL,
        principal=principal,
        host="*",
        operation=Operation.ALL,
        permission_type=Permission.ALLOW,
    )


LETS_IN = [_rule(ResourceType.TOPIC, TOPIC), _rule(ResourceType.CLUSTER, CLUSTER_NAME)]
OTHER_RULES = [
    rule
    for number in range(RULES // 2)
    for rule in (
        _rule(ResourceType.TOPIC, f"other-{number}"),
        _rule(ResourceType.TOPIC, TOPIC, principal=f"User:other-{number}"),
    )
]


def _add(broker: Broker, rules: Sequence[AclCreation]) -> None:
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256"}
    settings = settings_of(with_logins(broker), **login, sasl_username=USER, sasl_password=PASSWORD)
    with Cluster(settings) as cluster:
        for first in range(0, len(rules), RULES_PER_REQUEST):
            creations = rules[first : first + RULES_PER_REQUEST]
            for result in cluster.ask_controller(CreateAclsRequest(creations=creations)).results:
                if result.error_code:
                    raise clients.LoadFailed(f"a rule was refused: {result.error_message}")
