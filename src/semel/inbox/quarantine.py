"""The quarantine: messages that were put aside, each once, until a person has them retried or dropped.

A row that is done or dropped loses its message, and stays as long as a claim does, so that the same message, delivered
again, is recognised. The loop retries due messages before it reads new ones. The event of a dropped message is a
duplicate from then on. Nothing here calls a handler, and each call runs in the caller's transaction.
"""

import hashlib
import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, select, update

from semel.database.dialects import insert_new, is_new
from semel.inbox.events import Headers, Message, Outcome, Version, time_of
from semel.inbox.tables import claims, quarantine
from semel.inbox.versions import claim_version

REASON_CHARACTERS_MAX: Final = 500
_PUT: Final = insert_new(quarantine)
_CLAIM: Final = insert_new(claims)
_FORGOTTEN: Final[dict[str, None]] = {"key": None, "value": None, "headers": None}


# The beginning of a subject that is an event id.
ID_SUBJECT: Final = "id:"


class State(StrEnum):
    HELD = "held"
    """Waits for a person."""
    DUE = "due"
    """A person has marked it for a retry, which the loop makes."""
    DONE = "done"
    DROPPED = "dropped"


class Cause(StrEnum):
    FAILED = "failed"
    UNDECODABLE = "undecodable"
    GAP = "gap"
    FLOOR = "floor"


class Aside(NamedTuple):
    """A message or an event to put aside, and why."""

    consumer: str
    subject: str
    cause: Cause
    reason: str
    at_ms: int
    attempts: int = 0
    message: Message | None = None


class QuarantinedEvent(NamedTuple):
    """A message or an event that was put aside."""

    number: int
    consumer: str
    subject: str
    state: State
    cause: Cause
    reason: str
    attempts: int
    quarantined_at_ms: int
    message: Message | None

    @property
    def message_id(self) -> str | None:
        """The event id that was claimed when this was put aside."""
        kind, _, name = self.subject.partition(":")
        return name if kind == "id" else None

    @property
    def version(self) -> Version | None:
        kind, _, name = self.subject.partition(":")
        version, _, aggregate = name.partition(":")
        return Version(aggregate, int(version)) if kind == "version" else None


def subject_of(identity: str | Version) -> str:
    if isinstance(identity, Version):
        return f"version:{identity.version}:{identity.aggregate}"
    return f"{ID_SUBJECT}{identity}"


def subject_of_record(message: Message) -> str:
    """The subject of a record without an identity: its place and its content, because a topic can be recreated."""
    digest = hashlib.sha256(
        repr((message.topic, message.partition, message.offset, message.key, message.value)).encode()
    )
    return f"record:{digest.hexdigest()}"


def put(connection: Connection, aside: Aside) -> bool:
    """False if it was put aside before."""
    values: dict[str, Any] = {
        "consumer": aside.consumer,
        "subject": aside.subject,
        "state": State.HELD.value,
        "cause": aside.cause.value,
        "reason": one_line(aside.reason),
        "attempts": aside.attempts,
        "quarantined_at_ms": aside.at_ms,
        **(_columns(aside.message) if aside.message is not None else {}),
    }
    return is_new(connection, _PUT, values)


def one_line(reason: str) -> str:
    """The text of an error in a form that PostgreSQL can store and a terminal can show: it may contain data that a
    stranger has sent."""
    line = " ".join(reason.replace("\0", "").split())[:REASON_CHARACTERS_MAX]
    shown = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    return "".join(shown)[:REASON_CHARACTERS_MAX]


def events(
    connection: Connection, *, consumer: str | None, states: Sequence[State], count_max: int | None = None
) -> list[QuarantinedEvent]:
    """The events in the order in which they were put aside: all, or the first `count_max`."""
    statement = select(quarantine).where(quarantine.c.state.in_([state.value for state in states]))
    if consumer is not None:
        statement = statement.where(quarantine.c.consumer == consumer)
    return [_event_of_row(row) for row in connection.execute(statement.order_by(quarantine.c.number).limit(count_max))]


def due_numbers(connection: Connection, consumer: str, count_max: int) -> list[int]:
    statement = (
        select(quarantine.c.number)
        .where(quarantine.c.state == State.DUE.value, quarantine.c.consumer == consumer)
        .order_by(quarantine.c.number)
        .limit(count_max)
    )
    return list(connection.scalars(statement))


def event_of(connection: Connection, number: int) -> QuarantinedEvent | None:
    row = connection.execute(select(quarantine).where(quarantine.c.number == number)).first()
    return None if row is None else _event_of_row(row)


def move(connection: Connection, number: int, source: State, target: State) -> bool:
    """False if it is not, or no longer, in the state `source`: another transaction was first."""
    statement = update(quarantine).where(quarantine.c.number == number, quarantine.c.state == source.value)
    return connection.execute(statement.values(state=target.value)).rowcount == 1


def renew_claim(connection: Connection, event: QuarantinedEvent, now_ms: int) -> None:
    """The event is done or dropped only now, so its claim counts from now on. An event below the
    floor has none yet."""
    message_id = event.message_id
    if message_id is None:
        return
    event_time_ms = time_of(message_id)
    if event_time_ms is None:
        event_time_ms = event.message.timestamp_ms if event.message is not None else None
    row = {
        "consumer": event.consumer,
        "message_id": message_id,
        "event_time_ms": now_ms if event_time_ms is None else event_time_ms,
        "claimed_at_ms": now_ms,
    }
    if not is_new(connection, _CLAIM, row):
        of_event = claims.c.consumer == event.consumer, claims.c.message_id == message_id
        connection.execute(update(claims).where(*of_event).values(claimed_at_ms=now_ms))


def forget_message(connection: Connection, number: int) -> None:
    connection.execute(update(quarantine).where(quarantine.c.number == number).values(_FORGOTTEN))


def hold_again(connection: Connection, number: int, source: State, reason: str) -> None:
    """It failed again and waits for a person, unless it has left the state `source` meanwhile."""
    connection.execute(
        update(quarantine)
        .where(quarantine.c.number == number, quarantine.c.state == source.value)
        .values(state=State.HELD.value, reason=one_line(reason), attempts=quarantine.c.attempts + 1)
    )


def _columns(message: Message) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp_ms": message.timestamp_ms,
        "key": message.key,
        "value": message.value,
        "headers": json.dumps([[name, None if value is None else value.hex()] for name, value in message.headers]),
    }


def _event_of_row(row: Row[Any]) -> QuarantinedEvent:
    return QuarantinedEvent(
        row.number,
        row.consumer,
        row.subject,
        State(row.state),
        Cause(row.cause),
        row.reason,
        row.attempts,
        row.quarantined_at_ms,
        _message(row),
    )


def _message(row: Row[Any]) -> Message | None:
    if row.headers is None:
        return None
    headers: Headers = tuple(
        (name, None if value is None else bytes.fromhex(value)) for name, value in json.loads(row.headers)
    )
    return Message(row.topic, row.partition, row.offset, row.key, row.value, headers, row.timestamp_ms)


# -- what a person does ------------------------------------------------------------------------------------------------


class Unsettled(ValueError):
    """The quarantined event is not in a state in which this is possible."""


OPEN = (State.HELD, State.DUE)


def open_events(
    connection: Connection, consumer: str | None = None, count_max: int | None = None
) -> list[QuarantinedEvent]:
    """The events that wait for a person or for the loop, in the order in which they were put aside: all, or the first
    `count_max`."""
    return events(connection, consumer=consumer, states=OPEN, count_max=count_max)


def retry(connection: Connection, numbers: Sequence[int]) -> None:
    """Mark the events as due; the loop of the consumer retries them in the order in which they were put aside."""
    for number in numbers:
        if open_event(connection, number).message is None:
            raise Unsettled(
                f"{number} has no message that a loop could take: it was claimed outside of one; deal with it, then "
                "drop it"
            )
        move(connection, number, State.HELD, State.DUE)


def drop(connection: Connection, numbers: Sequence[int], *, first_version: int, now_ms: int) -> None:
    """Drop the events, which are then never retried. A dropped version counts as accepted, so that the versions after
    it can be retried."""
    for number in numbers:
        event = open_event(connection, number)
        version = event.version
        if version is not None and not _is_passed(
            claim_version(connection, event.consumer, version, first_version, now_ms)
        ):
            raise Unsettled(
                f"{number} is version {version.version} of {version.aggregate}, and one before it is still missing: "
                "deal with that first"
            )
        if not move(connection, number, event.state, State.DROPPED):
            raise Unsettled(f"{number} was taken by a loop just now")
        renew_claim(connection, event, now_ms)
        forget_message(connection, number)


def _is_passed(outcome: Outcome) -> bool:
    return outcome in (Outcome.ACCEPTED, Outcome.DUPLICATE)


def open_event(connection: Connection, number: int) -> QuarantinedEvent:
    """The event with this number, if it waits for a person or for the loop; otherwise Unsettled."""
    event = event_of(connection, number)
    if event is None or event.state not in OPEN:
        raise Unsettled(f"there is no {number} in the quarantine" + ("" if event is None else f" now: {event.state}"))
    return event
