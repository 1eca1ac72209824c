"""The measure of the time for which clients wait when the broker that they write to is lost. It must never count a
takeover after which somebody forgot what was acknowledged."""

from __future__ import annotations

import math
import multiprocessing
import time
from collections import defaultdict
from itertools import chain
from statistics import median
from typing import ClassVar, Final

from bench import clients
from bench.bare_clients import WINDOW_BATCHES, Window
from bench.measures.contenders import STORES, STORES_NOTE
from bench.measures.measure import Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers.cluster import Cluster
from bench.peers.kafka_cluster import KafkaCluster
from bench.peers.process import Broker
from bench.peers.semel_on_store import SemelOnStore
from bench.peers.stores import Postgres, Seaweed
from bench.takeover_clients import PATIENCE_SECONDS, longest_wait

# Long enough that the clients are in the middle of their work.
BEFORE_SECONDS: Final = 0.3
# What comes on top of the time that semel takes.
THE_CLIENT: Final = (
    "librdkafka tries the broker that was lost again after longer and longer pauses, and asks for the coordinator of"
    " its transactions twice a second."
)
KILLED: Final = 4.5
PLANNED: Final = 1.0


def _rows(semel: str, where: str) -> tuple[Row, ...]:
    """The rows of semel on one store."""
    of = {"semel": semel, "tansu": None, "decimals": 2, "reason": THE_CLIENT}
    killed, planned = Target(Kind.VALUE_AT_MOST, KILLED), Target(Kind.VALUE_AT_MOST, PLANNED)
    wait = "the longest wait for an acknowledgement"
    in_transactions = "the same, each message in a transaction, s"
    controller = "(Kafka: its controller as well)"
    return (
        Row(f"kill -9 of the active broker {where}, {wait}, s", "killed", killed, **of),
        Row(in_transactions, "killed_in_transactions", killed, **of),
        Row(f"kill -9 {where} {controller}, {wait}, s", "killed", killed, kafka="kafka controller", **of),
        Row(in_transactions, "killed_in_transactions", killed, kafka="kafka controller", **of),
        Row(f"SIGTERM to the active broker {where}, {wait}, s", "planned", planned, **of),
        Row(in_transactions, "planned_in_transactions", planned, **of),
        Row(
            f"producers that did not go on within {PATIENCE_SECONDS:.0f} s {where}, in all of these takeovers",
            "hanging",
            Target(Kind.VALUE_AT_MOST, 0),
            semel=semel,
            tansu=None,
        ),
        Row(
            f"batches of the {WINDOW_BATCHES} that a producer sent before, known after each takeover {where}",
            "known",
            Target(Kind.VALUE_AT_LEAST, WINDOW_BATCHES),
            semel=semel,
            tansu=None,
        ),
    )


class Takeover(Measure):
    """One idempotent producer sends one message after another, and another one does the same in transactions. Then the
    broker that they write to is killed by `kill -9`, or stopped by SIGTERM, and another one takes over. The figure is
    the median of the longest times that each of the two waited for an acknowledgement, over ten takeovers of each kind.
    Everything is at its defaults: semel's lease of 3 s, Kafka's session of 9 s, and the clients' pauses. The clients
    know all addresses. The broker that was lost stays away until both have gone on. A producer that has not gone on
    after 30 s counts as one that never does: its time is infinite.

    semel has one standby. What is lost with its active broker is everything at once; so in Kafka it is the broker that
    leads the partition and coordinates the transactions. Whether that is the controller as well is by chance there, and
    decides how long it takes, so both are measured. A broker that was lost comes back, and all replicas are in sync,
    before the next takeover.

    A third producer has sent five batches to the partition, and sends them again after the takeover, as one does whose
    acknowledgements were lost. A batch is known if the answer has its first offset. The figure is the fewest that were
    known after any of the takeovers."""

    name = "takeover"
    contenders: ClassVar[Contenders] = {
        "semel seaweedfs": lambda: SemelOnStore(Seaweed, brokers=2),
        "semel postgresql": lambda: SemelOnStore(Postgres, brokers=2),
        "kafka": KafkaCluster,
        "kafka controller": lambda: KafkaCluster(loses_controller=True),
    }
    rows = tuple(row for semel, where in STORES.items() for row in _rows(semel, where))
    notes = (STORES_NOTE, "takeover has one round, because each has ten takeovers of each kind.")
    rounds_max = 1

    def run(self, broker: Cluster, scale: Scale) -> Figures:
        broker.start()
        waits: dict[str, list[float]] = defaultdict(list)
        known = []
        for how in ("killed", "planned"):
            for number in range(scale.takeovers):
                topic = f"{how}-{number}"
                lost = broker.create_topic_to_lose(topic)
                window = Window(broker.bootstrap, topic)
                before = window.offsets()
                idempotent, in_transactions = _taken_over(broker, lost, topic, how)
                after = window.offsets()
                waits[how].append(idempotent)
                waits[f"{how}_in_transactions"].append(in_transactions)
                known.append(sum(one == again for one, again in zip(before, after, strict=True)))
                broker.restore(lost)
        hanging = sum(map(math.isinf, chain.from_iterable(waits.values())))
        return {
            "known": min(known),
            "hanging": hanging,
            **{metric: median(seconds) for metric, seconds in waits.items()},
        }


def _taken_over(broker: Cluster, lost: Broker, topic: str, how: str) -> list[float]:
    """The longest wait of a producer without transactions, and of one with them."""
    lost_at = multiprocessing.get_context("spawn").Value("d", 0.0)

    def lose() -> None:
        time.sleep(BEFORE_SECONDS)
        if how == "killed":
            lost.kill()
        else:
            lost.shut_down()
        lost_at.value = time.perf_counter()

    ids = (None, broker.id_coordinated_by(lost, topic))
    arguments = [(topic, transactional_id, lost_at) for transactional_id in ids]
    return clients.run(broker, longest_wait, arguments, meanwhile=lose).results
