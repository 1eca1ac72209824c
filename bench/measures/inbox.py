"""The measure of the inbox: events that are handled once beside events that are just handled. Both commit as often and
are as durable; it must never count a run in which an effect is missing."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Sequence
from statistics import median
from typing import ClassVar, Final

from sqlalchemy import Column, Engine, Integer, MetaData, Table, Text, func, insert, select

from bench.clients import LoadFailed
from bench.databases import TITLES, Databases
from bench.measures.measure import Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers.process import Broker
from bench.peers.semel import Semel
from bench.sides import take_turns
from semel import inbox
from semel.database import engine_of

BATCH_EVENTS: Final = 500
BATCHES_OF_TURN: Final = 2
CONSUMER: Final = "billing"
CENTS: Final = 950

tables: Final = MetaData()
bookings: Final = Table(
    "bookings", tables, Column("id", Integer, primary_key=True), Column("event", Text), Column("cents", Integer)
)


class Inbox(Measure):
    """Events a second that one consumer handles on one connection; the effect of each is a row in a table of bookings.
    One event in a transaction, claimed by `inbox.once`, beside the same transaction without the claim: the smallest
    effect there is, so that the claim weighs most. Then batches of 500 in a transaction, claimed in one statement by
    `claim_many`, and booked in another, beside one by one. Ids are UUIDs of version 7. The peer is what stands after
    the semicolon. All take turns in one database, with fsync."""

    name = "inbox"
    contenders: ClassVar[Contenders] = {"semel": Semel}
    rows = tuple(
        row
        for kind, title in TITLES.items()
        for row in (
            Row.beside(
                f"inbox, {title}, one event a transaction; the effect without a claim, events/s",
                f"{kind}_once",
                f"{kind}_bare",
                Target(Kind.RATIO_AT_LEAST, 0.75),
                reason="the effect is one statement and a commit, and the claim is one statement more.",
            ),
            Row.beside(
                f"inbox, {title}, batches of {BATCH_EVENTS}; one event a transaction, events/s",
                f"{kind}_batches",
                f"{kind}_once",
                Target(Kind.RATIO_AT_LEAST, 20.0),
            ),
        )
    )

    def run(self, broker: Broker, scale: Scale) -> Figures:
        """The broker stays where it is: events come from memory, so that the time is the database's and the inbox's."""
        figures = {}
        with Databases() as databases:
            for kind in TITLES:
                rates = rates_on(engine_of(databases.new(kind)), scale.inbox_turns, scale.inbox_events)
                figures |= {f"{kind}_{way}": rate for way, rate in rates.items()}
        return figures


def rates_on(engine: Engine, turns: int, events: int) -> dict[str, float]:
    """Events a second by the name of the way: the median of its turns."""
    inbox.metadata.create_all(engine)
    tables.create_all(engine)
    ways = {
        "bare": (handle_bare, events),
        "once": (handle_once, events),
        "batches": (handle_in_batches, BATCH_EVENTS * BATCHES_OF_TURN),
    }
    found: dict[str, list[float]] = {way: [] for way in ways}
    # The first turn is for statements and connections to become warm.
    for turn, way in take_turns(ways, turns + 1):
        handle, count = ways[way]
        ids = [uuid7() for _ in range(count)]
        began = time.perf_counter()
        handle(engine, ids)
        if turn:
            found[way].append(count / (time.perf_counter() - began))
    check_booked(engine, (turns + 1) * sum(count for _, count in ways.values()))
    engine.dispose()
    return {way: median(rates) for way, rates in found.items()}


def handle_bare(engine: Engine, ids: Sequence[str]) -> None:
    for event in ids:
        with engine.begin() as connection:
            connection.execute(insert(bookings), {"event": event, "cents": CENTS})


def handle_once(engine: Engine, ids: Sequence[str]) -> None:
    for event in ids:
        with (
            engine.begin() as connection,
            inbox.once(connection, consumer=CONSUMER, message_id=event) as first,
        ):
            if first:
                connection.execute(insert(bookings), {"event": event, "cents": CENTS})


def handle_in_batches(engine: Engine, ids: Sequence[str]) -> None:
    for start in range(0, len(ids), BATCH_EVENTS):
        batch = ids[start : start + BATCH_EVENTS]
        with engine.begin() as connection:
            due = inbox.claim_many(connection, CONSUMER, batch)
            connection.execute(insert(bookings), [{"event": event, "cents": CENTS} for event in batch if event in due])


def check_booked(engine: Engine, events: int) -> None:
    with engine.connect() as connection:
        booked = connection.scalar(select(func.count()).select_from(bookings))
    if booked != events:
        raise LoadFailed(f"{booked} bookings of {events} events")


def uuid7() -> str:
    """As producers of events make them: the time in front, then chance."""
    drawn = int.from_bytes(os.urandom(10))
    milliseconds = time.time_ns() // 1_000_000
    return str(uuid.UUID(int=milliseconds << 80 | 0x7 << 76 | (drawn >> 68) << 64 | 0b10 << 62 | drawn & (1 << 62) - 1))
