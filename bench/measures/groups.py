"""The measure of how soon a group has shared its partitions: when all its members come at once, and when one dies."""

from __future__ import annotations

from typing import ClassVar

from bench import clients
from bench.group_clients import join_and_lose_one
from bench.measures.measure import Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers.kafka import Kafka
from bench.peers.process import Broker
from bench.peers.semel import Semel
from bench.peers.tansu import Tansu

TOPIC = "groups"
MEMBERS = 20
PARTITIONS = 40
SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_INTERVAL_MS = 700
"""A member is told of a change at its next heartbeat. The default of 3 s goes twice into the session: whether a
heartbeat came just before or just after its end would then decide the figure."""


class Groups(Measure):
    """Twenty members join at the same time and share forty partitions; then one is killed, and the others share what it
    had. The second figure includes the time for which a broker waits before it takes a silent member for dead: its
    session of 6 s, or, at semel, the share of it that a member has left after its connection is lost."""

    name = "groups"
    contenders: ClassVar[Contenders] = {"semel": Semel, "kafka": Kafka, "tansu": Tansu}
    rows = (
        Row(
            "group of 20 members, to the first assignment, s",
            "first_assignment_seconds",
            Target(Kind.RATIO_AT_MOST, 0.5),
            decimals=2,
        ),
        Row(
            "the same, to the reassignment after a kill (session 6 s), s",
            "after_kill_seconds",
            Target(Kind.RATIO_AT_MOST, 0.5),
            decimals=2,
        ),
    )

    def run(self, broker: Broker, scale: Scale) -> Figures:
        broker.start()
        clients.create_topic(broker, TOPIC, PARTITIONS)
        times = join_and_lose_one(
            broker.bootstrap, TOPIC, PARTITIONS, MEMBERS, (SESSION_TIMEOUT_MS, HEARTBEAT_INTERVAL_MS)
        )
        return {"first_assignment_seconds": times.first_assignment, "after_kill_seconds": times.after_kill}
