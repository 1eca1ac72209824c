"""Finds out that a transaction on SQLite would wait for the one in which its own caller works.

SQLite has one writer. A handler that begins a second transaction on the same file waits for its own first one, until
the busy timeout is over. Code that holds a transaction for a caller notes it here, and the engines of `engine_of` look
before they begin. This module must never refuse a transaction that would get its turn.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection

from semel.database.refusals import WaitsForItself

logger = logging.getLogger("semel.database")

# The key under which a pooled SQLite connection keeps the path of its file, so that it is queried only once.
PATH: Final = "semel.path"


def file_of(connection: Connection) -> str:
    """The file of a SQLite connection that was checked; empty for a database in memory, and for PostgreSQL."""
    return str(connection.info.get(PATH, ""))


class _Writer(NamedTuple):
    file: str
    # The task of the caller; None in a thread.
    task: "asyncio.Task[Any] | None"
    is_open: Callable[[], bool]


_writers: ContextVar[tuple[_Writer, ...]] = ContextVar("writers", default=())


@contextlib.contextmanager
def writing(file: str, is_open: Callable[[], bool]) -> Iterator[None]:
    """What runs in here works in a transaction that holds the write lock of this file, as long as it `is_open`."""
    token = note_writer(file, is_open)
    try:
        yield
    finally:
        _writers.reset(token)


def note_writer(file: str, is_open: Callable[[], bool]) -> Any:
    """`writing`, to the end of the caller's context."""
    others = tuple(writer for writer in _writers.get() if writer.is_open())
    return _writers.set((*others, _Writer(file, _current_task(), is_open)) if file else others)


def check_no_own_writer(connection: Connection) -> None:
    """Raise WaitsForItself if the caller holds the write lock that this connection is about to wait for. If another
    task of the same request does, which may end first, log a warning."""
    writers = [writer for writer in _writers.get() if writer.is_open()]
    if not writers:
        return
    main = connection.exec_driver_sql("PRAGMA database_list").first()
    file = "" if main is None else main[2]
    for writer in writers:
        if writer.file != file:
            continue
        task = _current_task()
        if task is None or task is writer.task:
            raise WaitsForItself(file)
        logger.warning("%s", WaitsForItself(file))


def _current_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
