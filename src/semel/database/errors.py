"""Why a connection is refused, each with the line that mends it."""


class UnknownConnection(TypeError):
    """What was handed over is no connection that a statement can be sent on."""

    def __init__(self, given: object) -> None:
        kind = f"{type(given).__module__}.{type(given).__qualname__}"
        super().__init__(
            f"{kind} is no connection that semel knows; hand over a SQLAlchemy Connection or Session "
            "(or the asynchronous ones), a sqlite3.Connection or a psycopg.Connection"
        )


class UnknownDatabase(ValueError):
    """The database is neither SQLite nor PostgreSQL, or the URL names none."""


class NotInTransaction(RuntimeError):
    """Each statement would commit by itself, so the claim and the effect would come apart."""

    def __init__(self, remedy: str) -> None:
        super().__init__(f"no transaction is open, so the claim would not commit with your effect: {remedy}")


class NotImmediate(RuntimeError):
    """A SQLite transaction that began as a reader: it may fail in its middle, whatever its busy timeout."""

    def __init__(self) -> None:
        super().__init__(
            "this SQLite transaction is not IMMEDIATE, so it can fail as soon as somebody else writes: begin it with "
            "BEGIN IMMEDIATE (with SQLAlchemy: make the engine by semel.database.engine_of(url))"
        )


class TransactionBroken(RuntimeError):
    """All that was done in the transaction is undone, and its commit would say nothing of that."""

    def __init__(self) -> None:
        super().__init__(
            "the transaction was undone before its end, by an error of the database that was caught, or by a rollback: "
            "let the error go on, or do what may fail inside of connection.begin_nested()"
        )
