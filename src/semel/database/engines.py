"""SQLAlchemy engines for a URL, with the settings that a claim's transaction needs. They must change nothing else."""

import difflib
from typing import Any, Final, TypeVar, cast

from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine

from semel.database.dialects import DIALECTS, PROMPTLY, READS, SQLITE, dialect_of
from semel.database.kinds import WrongKind, check_engine, check_kind
from semel.database.refusals import UnknownDatabase

EngineT = TypeVar("EngineT", Engine, AsyncEngine)


def engine_of(url: str | URL, **options: Any) -> Engine:
    """An engine on which `engine.begin()` gives a transaction that outbox, inbox and HTTP keys accept."""
    parsed = _parse(url)
    try:
        engine = create_engine(parsed, **options)
    except ModuleNotFoundError as missing:
        packages = {module: package for dialect in DIALECTS for module, package in dialect.packages.items()}
        package = packages.get(str(missing.name), missing.name)
        raise ImportError(f"{missing.name}, the driver for this database, is missing: pip install {package}") from None
    dialect_of(engine).prepare(engine)
    return engine


def blocking_engine_of(url: str | URL, **options: Any) -> Engine:
    """`engine_of` for a tool that blocks. It also takes the URL of an application on asyncio, and then replaces its
    driver by a blocking one."""
    parsed = _parse(url)
    if parsed.get_dialect().is_async:
        parsed = _parse(parsed.set(drivername=parsed.get_backend_name()))
    return engine_of(parsed, **options)


def driver_settings(url: str) -> dict[str, Any]:
    """What the blocking driver's own connect() takes, for a program that has no other use for SQLAlchemy."""
    parsed = _parse(url)
    _, settings = _parse(parsed.set(drivername=parsed.get_backend_name())).get_dialect()().create_connect_args(parsed)
    return dict(settings)


def reader_of(engine: Engine) -> Engine:
    """An engine for the same database that can change nothing, for a tool that only looks."""
    return read_only(dialect_of(engine).reader(engine))


def place_of(engine: Engine) -> str:
    """Where the database is, for a person: without the user, and without options that may contain a password."""
    url = engine.url
    return URL.create(url.get_backend_name(), None, None, url.host, url.port, url.database).render_as_string()


def missing_file(engine: Engine) -> str | None:
    """The file of the database, if it is missing."""
    return dialect_of(engine).missing_file(engine.url)


def begin_immediately(engine: Engine) -> None:
    """Make every transaction of a SQLite engine IMMEDIATE. For an AsyncEngine, pass its `sync_engine`."""
    if isinstance(engine, AsyncEngine):
        raise WrongKind("begin_immediately takes the engine.sync_engine of an AsyncEngine")
    check_engine("the engine", engine)
    SQLITE.prepare(engine)


def read_only(engine: EngineT) -> EngineT:
    """The same engine for transactions that only read: on SQLite they wait for no writer, and no writer waits for them.

    So a request that holds a transaction can also read outside it. Outbox, inbox and HTTP keys refuse such a
    transaction.
    """
    check_engine("the engine", engine, (Engine, AsyncEngine))
    options: Any = engine.execution_options(**{READS: True, "postgresql_readonly": True})
    return cast(EngineT, options)


def prompt(engine: Engine) -> Engine:
    """The same engine for a tool that works beside an application: on SQLite, where a transaction that adds many
    messages keeps others waiting, its transactions begin some milliseconds after that, and not up to a hundred."""
    return engine.execution_options(**{PROMPTLY: True})


def _parse(url: str | URL) -> URL:
    check_kind("the URL of a database", url, (str, URL))
    try:
        parsed = make_url(_as_url(url) if isinstance(url, str) else url)
    except (ArgumentError, ValueError):
        # In a URL that cannot be parsed, nobody knows where a password is.
        shown = "this" if "@" in str(url) or "?" in str(url) else repr(url)
        raise UnknownDatabase(f"{shown} is no database URL; say {' or '.join(_EXAMPLES)}") from None
    backend = parsed.get_backend_name()
    for dialect in DIALECTS:
        if backend in dialect.backends:
            return dialect.parsed(parsed)
    close = difflib.get_close_matches(backend, [one for dialect in DIALECTS for one in dialect.backends], n=1)
    meant = f"was {close[0]} meant?" if close else f"there are {' and '.join(_EXAMPLES)}"
    raise UnknownDatabase(f"{backend} is no database that semel knows; {meant}")


def _as_url(url: str) -> str:
    """A file of SQLite may be named as the sinks and the audit take it, too: `sqlite:FILE`."""
    kind, _, file = url.partition(":")
    return f"{kind}:///{file}" if kind == SQLITE.name and file and not file.startswith("//") else url


_EXAMPLES: Final = [dialect.example for dialect in DIALECTS]
