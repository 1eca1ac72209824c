"""The tables of the service and of the ledger: `python -m payments.tables` makes them, with those of semel.

Each side has its own database: the API never reads the ledger's, nor the ledger the API's. Nothing here prevents a
payment from being booked twice, not even a unique key on `entries.payment`: that is the task of semel's tables.
"""

import os
from typing import Final

from sqlalchemy import BigInteger, Column, Engine, MetaData, Table, Text

from semel import schema
from semel.database import engine_of

PAYMENTS_DATABASE: Final = os.environ.get("PAYMENTS_DATABASE", "sqlite:///payments.db")
LEDGER_DATABASE: Final = os.environ.get("LEDGER_DATABASE", "sqlite:///ledger.db")

payments_metadata: Final = MetaData()
payments: Final = Table(
    "payments",
    payments_metadata,
    Column("id", Text, primary_key=True),
    Column("payer", Text, nullable=False),
    Column("payee", Text, nullable=False),
    Column("amount_cents", BigInteger, nullable=False),
)

ledger_metadata: Final = MetaData()
# Double entry: each payment is a debit of one account and a credit of another, of the same amount.
entries: Final = Table(
    "entries",
    ledger_metadata,
    Column("payment", Text, nullable=False, index=True),
    Column("account", Text, nullable=False, index=True),
    Column("debit_cents", BigInteger, nullable=False),
    Column("credit_cents", BigInteger, nullable=False),
)


def make(payments_engine: Engine, ledger_engine: Engine) -> None:
    """Make all missing tables."""
    payments_metadata.create_all(payments_engine)
    schema.make(payments_engine, "http", "outbox")
    ledger_metadata.create_all(ledger_engine)
    schema.make(ledger_engine, "inbox")


if __name__ == "__main__":
    make(engine_of(PAYMENTS_DATABASE), engine_of(LEDGER_DATABASE))
