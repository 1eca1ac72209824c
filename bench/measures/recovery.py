"""The measure of the way back after a crash. It must never count a recovery that lost an acknowledged message."""

from __future__ import annotations

from typing import ClassVar

from bench import clients
from bench.measures.measure import Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers.kafka import Kafka
from bench.peers.process import Broker
from bench.peers.semel import Semel

TOPIC = "recovery"
PARTITIONS = 8
VALUE_BYTES = 1000

SHORT_SESSION = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "300"}


class Recovery(Measure):
    """1 GB of idempotent messages in 8 partitions, then `kill -9`, then the time from the start of the new process
    until every partition has acknowledged a message again: how long a crash keeps everyone waiting. All that was
    acknowledged must be there afterwards. As in the start, the message is not idempotent,
    because of the client's timer.

    A Kafka that was killed is refused by its own controller until the session of its former self has run out, 9 s by
    default. Its users wait for that, but it is no recovery of a log, so Kafka also runs with a session of 1 s."""

    name = "recovery"
    contenders: ClassVar[Contenders] = {
        "semel": Semel,
        "kafka": Kafka,
        "kafka short session": lambda: Kafka(properties=SHORT_SESSION),
    }
    rows = (
        Row(
            "ready again after kill -9 with 1 GB in 8 partitions, s",
            "recovery_seconds",
            Target(Kind.RATIO_AT_MOST, round(1 / 3, 3)),
            tansu=None,
            decimals=2,
        ),
        Row(
            "the same, Kafka with a session of 1 s",
            "recovery_seconds",
            Target(Kind.RATIO_AT_MOST, round(1 / 3, 3)),
            kafka="kafka short session",
            tansu=None,
            decimals=2,
        ),
    )
    notes = ("Tansu in memory has nothing to recover.",)

    def run(self, broker: Broker, scale: Scale) -> Figures:
        broker.start()
        clients.create_topic(broker, TOPIC, PARTITIONS)
        messages = scale.recovery_bytes // VALUE_BYTES
        arguments = (TOPIC, PARTITIONS, VALUE_BYTES, messages, True)
        acknowledged: int = clients.run(broker, clients.flood, [arguments]).results[0]
        broker.kill()
        broker.start(wait=False)
        recovery_seconds = clients.first_ack(broker, TOPIC, partitions=PARTITIONS) - broker.started_at
        stored = clients.count_stored(broker, TOPIC, PARTITIONS)
        if stored < acknowledged + PARTITIONS:
            raise clients.LoadFailed(
                f"{acknowledged + PARTITIONS} messages acknowledged, {stored} there after the kill"
            )
        return {"recovery_seconds": recovery_seconds}
