"""The figures, and the statements that ask for them. Each takes as long as there are rows that wait."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from sqlalchemy import Connection, Engine, func, inspect, select

from semel.database.clock import Clock, database_now_ms, now_ms
from semel.database.engines import read_only
from semel.http.tables import keys
from semel.inbox.tables import quarantine as inbox_quarantine
from semel.outbox.tables import messages
from semel.outbox.tables import quarantine as outbox_quarantine

UP: Final = "semel_watch_up"
GAUGES: Final = {
    UP: "1 if the database answered, 0 if not; then nothing else is known.",
    "semel_http_keys_in_flight": "Requests with steps that hold their key now; one that is a transaction is not seen.",
    "semel_outbox_waiting": "Messages that are not known to be in the log.",
    "semel_outbox_oldest_seconds": "How long the oldest of these has waited.",
    "semel_outbox_quarantined": "Messages that the broker refused, until a person decides.",
    "semel_inbox_quarantined": "Events that were put aside, until a person decides (held) or the loop tries (due).",
}


class Gauge(NamedTuple):
    """One figure."""

    name: str
    """One of those on the page of metrics, such as `semel_outbox_waiting`."""
    labels: dict[str, str]
    value: float


def gauges(engine: Engine, clock: Clock = now_ms) -> list[Gauge]:
    """The figures of this database, of those tables that it has. Errors of the database are raised."""
    with read_only(engine).connect() as connection:
        tables = set(inspect(connection).get_table_names())
        at_ms = database_now_ms(connection) if clock is now_ms else clock()
        return [Gauge(UP, {}, 1), *_of(connection, tables, at_ms)]


def _of(connection: Connection, tables: set[str], at_ms: int) -> Iterator[Gauge]:
    if keys.name in tables:
        is_held = keys.c.status.is_(None), keys.c.lease_until_ms > at_ms
        in_flight = connection.scalar(select(func.count()).select_from(keys).where(*is_held))
        yield Gauge("semel_http_keys_in_flight", {}, in_flight or 0)
    if messages.name in tables:
        waiting, oldest_ms = connection.execute(select(func.count(), func.min(messages.c.added_at_ms))).one()
        yield Gauge("semel_outbox_waiting", {}, waiting)
        age_ms = 0 if oldest_ms is None else max(at_ms - oldest_ms, 0)
        yield Gauge("semel_outbox_oldest_seconds", {}, age_ms / 1000)
    if outbox_quarantine.name in tables:
        refused = connection.scalar(select(func.count()).select_from(outbox_quarantine))
        yield Gauge("semel_outbox_quarantined", {}, refused or 0)
    if inbox_quarantine.name in tables:
        rows = select(inbox_quarantine.c.consumer, inbox_quarantine.c.state, func.count())
        rows = rows.where(inbox_quarantine.c.state.in_(("held", "due")))
        for consumer, state, count in connection.execute(rows.group_by(*rows.selected_columns[:2])):
            yield Gauge("semel_inbox_quarantined", {"consumer": consumer, "state": state}, count)
