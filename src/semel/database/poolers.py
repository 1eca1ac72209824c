"""Finds out whether a pooler, such as PgBouncer, stands between a program and PostgreSQL, and what then cannot be used.

In its transaction mode each transaction may get another session of the server. So what belongs to a session is lost or
left to others: prepared statements, LISTEN, the locks of a session. A pooler tells a client another number for its
session than the server does. This module must never change what a connection does, except that it prepares no more
statements.
"""

from typing import Any, Final

from sqlalchemy import Connection

_ASK: Final = "SELECT pg_backend_pid()"


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
