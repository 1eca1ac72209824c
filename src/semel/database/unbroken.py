"""Whether a transaction that is about to be committed still holds all that was done in it.

PostgreSQL undoes a transaction in which a statement failed, and answers its COMMIT by a rollback that no driver speaks
of; SQLite does the same where its disk is full. Who catches such an error and goes on would take for done what is not.
This must never end the transaction.
"""

from typing import Any, Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from semel.database.errors import TransactionBroken

# As libpq numbers it, for psycopg and whoever else stands on it.
_IN_ERROR: Final = 3


def check_unbroken(connection: Connection) -> None:
    """Raise TransactionBroken where a commit would be none."""
    if not connection.in_transaction():
        raise TransactionBroken
    driver: Any = connection.connection.driver_connection
    if connection.dialect.name == "sqlite":
        is_broken = not driver.in_transaction
    elif hasattr(driver, "info"):
        is_broken = driver.info.transaction_status == _IN_ERROR
    else:
        is_broken = not _answers(connection)
    if is_broken:
        raise TransactionBroken


def _answers(connection: Connection) -> bool:
    """Of a driver that does not know: nothing is answered in a transaction that was undone."""
    try:
        connection.exec_driver_sql("SELECT 1")
    except DBAPIError:
        return False
    return True
