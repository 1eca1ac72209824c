"""Finds out whether a pooler, such as PgBouncer, stands between a program and PostgreSQL, and what then cannot be used.

In its transaction mode each transaction may get another session of the server. So what belongs to a session is lost or
left to others: prepared statements, LISTEN, the locks of a session. A pooler tells a client another number for its
session than the server does. This module must never change what a connection does, except that those of `engine_of`
prepare no more statements.
"""

from typing import Any, Final
from weakref import WeakSet

from sqlalchemy import Connection

from semel.database.refusals import PreparesThroughPooler

_ASK: Final = "SELECT pg_backend_pid()"
# The drivers' connections that need no further look.
_harmless: Final[WeakSet[Any]] = WeakSet()


def is_pooled(connection: Connection) -> bool:
    """Whether the session of this psycopg connection is not the client's own. It needs a statement."""
    driver: Any = connection.connection.driver_connection
    return bool(connection.exec_driver_sql(_ASK).scalar() != driver.info.backend_pid)


def prepare_nothing_through_pooler(driver: Any) -> None:
    """For a new connection of psycopg: through a pooler it prepares no statements, which another session of the server
    would not know."""
    cursor = driver.cursor()
    cursor.execute(_ASK)
    [number] = cursor.fetchone()
    cursor.close()
    driver.rollback()
    if number != driver.info.backend_pid:
        driver.prepare_threshold = None
    _harmless.add(driver)


def check_prepares_nothing_through_pooler(connection: Connection) -> None:
    """Refuse a connection that prepares statements through a pooler: under their names, the session of its next
    transaction has those of other clients. It needs a statement, once for each connection of a driver."""
    driver: Any = connection.connection.driver_connection
    if driver in _harmless:
        return
    if _prepares(connection.connection.dbapi_connection, driver):
        number = driver.get_server_pid() if hasattr(driver, "get_server_pid") else driver.info.backend_pid
        if connection.exec_driver_sql(_ASK).scalar() != number:
            raise PreparesThroughPooler
    _harmless.add(driver)


def _prepares(adapted: Any, driver: Any) -> bool:
    """Whether it prepares statements under names that other connections use, too: psycopg by default, and asyncpg
    unless SQLAlchemy makes a name for each and keeps none."""
    if hasattr(adapted, "_prepared_statement_name_func"):
        return adapted._prepared_statement_cache is not None or adapted._prepared_statement_name_func() is None
    return getattr(driver, "prepare_threshold", None) is not None
