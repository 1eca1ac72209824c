"""A loop and a publisher go on by themselves when another broker takes over, whichever of the brokers stays away."""

from __future__ import annotations

import json
import threading

from sqlalchemy import Connection, Engine

from eventually import eventually
from semel.inbox import Inbox, Message
from semel.publish import Publisher, Record
from semel.testing.pair import BrokerPair


def identity(message: Message) -> str:
    return str(json.loads(message.value or b"")["id"])


class Line:
    """A publisher, and a loop that handles what it publishes, with the settings that both have by themselves."""

    def __init__(self, bootstrap: str, topic: str, engine: Engine) -> None:
        self._topic = topic
        self._publisher = Publisher(bootstrap, topic)
        self._handled: list[str] = []
        self._inbox = Inbox(engine, consumer="billing", identity=identity)
        settings = {"bootstrap.servers": bootstrap, "group.id": topic}
        self._loop = threading.Thread(target=self._inbox.run, args=(self._handle, settings, [topic]))

    def _handle(self, _connection: Connection, message: Message) -> None:
        self._handled.append(identity(message))

    def carries(self, number: int) -> bool:
        self._publisher.publish(number, Record(self._topic, None, json.dumps({"id": f"{number}"}).encode()))
        return eventually(lambda: f"{number}" in self._handled)

    def __enter__(self) -> Line:
        self._publisher.open()
        self._loop.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._inbox.stop()
        self._loop.join()
        self._publisher.close()


def test_a_publisher_and_a_loop_find_the_broker_that_took_over_back_after_the_other_has_gone_for_good(
    engine: Engine, topic: str
) -> None:
    """The broker that is active in the end has the address of the first one, which the clients have left long ago."""
    with BrokerPair() as pair:
        pair.active.create_topic(topic)
        with Line(pair.bootstrap, topic, engine) as line:
            assert line.carries(0)
            pair.take_over("stop")
            assert line.carries(1)
            pair.take_over("kill", comes_back=False)
            assert line.carries(2)
