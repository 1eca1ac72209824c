"""The gauges and their SQL statements, each of which counts the waiting rows, so its time grows with them."""

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from sqlalchemy import Connection, Engine, func, inspect, select

from semel.database.clock import Clock, now_ms, time_by
from semel.database.engines import read_only
from semel.http.tables import keys
from semel.inbox.tables import quarantine as inbox_quarantine
from semel.outbox.tables import messages
from semel.outbox.tables import quarantine as outbox_quarantine

UP: Final = "semel_watch_up"
IN_FLIGHT: Final = "semel_http_keys_in_flight"
WAITING: Final = "semel_outbox_waiting"
OLDEST: Final = "semel_outbox_oldest_seconds"
REFUSED: Final = "semel_outbox_quarantined"
ASIDE: Final = "semel_inbox_quarantined"
GAUGES: Final = {
    UP: "1 if the database answered, 0 if not; then nothing else is known.",
    IN_FLIGHT: "Requests with steps that hold their key now; one that is a transaction is not seen.",
    WAITING: "Messages that are not known to be in the log.",
    OLDEST: "How long the oldest of these has waited.",
    REFUSED: "Messages that were put aside, until a person decides.",
    ASIDE: "Events that were put aside, until a person decides (held) or the loop tries (due).",
}


class Gauge(NamedTuple):
    """The value of a gauge."""

    name: str
    """One of the names on the page of metrics, such as `semel_outbox_waiting`."""
    labels: dict[str, str]
    value: float


def gauges(engine: Engine, clock: Clock = now_ms) -> list[Gauge]:
    """The gauges of this database, for the tables that it has. Errors of the database are raised."""
    return figures(engine, GAUGES, clock)


def figures(engine: Engine, names: Collection[str], clock: Clock = now_ms) -> list[Gauge]:
    """The gauges of these names; the others are not queried."""
    with read_only(engine).connect() as connection:
        tables = set(inspect(connection).get_table_names())
        at_ms = time_by(clock, connection)
        return [gauge for gauge in _of(connection, tables, at_ms, names) if gauge.name in names]


def _of(connection: Connection, tables: set[str], at_ms: int, names: Collection[str]) -> Iterator[Gauge]:
    yield Gauge(UP, {}, 1)
    if keys.name in tables and IN_FLIGHT in names:
        is_held = keys.c.status.is_(None), keys.c.lease_until_ms > at_ms
        in_flight = connection.scalar(select(func.count()).select_from(keys).where(*is_held))
        yield Gauge(IN_FLIGHT, {}, in_flight or 0)
    if messages.name in tables and not {WAITING, OLDEST}.isdisjoint(names):
        waiting, oldest_ms = connection.execute(select(func.count(), func.min(messages.c.added_at_ms))).one()
        yield Gauge(WAITING, {}, waiting)
        age_ms = 0 if oldest_ms is None else max(at_ms - oldest_ms, 0)
        yield Gauge(OLDEST, {}, age_ms / 1000)
    if outbox_quarantine.name in tables and REFUSED in names:
        refused = connection.scalar(select(func.count()).select_from(outbox_quarantine))
        yield Gauge(REFUSED, {}, refused or 0)
    if inbox_quarantine.name in tables and ASIDE in names:
        rows = select(inbox_quarantine.c.consumer, inbox_quarantine.c.state, func.count())
        rows = rows.where(inbox_quarantine.c.state.in_(("held", "due")))
        for consumer, state, count in connection.execute(rows.group_by(*rows.selected_columns[:2])):
            yield Gauge(ASIDE, {"consumer": consumer, "state": state}, count)
