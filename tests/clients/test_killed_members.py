"""A consumer that dies by `kill -9` is missed long before its session is over, because its connection is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from client_contract import GroupProtocol
from confluent_client import ConfluentClient
from group_members import RunningMember

from eventually import eventually
from semel.testing.served import ServedBroker

# Far more than the test waits; one percent of it is not.
SESSION_MS = 300_000
LIMITS = ("consumer_group_session_timeout_ms=300000", "group_lost_connection_session_percent=1")

PROGRAM = """
import sys
from confluent_kafka import Consumer

bootstrap, group, *settings = sys.argv[1:]
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **dict(one.split("=") for one in settings)})
consumer.subscribe([group])
while True:
    consumer.poll(0.1)
"""


@pytest.mark.parametrize(
    ("protocol", "settings"),
    [("eager", [f"session.timeout.ms={SESSION_MS}"]), ("consumer", ["group.protocol=consumer"])],
    ids=["classic", "consumer"],
)
def test_others_read_what_a_killed_consumer_had(
    serve: Callable[..., ServedBroker], topic: str, protocol: GroupProtocol, settings: list[str]
) -> None:
    broker = serve(*(option for limit in LIMITS for option in ("--limit", limit)))
    places = {(topic, 0), (topic, 1)}
    with ConfluentClient(broker.bootstrap) as client:
        client.create_topic(topic, len(places))
        with (
            subprocess.Popen([sys.executable, "-c", PROGRAM, broker.bootstrap, topic, *settings]) as doomed,
            RunningMember(lambda: client.member(topic, [topic], protocol=protocol)) as staying,
        ):
            try:
                assert eventually(lambda: len(staying.assignment) == 1)
            finally:
                doomed.kill()
            assert eventually(lambda: staying.assignment == places)
