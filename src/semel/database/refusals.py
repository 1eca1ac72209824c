"""The errors with which semel refuses a connection, a statement or a commit. Each names its remedy."""

import contextlib
from collections.abc import Callable, Iterator

from sqlalchemy.exc import InvalidRequestError


class UnknownConnection(TypeError):
    """The handle is no connection on which semel can send statements."""

    def __init__(self, value: object, reason: str = "") -> None:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        # Before Django has used its connection, the driver's own is None.
        is_djangos = value is None or kind.startswith("django.")
        remedy = (
            "hand over a SQLAlchemy Connection or Session (or the asynchronous ones), a sqlite3.Connection or a "
            "psycopg.Connection"
        )
        of_django = "; with Django, hand over connection.connection inside of transaction.atomic()"
        super().__init__(
            f"{kind} is no connection that semel knows; {reason or remedy}{of_django if is_djangos else ''}"
        )


class UnknownDatabase(ValueError):
    """The database is none that semel knows, or the URL names none."""


class NotInTransaction(RuntimeError):
    """Each statement would commit by itself, so the claim and the effect would not commit together."""

    def __init__(self, remedy: str) -> None:
        super().__init__(f"no transaction is open, so the claim would not commit with your effect: {remedy}")


class NotImmediate(RuntimeError):
    """A SQLite transaction that began as a reader: it may fail when it first writes, whatever the busy timeout is."""

    def __init__(self) -> None:
        super().__init__(
            "this SQLite transaction is not IMMEDIATE, so it can fail as soon as another connection writes: begin it "
            "with BEGIN IMMEDIATE (with SQLAlchemy: make the engine by semel.database.engine_of(url))"
        )


class UnsafeSettings(RuntimeError):
    """The settings of a connection let a claim be seen that is undone, or change its text."""


class PreparesThroughPooler(RuntimeError):
    """A connection to PostgreSQL through a pooler prepares statements, and may execute one of another client."""

    def __init__(self) -> None:
        super().__init__(
            "this connection prepares statements, and goes through a pooler such as PgBouncer, which may give each "
            "transaction another session of the server, with the statements of other clients: make the engine by "
            "semel.database.engine_of(url), set prepare_threshold=None on psycopg's own connections, and for asyncpg "
            "see 'Through PgBouncer' in docs/how-to/schema.md"
        )


class WaitsForItself(RuntimeError):
    """A second transaction on SQLite would wait for the one in which its caller works, until the busy timeout is
    over."""

    def __init__(self, file: str) -> None:
        super().__init__(
            f"the transaction in which this handler works holds the write lock of {file}, so a second one on another "
            "connection waits for it until it fails: do the work on the connection or session that the handler was "
            "handed, or read on semel.database.read_only(engine)"
        )


class WrittenElsewhere(RuntimeError):
    """The work of a claim writes on another connection, so its effect would commit apart from the claim."""

    def __init__(self, what: str, remedy: str = "") -> None:
        self.remedy = remedy
        usual = (
            "write on the connection or session of the claim: the one that the handler or task was handed, or takes by "
            "idempotency.session(request), in FastAPI Depends(idempotency.session), or by step.connection()"
        )
        super().__init__(
            f"{what}, and the claim of this event or request is on another one: the two would not commit together, and "
            f"a repetition would write it again. So {remedy or usual}. What may happen twice, write and "
            "flush inside of `with semel.database.elsewhere():`"
        )


class TransactionBroken(RuntimeError):
    """The transaction was rolled back, and its commit would still report success."""

    def __init__(self) -> None:
        super().__init__(
            "the transaction was undone before its end, by an error of the database that was caught, or by a rollback: "
            "let the error go on, or do what may fail inside of connection.begin_nested()"
        )


class CommitTooEarly(TransactionBroken):
    """A commit between a claim and the end of its work. What came after it could fail, and the event would count as
    done."""

    def __init__(self) -> None:
        RuntimeError.__init__(
            self,
            "the transaction of a claim would end before its work: leave out commit(), and COMMIT and ROLLBACK in SQL, "
            "and on MySQL what commits by itself, such as CREATE TABLE. "
            "The code that began the transaction commits it afterwards; connection.begin_nested() may be used inside",
        )


class NotFlushed(TransactionBroken):
    """A session on the connection of a claim has not written its changes."""

    def __init__(self, changed: str) -> None:
        RuntimeError.__init__(
            self,
            f"a session on this connection was closed or left before it has written a {changed}: call session.flush() "
            "or session.commit() before that, or hand over the session itself (an Inbox takes a sessionmaker)",
        )


class EffectFailed(TransactionBroken):
    """A commit of a claim whose work has failed."""

    def __init__(self) -> None:
        RuntimeError.__init__(
            self,
            "an exception left the block of a claim, so its work is not done, and the commit would count it as done: "
            "roll the transaction back; or let the exception leave connection.begin_nested(), and catch it outside",
        )


@contextlib.contextmanager
def told_of_end(is_over: Callable[[], bool]) -> Iterator[None]:
    """Adds what it means to the error with which SQLAlchemy refuses what comes after a rollback."""
    try:
        yield
    except InvalidRequestError as error:
        if is_over():
            error.add_note(str(TransactionBroken()))
        raise
