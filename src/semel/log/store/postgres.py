"""The engine for PostgreSQL with a synchronous standby: one table of keys and bodies.

A create is an insert that does nothing if the key exists. Failover makes this more than five statements:

- A commit that is cancelled while it waits for the standby succeeds, with a warning. It is then unknown whether
  a failover would keep it, so the call raises Unsure.
- The rows of such a commit are visible, and so are rows that a server which restarted after a crash has not sent to its
  standby yet; and a server that was replaced still answers. So a read commits something as well, and counts only if
  that commit was clean: then the standby has everything that the read saw, and has not taken over.
- If the operator of the server removes the standby's name, commits do not wait any more. So each answer says whether a
  standby was named. This must never report success unless a standby has the data, except if the user has allowed that.
"""

import contextlib
import hashlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, unquote

from semel.log.store.contract import (
    Buffer,
    Changed,
    Exists,
    Found,
    Full,
    Listed,
    Missing,
    StoreError,
    StoreRefused,
    Unsure,
    check_folder,
)

if TYPE_CHECKING:
    import psycopg

TABLE: Final = "semel_objects"
PAGE_OBJECTS: Final = 1000
# A statement is given up after this time, and its outcome is unknown. PostgreSQL's own timeout ends before the commit
# begins, and without its standby a commit waits for ever: so this process watches each statement as well.
STATEMENT_SECONDS_MAX: Final = 20
CONNECT_SECONDS_MAX: Final = 3
# A process that has stopped in the middle of a transaction holds its locks no longer than this.
IDLE_SECONDS_MAX: Final = 3

_SHA256: Final = "encode(sha256(body), 'hex')"
# Whether a commit waits for what it needs. The connection asks for synchronous_commit=on, but a pooler may have ignored
# that, and gives each transaction another session of the server.
_IS_KEPT: Final = "current_setting('synchronous_commit') <> 'off'"
_IS_KEPT_TWICE: Final = (
    "(current_setting('synchronous_standby_names') <> '' "
    "AND current_setting('synchronous_commit') IN ('on', 'remote_apply'))"
)
# An empty value if there is a body, otherwise null.
_NOTHING: Final = "substring(body FOR 0)"
# Something to commit, because a transaction that only reads does not wait for the standby.
_MESSAGE: Final = "pg_logical_emit_message(true, 'semel', '')"
# After so many executions a statement is prepared.
_PREPARE_THRESHOLD: Final = 2
# The number of the lock under which the table is created: two processes cannot create it at the same time.
_LOCK: Final = 0x73656D656C
_ALONE: Final = (
    "acknowledged data would be on this server alone: set synchronous_standby_names there, and behind a pooler "
    "synchronous_commit=on for this user, or add ?allow_async=1 to the URL to accept its loss with the server"
)
_IN_MEMORY: Final = (
    "acknowledged data would be in the server's memory alone: sessions of the pooler have synchronous_commit=off; set "
    "it to on for this user"
)
_SETTINGS_REFUSED: Final = "unsupported startup parameter"
# Errors that may end by themselves. Classes of SQLSTATE: connection, transaction rolled back, resources, the operator's
# intervention; the code of a server that may not write, which is a standby; and those of time limits of a role.
_PASSING: Final = ("08", "40", "53", "57", "55P03", "25006", "25P03", "25P04", "58030")
_DISK_FULL: Final = "53100"
# Messages of the client library that come without a code.
_FOR_A_PERSON: Final = ("authentication failed", "does not exist", "no password", "invalid", "certificate")


class PostgresStore:
    """A `BlockingStore`."""

    def __init__(self, parts: SplitResult, *, statement_seconds_max: float = STATEMENT_SECONDS_MAX) -> None:
        """Nothing is sent before the first call."""
        try:
            import psycopg
        except ImportError as error:
            raise StoreRefused(
                f"a store at postgresql:// needs psycopg ({error}): pip install 'semel[postgres]'"
            ) from None
        self._psycopg = psycopg
        user_info, _, hosts = parts.netloc.rpartition("@")
        self._address = f"postgresql://{hosts}{parts.path}"
        if "@" in parts.path or (not user_info and "@" in parts.query) or parts.fragment:
            # It is unknown where the password ends, so no part of the URL is shown.
            raise StoreRefused(
                "a store at postgresql://: its user, password and options have one of / ? # @: write %2F, %3F, %23, %40"
            )
        # An option overrides the rest of the URL, as in the client library.
        options: dict[str, str | int] = {**_credentials(user_info), **_options(parts.query)}
        self._prefix = str(options.pop("prefix", ""))
        allow_async = options.pop("allow_async", "0")
        limits = f"-c statement_timeout={int(statement_seconds_max * 1000)} -c synchronous_commit=on"
        limits += f" -c idle_in_transaction_session_timeout={IDLE_SECONDS_MAX * 1000}"
        # The server, too, notices a machine that disappears with a transaction.
        limits += f" -c tcp_keepalives_idle={CONNECT_SECONDS_MAX} -c tcp_keepalives_interval={CONNECT_SECONDS_MAX}"
        limits += " -c tcp_keepalives_count=3"
        try:
            check_folder(self._prefix)
            if allow_async not in ("0", "1"):
                raise ValueError("allow_async is 1 or 0")
            self._conninfo = psycopg.conninfo.make_conninfo(
                # The library repeats what it cannot read of a URL, so it gets no secret as a part of one.
                f"postgresql://{hosts}{parts.path}",
                **{
                    **options,
                    "application_name": "semel",
                    # Otherwise it is that of the server, and there are servers without one.
                    "client_encoding": "utf8",
                    "connect_timeout": CONNECT_SECONDS_MAX,
                    "target_session_attrs": "read-write",
                    # Notices a server that disappears without closing its connections.
                    "keepalives_idle": CONNECT_SECONDS_MAX,
                    "keepalives_interval": CONNECT_SECONDS_MAX,
                    "keepalives_count": 3,
                    "tcp_user_timeout": int(statement_seconds_max * 1000),
                    "options": f"{options.get('options', '')} {limits}".strip(),
                },
            )
        except (ValueError, psycopg.Error) as error:
            reason = str(error).splitlines()[0]
            raise StoreRefused(
                f"{self._address}: {reason}: write postgresql://user@host/database?prefix=name"
            ) from None
        self._needs_standby = allow_async == "0"
        self._is_kept = _IS_KEPT_TWICE if self._needs_standby else _IS_KEPT
        self._statement_seconds_max = statement_seconds_max
        self._lock = threading.Lock()
        # Since when, and in which thread.
        self._busy: dict[_Session, tuple[float, int]] = {}
        self._closed = threading.Event()
        self._watch: threading.Thread | None = None
        self._idle: list[_Session] = []
        self._prepared = False
        self._is_pooled = False
        self._has_table = False

    def create(self, key: str, body: Buffer) -> str:
        with self._session(key) as session:
            self._make_table(session)
            insert = f"INSERT INTO {TABLE} (key, body) VALUES (%s, %b) ON CONFLICT DO NOTHING"
            statement = f"{insert} RETURNING {self._is_kept}"
            if self._committed(session, statement, self._key(key), body) is None:
                # The object that the caller reads there next must be as durable as a created one. It may also have been
                # deleted meanwhile.
                with contextlib.suppress(Missing):
                    self._read(session, key, _NOTHING)
                raise Exists(f"{key} exists in {self._address}")
        return _version(body)

    def replace(self, key: str, body: Buffer, version: str) -> str:
        with self._session(key) as session:
            statement = f"UPDATE {TABLE} SET body = %b WHERE key = %s AND {_SHA256} = %s RETURNING {self._is_kept}"
            if self._committed(session, statement, body, self._key(key), version) is None:
                self._read(session, key, _NOTHING)
                raise Changed(f"{key} in {self._address} was replaced by somebody else")
        return _version(body)

    def get(self, key: str) -> Found:
        with self._session(key) as session:
            body = self._read(session, key, "body")
        return Found(body, _version(body))

    def get_range(self, key: str, start: int, size: int) -> bytes:
        with self._session(key) as session:
            return self._read(session, key, f"substring(body FROM {int(start) + 1} FOR {int(size)})")

    def list(self, folder: str, after: str = "") -> Iterator[list[Listed]]:
        beginning = self._key(f"{folder}/" if folder else "")
        # The character after the slash; without a prefix and a folder, one after those of all keys. It is in every
        # encoding that a database can have.
        end = f"{beginning[:-1]}0" if beginning else "~"
        last, page = max(beginning, self._key(after)), [Listed("", 0)]
        while page:
            try:
                with self._session(folder or "/") as session:
                    statement = (
                        f"SELECT key, octet_length(body) FROM {TABLE} WHERE key > %s AND key < %s ORDER BY key LIMIT %s"
                    )
                    rows = session.run(statement, last, end, PAGE_OBJECTS)
            except Missing:
                return
            page = [Listed(key[len(self._key("")) :], size) for key, size in rows]
            if page:
                last = rows[-1][0]
                yield page

    def delete(self, key: str) -> None:
        with contextlib.suppress(Missing), self._session(key) as session:
            self._committed(session, f"DELETE FROM {TABLE} WHERE key = %s RETURNING {self._is_kept}", self._key(key))

    def cut_short(self, thread: int) -> None:
        for session, (_, busy) in list(self._busy.items()):
            if busy == thread:
                session.cut_off()

    def close(self) -> None:
        self._close_idle()
        self._closed.set()
        if self._watch is not None:
            self._watch.join()

    def describe(self) -> str:
        return f"{self._address}?prefix={self._prefix}" if self._prefix else self._address

    def _key(self, key: str) -> str:
        return f"{self._prefix}/{key}" if self._prefix else key

    def _read(self, session: "_Session", key: str, what: str) -> bytes:
        """A column of the object, in a state that the standby has, too."""
        if not self._needs_standby:
            rows = session.run(f"SELECT {what} FROM {TABLE} WHERE key = %s", self._key(key))
            body = rows[0][0] if rows else None
        else:
            # The message is written before the commit that ends this statement, and after everything that the statement
            # has seen.
            statement = (
                f"WITH message AS MATERIALIZED (SELECT {_MESSAGE} AS position) "
                f"SELECT {self._is_kept}, {what}, position FROM message LEFT JOIN {TABLE} ON key = %s"
            )
            body = self._committed(session, statement, self._key(key))
        if body is None:
            raise Missing(f"{key} is not in {self._address}")
        return bytes(body)

    def _committed(self, session: "_Session", statement: str, *parameters: Any) -> Any:
        """The second column of the first row, or otherwise the first, of a statement that must reach the disk, and the
        standby if one is needed."""
        rows = session.run(statement, *parameters)
        if self._needs_standby and session.warned:
            raise Unsure(f"{self._address}: the synchronous standby did not confirm it: see whether it is running")
        if not rows:
            return None
        if not rows[0][0]:
            raise self._refusal()
        return rows[0][min(1, len(rows[0]) - 1)]

    @contextlib.contextmanager
    def _session(self, what: str) -> Iterator["_Session"]:
        """A session for one call; after an unexpected error it is closed, and the next call opens another."""
        session: _Session | None = None
        # Another thread may take the last idle one, so this does not look before it takes.
        with contextlib.suppress(IndexError):
            session = self._idle.pop()
        if session is None:
            try:
                session = self._opened()
            except self._psycopg.Error as error:
                raise self._translated(what, error) from error
        self._busy[session] = time.monotonic(), threading.get_ident()
        try:
            yield session
        except StoreError:
            self._idle.append(session)
            raise
        except self._psycopg.errors.UndefinedTable:
            # Only a broker that keeps something makes the table, and not one that looks whether there is anything.
            self._idle.append(session)
            raise Missing(f"{what} is not in {self._address}, which has no table {TABLE}") from None
        except self._psycopg.Error as error:
            session.close()
            # The other connections were probably lost as well, and each would fail one more call.
            self._close_idle()
            raise self._translated(what, error) from error
        except BaseException:
            session.close()
            raise
        else:
            self._idle.append(session)
        finally:
            self._busy.pop(session, None)

    def _opened(self) -> "_Session":
        session = _Session(self._psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None))
        with self._lock:
            if self._watch is None:
                self._watch = threading.Thread(target=self._end_overdue, name="semel-store-watch", daemon=True)
                self._watch.start()
            if not self._prepared:
                # All other calls wait for this one, so it is watched as well.
                self._busy[session] = time.monotonic(), threading.get_ident()
                try:
                    self._prepare(session)
                except BaseException:
                    session.close()
                    raise
                finally:
                    self._busy.pop(session, None)
                self._prepared = True
        # Only now is it known whether a pooler is between, to all that connect at the same time, too.
        session.connection.prepare_threshold = None if self._is_pooled else _PREPARE_THRESHOLD
        return session

    def _end_overdue(self) -> None:
        """Cancel statements that take too long, and cut off those that cannot be cancelled."""
        while not self._closed.wait(self._statement_seconds_max / 4):
            for session, (began, _) in list(self._busy.items()):
                seconds = time.monotonic() - began
                if seconds > 2 * self._statement_seconds_max:
                    session.cut_off()
                elif seconds > self._statement_seconds_max:
                    session.cancel()

    def _close_idle(self) -> None:
        while self._idle:
            with contextlib.suppress(IndexError):
                self._idle.pop().close()

    def _prepare(self, session: "_Session") -> None:
        """Refuse a server whose commits do not wait for what is needed, and find out whether a pooler is between."""
        if session.run("SELECT pg_backend_pid()")[0][0] != session.connection.info.backend_pid:
            # Another session of the server, which such as PgBouncer may choose, knows no prepared statement.
            self._is_pooled = True
        if not session.run(f"SELECT {self._is_kept}")[0][0]:
            raise self._refusal()

    def _refusal(self) -> StoreRefused:
        return StoreRefused(f"{self._address}: {_ALONE if self._needs_standby else _IN_MEMORY}")

    def _make_table(self, session: "_Session") -> None:
        """Create the table, if it does not exist."""
        if self._has_table:
            return
        if not session.run("SELECT to_regclass(%s) IS NOT NULL", TABLE)[0][0]:
            with session.connection.transaction():
                session.run("SELECT pg_advisory_xact_lock(%s)", _LOCK)
                session.run(
                    f'CREATE TABLE IF NOT EXISTS {TABLE} (key text COLLATE "C" PRIMARY KEY, body bytea NOT NULL)'
                )
                # Brokers write compressed data, and without PostgreSQL's compression a range can be read without the
                # rest.
                session.run(f"ALTER TABLE {TABLE} ALTER body SET STORAGE EXTERNAL")
        self._has_table = True

    def _translated(self, what: str, error: "psycopg.Error") -> StoreError:
        code = error.sqlstate or ""
        reason = f"{self._address}: {what}: {' '.join(str(error).split())}"
        if _SETTINGS_REFUSED in reason:
            return StoreRefused(
                f"{reason}: a pooler refuses the settings of this connection: name the server itself in the URL, or "
                "have the pooler ignore them (PgBouncer: ignore_startup_parameters = options)"
            )
        passing = code.startswith(_PASSING) if code else not any(words in str(error) for words in _FOR_A_PERSON)
        if passing:
            return Full(reason) if code == _DISK_FULL else Unsure(reason)
        return StoreRefused(f"{reason}: correct the URL, or give its user the right to make and change {TABLE}")


class _Session:
    """A connection that notes whether the last statement came with a warning."""

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self.connection = connection
        self.warned = False
        connection.add_notice_handler(self._note)

    def run(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run a statement; returns its rows."""
        self.warned = False
        with self.connection.cursor(binary=True) as cursor:
            cursor.execute(statement.encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    def cancel(self) -> None:
        """Cancel its statement; a waiting commit then succeeds, with a warning."""
        with contextlib.suppress(Exception):
            self.connection.cancel_safe(timeout=CONNECT_SECONDS_MAX)

    def cut_off(self) -> None:
        """Close the socket as a broken network would: the thread that waits for an answer gets an error."""
        with contextlib.suppress(Exception), socket.socket(fileno=os.dup(self.connection.fileno())) as connected:
            connected.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.connection.close()

    def _note(self, notice: "psycopg.errors.Diagnostic") -> None:
        # Only warnings count, because "the table exists" is a notice as well.
        self.warned |= notice.severity_nonlocalized == "WARNING"


def _credentials(user_info: str) -> dict[str, str]:
    """The user and the password in a URL, if it has them."""
    user, _, password = user_info.partition(":")
    return {name: unquote(value) for name, value in (("user", user), ("password", password)) if value}


def _options(query: str) -> dict[str, str]:
    """The options of a URL. A plus is a plus, as the client library has it, and no space."""
    pairs = [option.partition("=") for option in query.split("&") if option]
    return {name: unquote(value) for name, _, value in pairs}


def _version(body: Buffer) -> str:
    return hashlib.sha256(body).hexdigest()
