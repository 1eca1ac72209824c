"""What differs between the databases for the tests that run on each: the driver on asyncio, and who waits for whom."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Final

from sqlalchemy import Connection, make_url
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from semel.database import begin_immediately

ON_SQLITE_ALONE: Final = {
    *("http/test_fates.py", "http/test_http_client.py", "http/test_scope.py"),
    *("inbox/test_brokers_away.py", "inbox/test_inbox_rights.py", "inbox/test_inbox_takeovers.py"),
}
"""The modules of tests of what knows no database, and only needs one."""
ASYNC_DRIVERS: Final = {
    "sqlite": "sqlite+aiosqlite",
    "postgresql": "postgresql+asyncpg",
    "mysql": "mysql+aiomysql",
}
WAITS_FOR_US: Final = {
    "postgresql": "SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))",
    # InnoDB's own tables of waits are not brought up to date while somebody asks for them again and again.
    "mysql": "SELECT 1 FROM information_schema.processlist, information_schema.global_status "
    "WHERE db = DATABASE() AND id <> CONNECTION_ID() AND command = 'Query' "
    "AND variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS' AND variable_value > 0",
}


def async_url_of(url: str) -> str:
    parsed = make_url(url)
    return parsed.set(drivername=ASYNC_DRIVERS[parsed.get_backend_name()]).render_as_string(hide_password=False)


def async_engine_of(url: str, **options: Any) -> AsyncEngine:
    engine = create_async_engine(async_url_of(url), **options)
    if engine.dialect.name == "sqlite":
        begin_immediately(engine.sync_engine)
    return engine


def wait_for_waiter(connection: Connection, waiting: Future[Any]) -> None:
    """Until somebody waits for the transaction of this connection. With SQLite nobody says so, and whether the other
    one waits already makes no odds."""
    query = WAITS_FOR_US.get(connection.dialect.name)
    while query is not None and not connection.exec_driver_sql(query).fetchall():
        assert not waiting.done()
