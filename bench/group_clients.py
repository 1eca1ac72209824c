"""Many members of one group, and one of them in a process that can be killed. Members are librdkafka's; the clock runs
from the moment they ask to join. Nothing here may know which broker it talks to."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, NamedTuple

from bench.clients import LoadFailed

if TYPE_CHECKING:
    from confluent_kafka import Consumer

SETTLED_SECONDS_MAX = 120.0
POLL_SECONDS = 0.001


SignsOfLife = tuple[int, int]
"""The session timeout and the heartbeat interval, in milliseconds."""


class GroupTimes(NamedTuple):
    """Seconds until every partition had its member: from the joining of all, and from the kill of one."""

    first_assignment: float
    after_kill: float


def join_and_lose_one(
    bootstrap: str, topic: str, partitions: int, members: int, signs_of_life: SignsOfLife
) -> GroupTimes:
    """Let so many members join at the same time, then kill one of them; wait each time until the partitions are all
    assigned again."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    victim = context.Process(target=_be_a_victim, args=(theirs, bootstrap, topic, signs_of_life), daemon=True)
    victim.start()
    consumers = [_connected(bootstrap, topic, signs_of_life) for _ in range(members - 1)]
    assigned_to_victim = 0
    try:
        ours.recv()
        started = time.perf_counter()
        ours.send("go")
        for consumer in consumers:
            consumer.subscribe([topic])

        def is_shared() -> bool:
            nonlocal assigned_to_victim
            while ours.poll():
                assigned_to_victim = ours.recv()
            shares = [_poll(consumer) for consumer in consumers] + [assigned_to_victim]
            return all(shares) and sum(shares) == partitions

        first_assignment = _seconds_until(is_shared, started)
        killed = time.perf_counter()
        victim.kill()
        after_kill = _seconds_until(lambda: sum(map(_poll, consumers)) == partitions, killed)
        return GroupTimes(first_assignment, after_kill)
    finally:
        victim.kill()
        victim.join()
        for consumer in consumers:
            consumer.close()


def _seconds_until(holds: Callable[[], bool], started: float) -> float:
    while not holds():
        if time.perf_counter() - started > SETTLED_SECONDS_MAX:
            raise LoadFailed(f"the group had not shared its partitions after {SETTLED_SECONDS_MAX:.0f} s")
    return time.perf_counter() - started


def _connected(bootstrap: str, topic: str, signs_of_life: SignsOfLife) -> Consumer:
    """A consumer that knows its broker and its topic, so that the clock counts the group's affairs alone."""
    from confluent_kafka import Consumer

    session_timeout_ms, heartbeat_interval_ms = signs_of_life
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "session.timeout.ms": session_timeout_ms,
            "heartbeat.interval.ms": heartbeat_interval_ms,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.list_topics(topic, timeout=30.0)
    return consumer


def _poll(consumer: Consumer) -> int:
    """Follow the group; how many partitions the member has."""
    consumer.poll(POLL_SECONDS)
    return len(consumer.assignment())


def _be_a_victim(connection: Connection, bootstrap: str, topic: str, signs_of_life: SignsOfLife) -> None:
    consumer = _connected(bootstrap, topic, signs_of_life)
    connection.send("connected")
    connection.recv()
    consumer.subscribe([topic])
    told = 0
    while True:
        assigned = _poll(consumer)
        if assigned != told:
            connection.send(assigned)
            told = assigned
