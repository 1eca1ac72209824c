"""The caller's own transaction, on any kind of connection: what outbox, inbox and HTTP keys stand on.

A claim commits with its effect, so it is written on the connection that the effect is written on. This room finds that
connection, and refuses one on which the two could come apart. It must never begin, commit or roll back a transaction
that it was handed.
"""

import importlib.util

if importlib.util.find_spec("sqlalchemy") is None:
    raise ImportError("semel.database needs SQLAlchemy, which is missing: pip install 'semel[app]'")

from semel.database.connections import AsyncHandle, Handle, check_unbroken, within, within_async
from semel.database.engines import begin_immediately, engine_of, read_only
from semel.database.errors import (
    REMEDY,
    NotImmediate,
    NotInTransaction,
    TransactionBroken,
    UnknownConnection,
    UnknownDatabase,
    is_missing_table,
    is_passing,
)

__all__ = [
    "REMEDY",
    "AsyncHandle",
    "Handle",
    "NotImmediate",
    "NotInTransaction",
    "TransactionBroken",
    "UnknownConnection",
    "UnknownDatabase",
    "begin_immediately",
    "check_unbroken",
    "engine_of",
    "is_missing_table",
    "is_passing",
    "read_only",
    "within",
    "within_async",
]
