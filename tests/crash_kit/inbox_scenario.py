"""A consumer with an inbox, killed: each event has its effect once, and what fails is put aside once.

The consumers of a run are one static member of their group: whoever begins anew has its partition at once, and a rival
takes it from the other, who ends with an error and is begun anew.
"""

from __future__ import annotations

import json
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, insert, select

from committed_records import make_topic
from crash_kit.survey import Place
from semel.database import engine_of
from semel.inbox import Inbox, LoopFailed, Message, Retries, metadata, quarantine

NAME = "inbox"
_TABLES = MetaData()
_EFFECTS = Table(
    "inbox_effects",
    _TABLES,
    Column("number", Integer, primary_key=True),
    Column("label", String, nullable=False),
    Column("event", String, nullable=False),
)
_EVENTS: Final = ("first", "first", "poison", "last")
# Looks for a record after which a member that gets none is taken to have come too late: its rival has done all.
_LOOKS_MAX: Final = 100


def prepare(place: Place) -> None:
    engine = engine_of(place.url)
    for tables in (metadata, _TABLES):
        tables.create_all(engine)
    engine.dispose()
    make_topic(place.bootstrap, place.label)
    producer = Producer({"bootstrap.servers": place.bootstrap, "enable.idempotence": True})
    for event in _EVENTS:
        producer.produce(place.label, json.dumps({"id": event}), partition=0)
    assert producer.flush(30) == 0


def work(place: Place) -> None:
    config = {"bootstrap.servers": place.bootstrap, "group.id": place.label, "log_level": 0}
    if _is_all_committed(config, place):
        return
    engine = engine_of(place.url)
    looks = 0

    def identity(message: Message) -> str:
        if message.offset == len(_EVENTS) - 1:
            # The message at hand is the last that it takes.
            inbox.stop()
        return str(json.loads(message.value or b"")["id"])

    def clock() -> int:
        nonlocal looks
        looks += 1
        if looks > _LOOKS_MAX:
            inbox.stop()
        return 1_770_000_000_000

    def handle(connection: Any, message: Message) -> None:
        event = json.loads(message.value or b"")["id"]
        connection.execute(insert(_EFFECTS).values(label=place.label, event=event))
        if event == "poison":
            raise RuntimeError(event)

    inbox = Inbox(
        engine,
        consumer=place.label,
        identity=identity,
        retries=Retries(attempts=2, first_wait_ms=1),
        clock=clock,
    )
    try:
        inbox.run(handle, {**config, "group.instance.id": "consumer"}, [place.label])
    except LoopFailed:
        # A rival is the member now. Whoever began this one begins it anew when the rival is gone.
        return
    finally:
        engine.dispose()


def audit(place: Place) -> None:
    engine: Engine = engine_of(place.url)
    with engine.begin() as connection:
        done = list(connection.scalars(select(_EFFECTS.c.event).where(_EFFECTS.c.label == place.label)))
        aside = [event.message_id for event in quarantine.open_events(connection, place.label)]
    engine.dispose()
    assert sorted(done) == ["first", "last"], f"done are {done}"
    assert aside == ["poison"], f"put aside are {aside}"
    assert _is_all_committed({"bootstrap.servers": place.bootstrap, "group.id": place.label}, place)


def _is_all_committed(config: dict[str, Any], place: Place) -> bool:
    client = Consumer(config)
    [found] = client.committed([TopicPartition(place.label, 0)], timeout=30)
    client.close()
    return bool(found.offset == len(_EVENTS))
