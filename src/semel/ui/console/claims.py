"""Claims of an application: what waits in the tables of outbox, inbox and HTTP keys, and the changes for messages that
were put aside.

Each database is asked separately, and its errors are shown at its name. A table that a database does not have is left
out. Lists are limited; the counts beside them include all rows.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import URL, Connection, Engine, FromClause, column, event, func, inspect, select, table
from sqlalchemy.exc import NoSuchModuleError, SQLAlchemyError

from semel.database.clock import now_ms
from semel.database.dialects import dialect_of
from semel.database.engines import blocking_engine_of, missing_file, reader_of
from semel.database.errors import one_line
from semel.inbox import quarantine as inbox_quarantine
from semel.inbox.quarantine import QuarantinedEvent
from semel.inbox.quarantine import Unsettled as UnsettledInbox
from semel.inbox.tables import floors
from semel.inbox.tables import quarantine as inbox_table
from semel.outbox import quarantine as outbox_quarantine
from semel.outbox import status
from semel.outbox.errors import Unsettled as UnsettledOutbox
from semel.outbox.quarantine import RefusedMessage
from semel.outbox.tables import messages
from semel.ui.console.applications import Applications
from semel.ui.console.http import PageRefused
from semel.ui.console.plans import Plan
from semel.ui.console.query import Query
from semel.ui.console.records import field
from semel.watch.gauges import ASIDE, IN_FLIGHT, figures

# How many rows each list of each database shows.
ROWS_MAX: Final = 50
_CONNECT_SECONDS_MAX: Final = 5
# PostgreSQL ends a statement after this time, such as one that waits for a lock on a table that is being altered.
STATEMENT_MS_MAX: Final = 5_000
# After this time without a sign of a server that has not even closed the connection, the connection is lost.
_SILENCE_MS_MAX: Final = 10_000
# The secrets that PostgreSQL's library accepts as parameters of a URL.
_SECRETS: Final = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")

# The claim of a Spark sink into tables: its last batch, in the same database as its rows.
_SINKS: Final = table(
    "semel_batches",
    *(column("sink_id"), column("query_id"), column("batch_id"), column("row_count"), column("committed_at")),
)

Answer = dict[str, Any]


class Databases:
    """The databases from the console's options, in their order."""

    def __init__(self, urls: Sequence[str], applications: Sequence[str] = ()) -> None:
        """`applications` are the addresses of their counters. ValueError for an invalid URL, ImportError if a driver is
        missing.
        """
        self._engines = [_engine(url) for url in urls]
        self._readers = [reader_of(engine) for engine in self._engines]
        self._applications = Applications(applications)

    def every(self, query: Query) -> Answer:
        """What waits in each database, and the counts of the applications."""
        return {
            "databases": [self._one(number) for number in range(len(self._engines))],
            "applications": self._applications.every(),
        }

    def _one(self, number: int) -> Answer:
        engine = self._readers[number]
        shown: Answer = {"number": number, "name": _shown(engine.url), "error": None}
        try:
            _refuse_missing_file(engine)
            waiting = {_named(one.name, one.labels): one.value for one in figures(engine, (IN_FLIGHT, ASIDE))}
            with engine.connect() as connection:
                return {**shown, "figures": waiting, **_waiting(connection)}
        except (SQLAlchemyError, PageRefused) as error:
            return {**shown, "error": one_line(error) if isinstance(error, SQLAlchemyError) else str(error)}

    def settle(self, how: str, query: Query) -> Plan:
        """What is done with a message that was put aside."""
        way, number = _WAYS[how], query.number("message")

        def do() -> str:
            with self._asked(self._engines, query) as connection:
                way.work(connection, number)
            return f"Message {number} {way.done}."

        with self._asked(self._readers, query) as connection:
            reason, *seen = way.look(connection, number)
        return Plan(do, f"{way.verb} message {number}?", way.verb, says=(reason, way.effect), seen=[reason, *seen])

    @contextlib.contextmanager
    def _asked(self, engines: Sequence[Engine], query: Query) -> Iterator[Connection]:
        engine = engines[query.number("database", most=len(self._engines) - 1)]
        try:
            _refuse_missing_file(engine)
            with engine.begin() as connection:
                yield connection
        except (UnsettledInbox, UnsettledOutbox) as error:
            raise PageRefused(400, str(error)) from None
        except SQLAlchemyError as error:
            raise PageRefused(502, f"the database: {one_line(error)}") from None


def _look_at_refused(connection: Connection, number: int) -> list[Any]:
    for one in outbox_quarantine.refused_messages(connection, number=number):
        return [one.reason, one.topic, one.refused_at_ms]
    raise UnsettledOutbox(f"there is no {number} in the quarantine")


def _look_at_aside(connection: Connection, number: int) -> list[Any]:
    one = inbox_quarantine.open_event(connection, number)
    return [one.reason, one.subject, one.state, one.attempts]


class _Way(NamedTuple):
    """What a person can do with a message that was put aside."""

    look: Callable[[Connection, int], list[Any]]
    work: Callable[[Connection, int], None]
    verb: str
    effect: str
    done: str


_WAYS: Final[Mapping[str, _Way]] = {
    "outbox_retry": _Way(
        _look_at_refused,
        lambda connection, number: outbox_quarantine.retry(connection, [number]),
        "Retry",
        "The relay tries it again, before the messages that wait for it.",
        "waits to be tried again",
    ),
    "outbox_drop": _Way(
        _look_at_refused,
        lambda connection, number: outbox_quarantine.drop(connection, [number]),
        "Drop",
        "It is deleted and never gets into the log. The messages that wait for it go on. This cannot be undone.",
        "is deleted; what waited for it goes on",
    ),
    "inbox_retry": _Way(
        _look_at_aside,
        lambda connection, number: inbox_quarantine.retry(connection, [number]),
        "Retry",
        "The loop of the consumer takes it again, before new events.",
        "is tried again by the loop of the consumer, before new ones",
    ),
    "inbox_drop": _Way(
        _look_at_aside,
        lambda connection, number: inbox_quarantine.drop(connection, [number], first_version=1, now_ms=now_ms()),
        "Drop",
        "It is never tried again, and its event counts as handled. This cannot be undone.",
        "is never tried again; its event counts as handled",
    ),
}


def _engine(url: str) -> Engine:
    try:
        engine = blocking_engine_of(url)
    except NoSuchModuleError as error:
        raise ValueError(f"the database: {error}") from None
    dialect = dialect_of(engine)
    if waits := dialect.waits(_CONNECT_SECONDS_MAX, _SILENCE_MS_MAX):
        engine = blocking_engine_of(engine.url, connect_args=waits, pool_pre_ping=True)
        event.listen(engine, "begin", lambda connection: dialect.limit_statements(connection, STATEMENT_MS_MAX))
    return engine


def _shown(url: URL) -> str:
    return url.difference_update_query(_SECRETS).render_as_string(hide_password=True)


def _refuse_missing_file(engine: Engine) -> None:
    if (file := missing_file(engine)) is not None:
        raise PageRefused(502, f"{file}: there is no such file")


def _named(name: str, labels: dict[str, str]) -> str:
    return name + "".join(f" {label} {value}" for label, value in labels.items())


def _waiting(connection: Connection) -> Answer:
    tables = set(inspect(connection).get_table_names())
    shown: Answer = {
        "has_tables": any(name.startswith("semel_") for name in tables),
        "outbox": None,
        "inbox": None,
        "sinks": [],
        "sink_count": 0,
    }
    if messages.name in tables:
        shown["outbox"] = _outbox(connection)
    if inbox_table.name in tables:
        shown["inbox"] = _inbox(connection)
    if _SINKS.name in tables:
        shown["sinks"] = _sinks(connection)
        shown["sink_count"] = _count(connection, _SINKS)
    return shown


def _outbox(connection: Connection) -> Answer:
    outbox = status(connection)
    refused = outbox_quarantine.refused_messages(connection, count_max=ROWS_MAX) if outbox.quarantined else []
    return {
        "waiting": outbox.waiting,
        "oldest_ms": outbox.oldest_added_at_ms,
        "held_up": outbox.held_up,
        "relay": outbox.name,
        "shard_count": len(outbox.shards),
        "shards": [one._asdict() for one in outbox.shards[:ROWS_MAX]],
        "quarantined": outbox.quarantined,
        "refused": [_refused(one) for one in refused],
    }


def _refused(one: RefusedMessage) -> Answer:
    return {
        "number": one.number,
        "topic": one.topic,
        "key": field(one.key),
        "reason": one.reason,
        "added_ms": one.added_at_ms,
        "refused_ms": one.refused_at_ms,
        "behind": one.behind,
    }


def _inbox(connection: Connection) -> Answer:
    known = connection.execute(select(floors.c.consumer, floors.c.floor_ms).order_by(floors.c.consumer).limit(ROWS_MAX))
    return {
        "floor_count": _count(connection, floors),
        "floors": [{"consumer": consumer, "floor_ms": floor_ms} for consumer, floor_ms in known],
        "aside": [_aside(one) for one in inbox_quarantine.open_events(connection, count_max=ROWS_MAX)],
    }


def _aside(one: QuarantinedEvent) -> Answer:
    message = one.message
    return {
        "number": one.number,
        "consumer": one.consumer,
        "what": one.message_id or (f"{one.version.aggregate} version {one.version.version}" if one.version else None),
        "state": one.state.value,
        "cause": one.cause.value,
        "reason": one.reason,
        "attempts": one.attempts,
        "since_ms": one.quarantined_at_ms,
        "place": None if message is None else [message.topic, message.partition, message.offset],
    }


def _sinks(connection: Connection) -> list[Answer]:
    rows = connection.execute(select(_SINKS).order_by(_SINKS.c.sink_id).limit(ROWS_MAX))
    return [
        {
            "sink_id": row.sink_id,
            "query_id": row.query_id,
            "batch_id": row.batch_id,
            "row_count": row.row_count,
            "committed_ms": _time_ms(row.committed_at),
        }
        for row in rows
    ]


def _count(connection: Connection, rows: FromClause) -> int:
    return connection.scalar(select(func.count()).select_from(rows)) or 0


def _time_ms(value: Any) -> int | None:
    """A time as a database has it: PostgreSQL gives a time, and SQLite its text. None if there is none."""
    try:
        time = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        return round(time.replace(tzinfo=time.tzinfo or UTC).timestamp() * 1000)
    except (TypeError, ValueError, OverflowError):
        return None
