"""The claim of a key: one row, inserted before anything else, in the transaction of the effect; and how the claim ends.

Every statement of the HTTP keys is here, on a connection in the caller's transaction; only the reaper has its own
transactions. The INSERT is the claim: with a SELECT before it, two requests could both be accepted. It waits for no
other request: it tries a lock of the transaction, or does not wait for that of the row, and if it does not get it,
another request is working on the key. On SQLite there is only one writer, this one.

An expired key is free whether it was deleted or not: the reaper only frees space. It uses the clock of the database, as
leases do, and must never delete a key that is held.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    Row,
    Select,
    Update,
    bindparam,
    case,
    delete,
    func,
    select,
    tuple_,
    update,
)
from sqlalchemy.ext.asyncio import AsyncEngine

from semel.database.clock import database_now_ms
from semel.database.dialects import DIALECTS, Dialect, LockHeld, dialect_of, insert_new, is_new, per_dialect
from semel.database.kinds import check_engine
from semel.database.procedures import Procedure, drive, drive_async, transaction
from semel.http.answers import Answer, kept, read_headers, write_headers
from semel.http.counters import REAPED
from semel.http.tables import keys
from semel.steps.records import Fenced, Name, forget_steps

# A transaction holds the key. If others can see such a row without an answer, the handler has committed the transaction
# itself: then the effect is stored, and must not be executed again.
NO_LEASE: Final = -1
# How long to tell a client to wait if it is unknown how long the request will run.
RETRY_AFTER_SECONDS: Final = 1


def name_of(caller: str, key: str) -> Name:
    return Name(hashlib.sha256(caller.encode("utf-8", "surrogatepass")).hexdigest(), key)


@dataclass(frozen=True)
class Accepted:
    """This request has the key; `token` fences its former holder."""

    token: int


@dataclass(frozen=True)
class Duplicate:
    """The request was executed. `answer` is None if it was not kept. If the key is not settled, the handler has
    committed its transaction itself."""

    answer: Answer | None
    ttl_ms: int
    is_settled: bool = True


@dataclass(frozen=True)
class Running:
    """Another request has the key."""

    retry_after_seconds: int


@dataclass(frozen=True)
class Differs:
    """The key belongs to a request with another payload."""


KeyState: TypeAlias = Accepted | Duplicate | Running | Differs


def title_of(name: Name) -> str:
    return f"idempotency key {name.key!r}"


@dataclass(frozen=True)
class Term:
    """How long a claim counts that is made now."""

    ttl_ms: int
    # NO_LEASE if a transaction holds the key.
    lease_ms: int
    # The present time; None for the clock of the database.
    now_ms: int | None = None

    def lease_until_ms(self, at_ms: int) -> int:
        return NO_LEASE if self.lease_ms == NO_LEASE else at_ms + self.lease_ms


# -- the statements: to make one takes longer than to execute it, so each is made once --------------------------------

_OF_NAME: Final = keys.c.scope == bindparam("of_scope"), keys.c.key == bindparam("of_key")
_OF_TOKEN: Final = keys.c.token == bindparam("of_token")
_NAMED: Final = ("scope", "key", "fingerprint")


def _given(name: str) -> ColumnElement[int]:
    return bindparam(name, type_=BigInteger)


_ROW: Final = select(keys).where(*_OF_NAME)
_OF_HOLDER: Final = update(keys).where(*_OF_NAME, _OF_TOKEN, keys.c.status.is_(None))
_TAKE_OVER: Final = update(keys).where(*_OF_NAME, _OF_TOKEN)


class _Locking:
    """The statements for a database that has locks of a transaction, and its time in a statement: one that asks for
    these, and does nothing else, would be one more to wait for."""

    def __init__(self, dialect: Dialect) -> None:
        assert dialect.now_ms is not None
        is_locked = dialect.try_lock(_given("lock"))
        now = select(func.coalesce(_given("at_ms"), dialect.now_ms).label("ms")).subquery("now")
        lease_until_ms = case((_given("lease_ms") == NO_LEASE, NO_LEASE), else_=now.c.ms + _given("lease_ms"))
        named = [bindparam(column, type_=keys.c[column].type) for column in _NAMED]
        claimed = select(*named, now.c.ms, lease_until_ms, now.c.ms + _given("ttl_ms")).where(is_locked)
        columns = (*_NAMED, "token", "lease_until_ms", "expires_ms")
        expires_ms = dialect.now_ms + _given("ttl_ms")
        self.insert = dialect.insert_new(keys).from_select(columns, claimed).returning(keys.c.token)
        self.take_over = _TAKE_OVER.where(is_locked)
        self.row_and_time = select(keys, dialect.now_ms.label("now_ms")).where(*_OF_NAME)
        self.keep = _OF_HOLDER.values(expires_ms=expires_ms)
        # A transaction that has the row open for longer, as a step does, has the lock of the claim, too; an INSERT of
        # the key would otherwise wait for the row. The lock is taken before the row is looked for, and the time after.
        self.of_holder = _OF_HOLDER.where(dialect.wait_for_lock(_given("lock")))
        self.hold = self.of_holder.values(lease_until_ms=dialect.now_ms + _given("lease_ms"), expires_ms=expires_ms)


_LOCKING: Final = {dialect.name: _Locking(dialect) for dialect in DIALECTS if dialect.has_locks}
_CURRENT_ROW: Final = per_dialect(lambda dialect: dialect.current(_ROW))
_INSERT: Final = insert_new(keys)


def claim(connection: Connection, name: Name, fingerprint: str, term: Term) -> KeyState:
    """Claim the key, or return why it cannot be claimed."""
    try:
        with dialect_of(connection).promptly(connection):
            return _claimed(connection, name, fingerprint, term)
    except LockHeld:
        return Running(RETRY_AFTER_SECONDS)


def _claimed(connection: Connection, name: Name, fingerprint: str, term: Term) -> KeyState:
    at_ms = _time_here(connection, term)
    token = _inserted(connection, name, fingerprint, term, at_ms)
    if token is not None:
        return Accepted(token)
    row = connection.execute(_row(connection, at_ms), _of(name)).one_or_none()
    if row is None:
        # The row belongs to a transaction that has not ended, or the reaper has just deleted it.
        return Running(RETRY_AFTER_SECONDS)
    if at_ms is None:
        at_ms = int(row.now_ms)
    if row.expires_ms <= at_ms and (row.status is not None or row.lease_until_ms <= at_ms):
        outcome = _taken_over(connection, name, fingerprint, term, at_ms, row)
        if isinstance(outcome, Accepted):
            # Only now: of two requests that take the key over, one would otherwise delete steps that the other has
            # finished since.
            forget_steps(connection, [name])
        return outcome
    if row.fingerprint != fingerprint:
        return Differs()
    if row.status is not None or row.lease_until_ms == NO_LEASE:
        return Duplicate(_answer(row), max(row.expires_ms - at_ms, 0), row.status is not None)
    if row.lease_until_ms > at_ms:
        return Running(-(-(row.lease_until_ms - at_ms) // 1000))
    return _taken_over(connection, name, fingerprint, term, at_ms, row)


def keep(connection: Connection, name: Name, token: int, answer: Answer | None, status: int, term: Term) -> None:
    """Store the answer, None if it cannot be kept, and release the key. The answer is kept from now on, however long
    the request has run: this is what its header says."""
    values: dict[str, Any] = {"status": status, "lease_until_ms": 0}
    if answer is not None:
        values |= {"headers": write_headers(kept(answer.headers)), "body": answer.body}
    at_ms = _time_here(connection, term)
    if at_ms is None:
        keep = _LOCKING[dialect_of(connection).name].keep
        _as_holder(connection, name, token, {**values, "ttl_ms": term.ttl_ms}, keep)
    else:
        _as_holder(connection, name, token, {**values, "expires_ms": at_ms + term.ttl_ms})


def is_kept(connection: Connection, name: Name, token: int) -> bool:
    """Whether an answer of this holder is stored."""
    row = connection.execute(_ROW, _of(name)).one_or_none()
    return row is not None and row.token == token and row.status is not None


def hold(connection: Connection, name: Name, token: int, term: Term) -> None:
    """Keep the key for longer, with the steps that are finished; a former holder is fenced. Locks the key until the
    transaction ends, after a wait for another transaction of this holder, as a heartbeat may wait for a step."""
    at_ms, locking = _time_here(connection, term), _LOCKING.get(dialect_of(connection).name)
    values = {} if locking is None else {"lock": _lock(name)}
    if at_ms is None:
        assert locking is not None
        values |= {"lease_ms": term.lease_ms, "ttl_ms": term.ttl_ms}
        _as_holder(connection, name, token, values, locking.hold)
    else:
        values |= {"lease_until_ms": term.lease_until_ms(at_ms), "expires_ms": at_ms + term.ttl_ms}
        _as_holder(connection, name, token, values, _OF_HOLDER if locking is None else locking.of_holder)


def release(connection: Connection, name: Name, token: int) -> None:
    """Release the key for the next attempt. From a former holder, this changes nothing; and from now on this one is a
    former holder, so that a heartbeat that is late cannot take the key back."""
    connection.execute(_OF_HOLDER, {**_of(name), "of_token": token, "lease_until_ms": 0, "token": token + 1})


def reap_batch(connection: Connection, now_ms: int, rows_max: int) -> int:
    """Delete expired keys with their steps, and return the number of keys."""
    due = keys.c.expires_ms <= now_ms, keys.c.lease_until_ms <= now_ms
    # It leaves the keys that somebody works on at the moment: if it waited for one handler, requests with other keys
    # would wait for it. A key that was taken over meanwhile is no longer due.
    expired = select(keys.c.scope, keys.c.key).where(*due).limit(rows_max).with_for_update(skip_locked=True)
    names = [Name(*row) for row in connection.execute(expired)]
    # Steps are deleted after their key, when no more can be added.
    pairs = [(name.scope, name.key) for name in names]
    connection.execute(delete(keys).where(tuple_(keys.c.scope, keys.c.key).in_(pairs)))
    forget_steps(connection, names)
    return len(names)


def _of(name: Name) -> dict[str, Any]:
    return {"of_scope": name.scope, "of_key": name.key}


def _time_here(connection: Connection, term: Term) -> int | None:
    """The time for a claim; None if the database adds its own to the statements."""
    is_added = term.now_ms is None and dialect_of(connection).has_locks
    if is_added or term.now_ms is not None:
        return term.now_ms
    return database_now_ms(connection)


def _row(connection: Connection, at_ms: int | None) -> Select[Any]:
    name = dialect_of(connection).name
    return _LOCKING[name].row_and_time if at_ms is None else _CURRENT_ROW[name]


def _inserted(connection: Connection, name: Name, fingerprint: str, term: Term, at_ms: int | None) -> int | None:
    """The token of the new row; None if there is a row, or another request works on the key. The token is the time, so
    that a holder from before the key was deleted is fenced, too."""
    row: dict[str, Any] = {"scope": name.scope, "key": name.key, "fingerprint": fingerprint}
    locking = _LOCKING.get(dialect_of(connection).name)
    if locking is not None:
        times = {"at_ms": at_ms, "lease_ms": term.lease_ms, "ttl_ms": term.ttl_ms}
        token: int | None = connection.scalar(locking.insert, {**row, **times, "lock": _lock(name)})
        return token
    assert at_ms is not None
    row |= {"token": at_ms, "lease_until_ms": term.lease_until_ms(at_ms), "expires_ms": at_ms + term.ttl_ms}
    return at_ms if is_new(connection, _INSERT, row) else None


def _taken_over(
    connection: Connection, name: Name, fingerprint: str, term: Term, at_ms: int, row: Row[Any]
) -> KeyState:
    """Take over a key that has expired, or whose holder's lease has run out. If two requests try, the second one finds
    another token."""
    token = row.token + 1
    values = {
        "fingerprint": fingerprint,
        "token": token,
        "lease_until_ms": term.lease_until_ms(at_ms),
        "expires_ms": at_ms + term.ttl_ms,
        **dict.fromkeys(("status", "headers", "body")),
        **_of(name),
        "of_token": row.token,
    }
    locking = _LOCKING.get(dialect_of(connection).name)
    if locking is None:
        rows = connection.execute(_TAKE_OVER, values)
    else:
        rows = connection.execute(locking.take_over, {**values, "lock": _lock(name)})
    return Accepted(token) if rows.rowcount else Running(RETRY_AFTER_SECONDS)


def _as_holder(
    connection: Connection, name: Name, token: int, values: dict[str, Any], change: Update = _OF_HOLDER
) -> None:
    if not connection.execute(change, {**values, **_of(name), "of_token": token}).rowcount:
        raise Fenced(title_of(name))


def _lock(name: Name) -> int:
    digest = hashlib.sha256(f"semel.http {name.scope} {name.key}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _answer(row: Row[Any]) -> Answer | None:
    if row.headers is None:
        return None
    return Answer(row.status, read_headers(row.headers), bytes(row.body))


# -- the reaper --------------------------------------------------------------------------------------------------------


# How many keys one transaction deletes, so that no request waits long for the reaper.
REAPED_ROWS_MAX: Final = 1000


def reap(engine: Engine, now_ms: int | None = None, rows_max: int = REAPED_ROWS_MAX) -> int:
    """Delete all expired keys, in transactions of `rows_max` keys, and return their number."""
    if isinstance(engine, AsyncEngine):
        raise TypeError("reap takes an Engine; on an AsyncEngine it is `await reap_async(engine)`")
    check_engine("the engine", engine)
    return drive(_reap(engine, now_ms, rows_max))


async def reap_async(engine: AsyncEngine, now_ms: int | None = None, rows_max: int = REAPED_ROWS_MAX) -> int:
    """`reap` on an asynchronous engine."""
    check_engine("the engine", engine, AsyncEngine)
    return await drive_async(_reap(engine, now_ms, rows_max))


def _reap(engine: Engine | AsyncEngine, now_ms: int | None, rows_max: int) -> Procedure[int]:
    def reap_some(connection: Connection) -> int:
        return reap_batch(connection, database_now_ms(connection) if now_ms is None else now_ms, rows_max)

    reaped = 0
    while True:
        count: int = yield transaction(engine, reap_some)
        REAPED.add(by=count)
        reaped += count
        if count < rows_max:
            return reaped
