"""Tells an engine from what is often handed over in its place, when an object is made and not when it is first used.

The messages say what to hand over instead, and never show a URL, which may have a password in it.
"""

import inspect
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.ext.asyncio import (
    AsyncConnection,
    AsyncEngine,
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
)
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from semel.database.dialects import dialect_named

_OF_A_URL: Final = "make an engine of it by semel.database.engine_of(url)"
_REMEDIES: Final[tuple[tuple[tuple[type, ...], str], ...]] = (
    ((str, bytes, URL), f"it is a URL: {_OF_A_URL}"),
    (
        (Session, AsyncSession, scoped_session, async_scoped_session),
        "it is one session, which no two transactions may share: hand over the sessionmaker or the engine",
    ),
    (
        (Connection, AsyncConnection),
        "it is one connection, which no two transactions may share: hand over its engine",
    ),
    ((AsyncEngine,), "it is an asynchronous engine: hand over an Engine, as engine_of(url) makes it"),
    ((async_sessionmaker,), "it is an asynchronous sessionmaker: hand over an Engine, as engine_of(url) makes it"),
    ((Engine,), "it is a synchronous engine: hand over an AsyncEngine, as create_async_engine(url) makes it"),
    ((sessionmaker,), "it makes sessions: hand over its engine"),
)


class WrongKind(TypeError):
    """An argument is of another kind than it has to be."""


def check_kind(argument: str, value: object, wanted: type | tuple[type, ...]) -> None:
    """Refuse a value of another kind. The message says what to do."""
    if isinstance(value, wanted) and not (isinstance(value, bool) and wanted is not bool):
        return
    kinds = wanted if isinstance(wanted, tuple) else (wanted,)
    names = " or ".join(kind.__name__ for kind in kinds)
    raise WrongKind(f"{argument} has to be of the kind {names}, and is of the kind {_name_of(value)}{_remedy(value)}")


def check_engine(argument: str, value: Any, wanted: type | tuple[type, ...] = Engine) -> None:
    """Refuse what is no engine of this kind, and one for a database that semel does not know."""
    check_kind(argument, value, wanted)
    dialect = getattr(value, "dialect", None)
    if dialect is not None:
        dialect_named(dialect.name)


def check_callable(argument: str, value: object, *, may_wait: bool = False) -> None:
    """Refuse what is no function. A coroutine function is one only if its caller waits for it: otherwise a call does
    nothing, and its result counts as true. That of a function with a `yield` does nothing either."""
    if not callable(value):
        raise WrongKind(f"{argument} has to be a function, and is of the kind {_name_of(value)}{_remedy(value)}")
    if may_wait:
        return
    for function in (value, type(value).__call__):
        if inspect.iscoroutinefunction(function):
            raise WrongKind(f"{argument} is a coroutine function, and nobody awaits it: write it without `async`")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise WrongKind(f"{argument} has a `yield`, so a call does nothing: write it without")


def _name_of(value: object) -> str:
    return "None" if value is None else type(value).__qualname__


def _remedy(value: object) -> str:
    return next((f"; {remedy}" for kinds, remedy in _REMEDIES if isinstance(value, kinds)), "")
