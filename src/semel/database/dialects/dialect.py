"""What semel needs to know of a database, in one class: its promises, its SQL where it differs, and its drivers.

Each database has a subclass in a module of this package, and no other code asks which database it is: a statement that
differs is built here, and a difference in behaviour is an attribute here. This module must never name a database.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Final, TypeAlias

from sqlalchemy import URL, ColumnElement, Connection, CursorResult, Engine, Executable, Insert, Select, Table
from sqlalchemy.engine import Dialect as SQLDialect
from sqlalchemy.types import TypeEngine

from semel.database.refusals import TransactionBroken

IsClaimed: TypeAlias = Callable[[Connection], bool]
"""Whether the claim is still in the transaction: a rollback to a savepoint undoes it."""

InsertEach: TypeAlias = Callable[[Connection, Mapping[str, Any], Sequence[Sequence[Any]]], set[Any]]
"""Inserts the rows that are missing, with these values in all of them, and returns the first value of each new one."""

COMMENTS: Final = r"(?>\s+|;|/\*(?s:.*?)\*/|(?:--|#)[^\n]*(?:\n|$))*"
"""What may stand before the first word of a statement."""

READS: Final = "semel_reads"
"""The execution option of an engine whose transactions only read."""
PROMPTLY: Final = "semel_promptly"
"""The execution option of an engine whose transactions begin soon after another writer's."""
LENDER: Final = "semel_borrowed"
"""SQLAlchemy's name for a driver that lends it the connection of an application."""


class News(StrEnum):
    """How a relay that has nothing to do can learn of a commit."""

    NOTIFIED = "notified"
    """The database tells those who listen."""
    VERSION = "version"
    """A number that each commit changes, and that takes next to nothing to read."""
    POLLED = "polled"
    """It has to look for messages."""


class LockHeld(Exception):
    """A statement that must not wait needs a lock that another transaction has."""


class OpenRawTransaction(ABC):
    """The transaction of a claim on a driver's own connection."""

    # Its file is unknown without a statement.
    file = ""
    # The driver says so itself.
    is_over = False
    refusal: TransactionBroken | None = None

    def __init__(self, raw: Any) -> None:
        self.driver = raw

    def check(self) -> None:
        """Raise TransactionBroken if a commit would not commit everything since the claim."""
        if not self._is_same():
            raise TransactionBroken

    @abstractmethod
    def _is_same(self) -> bool: ...

    @abstractmethod
    def release(self) -> None:
        """Let the transaction end."""

    @abstractmethod
    def fail(self, is_claimed: IsClaimed) -> None:
        """An exception has ended the work: have the database refuse the commit."""


class Lent:
    """Turns off everything that SQLAlchemy does to a connection besides sending statements."""

    def on_connect_url(self, _url: object) -> None:
        """Sets nothing up: SQLAlchemy would do it again each time the connection is lent, and add one more handler of
        notices."""

    def do_begin(self, _connection: object) -> None:
        pass

    def do_commit(self, _connection: object) -> None:
        pass

    def do_rollback(self, _connection: object) -> None:
        pass

    def do_close(self, _connection: object) -> None:
        pass

    def do_terminate(self, _connection: object) -> None:
        pass


class Dialect(ABC):
    """One kind of database."""

    name: ClassVar[str]
    """The name in URLs and in `semel schema --print`; statements are kept by it."""
    title: ClassVar[str]
    example: ClassVar[str]
    """A URL, for messages."""
    driver: ClassVar[str]
    """The driver of a URL that names none."""
    packages: ClassVar[Mapping[str, str]] = {}
    """What to install for a module of a driver that is missing."""

    has_one_writer: ClassVar[bool] = False
    """Only one transaction writes at a time, and all clients are on one machine, whose clock is the database's."""
    isolation: ClassVar[str | None] = None
    """The level at which a statement that has waited for a lock sees what was committed meanwhile."""
    has_locks: ClassVar[bool] = False
    """It has locks that a transaction takes by a number, and a statement can return what it has written."""
    news: ClassVar[News] = News.POLLED
    table_options: ClassVar[Mapping[str, str]] = {}
    """What SQLAlchemy has to be told for each table."""
    no_connection: ClassVar[frozenset[str]] = frozenset()
    """The driver's errors that say, without a code, that no connection could be made, or that it was lost."""

    @property
    def backends(self) -> tuple[str, ...]:
        """SQLAlchemy's names for it."""
        return (self.name,)

    @abstractmethod
    def sqlalchemy(self) -> SQLDialect:
        """SQLAlchemy's own, to print statements without a connection."""

    # -- engines -----------------------------------------------------------------------------------------------------

    def parsed(self, url: URL) -> URL:
        """The URL with what it leaves out. Raises UnknownDatabase if it cannot be one of this database."""
        return url.set(drivername=f"{self.name}+{self.driver}") if url.drivername in self.backends else url

    @abstractmethod
    def prepare(self, engine: Engine) -> None:
        """Set up an engine that `engine_of` has made."""

    def reader(self, engine: Engine) -> Engine:
        """An engine for the same database that can change nothing, not even how it keeps its files."""
        return engine

    def missing_file(self, url: URL) -> str | None:
        """The file of the database, if it is missing."""
        return None

    # -- connections and transactions --------------------------------------------------------------------------------

    @abstractmethod
    def check(self, connection: Connection, driver: Any) -> None:
        """Refuse a connection on which a claim could be lost."""

    def ends_in_sql(self, connection: Connection) -> bool:
        """Whether the caller begins and ends the transactions of this connection in SQL."""
        return False

    @abstractmethod
    def is_in_transaction(self, driver: Any) -> bool:
        """What the driver knows."""

    def has_failed(self, connection: Connection, error: BaseException | None) -> bool:
        """Whether its COMMIT would undo the transaction without an error. `error` is the last one that was raised."""
        return False

    @abstractmethod
    def after_error(self, connection: Connection) -> None:
        """After an error of a statement: have the driver learn whether the transaction is still there."""

    def commits_by_itself(self, statement: str) -> bool:
        """Whether a statement other than COMMIT may end the transaction, so that it must not be sent."""
        return False

    def may_commit(self, statement: str) -> bool:
        """Whether it may do so, which only shows afterwards."""
        return False

    def mark(self, connection: Connection) -> Any:
        """Something by which `is_marked` tells whether the transaction is the same after a statement."""
        return None

    def is_marked(self, connection: Connection, mark: Any) -> bool:
        return True

    @abstractmethod
    def attributes_to_lend(self, raw: Any) -> dict[str, Any] | None:
        """The attributes with which a driver's own connection returns rows as tuples; None if it is no connection of
        this database."""

    @abstractmethod
    def open_raw(self, raw: Any) -> OpenRawTransaction:
        """Keeps the transaction of a driver's own connection open."""

    # -- errors ------------------------------------------------------------------------------------------------------

    @abstractmethod
    def is_passing(self, raised: BaseException | None) -> bool | None:
        """Whether a driver's error passes by itself; None if it does not show."""

    @abstractmethod
    def is_conflict(self, raised: BaseException | None) -> bool:
        """Whether a transaction was given up because of another one, and may succeed when it is repeated."""

    @abstractmethod
    def is_missing_table(self, raised: BaseException | None) -> bool: ...

    def text_of(self, raised: BaseException | None) -> str | None:
        """What the server says in a driver's error that as text also has what only programs need; None for others."""
        return None

    # -- statements --------------------------------------------------------------------------------------------------

    def inserted_rows(self, connection: Connection, result: CursorResult[Any]) -> int:
        """How many rows the insert has inserted that the connection has executed last."""
        return result.rowcount

    @abstractmethod
    def insert_new(self, table: Table) -> Insert:
        """Inserts a row unless there is one with its key."""

    @abstractmethod
    def insert_each(self, table: Table, common: Sequence[str], each: Sequence[str]) -> InsertEach:
        """Inserts the missing ones of many rows: `common` are the columns with one value for all of them."""

    @abstractmethod
    def is_among(self, column: ColumnElement[int], numbers: Sequence[int]) -> ColumnElement[bool]:
        """Whether a number is in a list, which may be a long one."""

    @property
    def now_ms(self) -> ColumnElement[int] | None:
        """The time of the server, which is the same for all of its clients."""
        return None

    @abstractmethod
    def lock_until_end(self, connection: Connection, *number: int) -> None:
        """Wait for a lock of all clients, and keep it until this transaction ends, or longer."""

    def try_lock(self, number: ColumnElement[int]) -> ColumnElement[bool]:
        """Whether this transaction has got the lock, without waiting, if the database `has_locks`."""
        raise NotImplementedError

    def wait_for_lock(self, number: ColumnElement[int]) -> ColumnElement[bool]:
        """True once this transaction has the lock, if the database `has_locks`."""
        raise NotImplementedError

    def promptly(self, connection: Connection) -> contextlib.AbstractContextManager[None]:
        """In here no statement waits for a lock of another transaction: it raises LockHeld."""
        return contextlib.nullcontext()

    def current(self, selection: Select[Any]) -> Select[Any]:
        """The query for what is committed by now, whatever this transaction has seen before."""
        return selection

    def wakes(self, lock: str, channel: str) -> ColumnElement[Any] | None:
        """What a transaction that adds a message evaluates so that its commit wakes a relay that is asleep."""
        return None

    @property
    def durably(self) -> ColumnElement[Any] | None:
        """Evaluated in a transaction, this has its commit wait until it cannot be lost."""
        return None

    @property
    def in_order(self) -> Executable | None:
        """A statement before queries for the first rows in the order of an index, to be sent in their transaction."""
        return None

    def waits(self, connect_seconds: int, silence_ms: int) -> dict[str, Any]:
        """What to give to the driver so that no server keeps a tool waiting; empty if there is no server."""
        return {}

    @abstractmethod
    def limit_statements(self, connection: Connection, statement_ms: int) -> None:
        """Let no statement of this transaction take longer."""

    # -- columns -----------------------------------------------------------------------------------------------------

    def key(self, bytes_max: int) -> TypeEngine[Any] | None:
        """The type of a text that is compared byte by byte; None for the usual one."""
        return None

    @property
    def variants(self) -> Mapping[str, TypeEngine[Any]]:
        """Its own types in place of SQLAlchemy's `Text`, `LargeBinary`, `BigInteger`, and that of a row's number."""
        return {}

    def check_database(self, connection: Connection) -> str | None:
        """Why this database could not store every id; None if it can."""
        return None

    # What anybody has written into a column, as it is. Most databases keep only what a column is declared for.

    def as_bytes(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        return column

    def as_text(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        return column

    def as_integer(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        return column

    def as_shown(self, column: ColumnElement[Any]) -> ColumnElement[Any]:
        return column


def is_of_a_kind(error: BaseException | None, names: Iterable[str]) -> bool:
    """Compares the full names of the error's classes, so that libraries which the program does not use need not be
    installed."""
    return any(f"{kind.__module__}.{kind.__qualname__}" in names for kind in type(error).__mro__)
