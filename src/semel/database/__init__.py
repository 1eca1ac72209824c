"""Finds and checks the caller's own transaction on any kind of connection, for outbox, inbox and HTTP keys.

A claim commits with its effect, so both have to be written on the same connection. This room finds that connection, and
refuses one on which the two might not commit together. It must never begin, commit or roll back the caller's
transaction.
"""

import importlib.util

if importlib.util.find_spec("sqlalchemy") is None:
    raise ImportError("semel.database needs SQLAlchemy, which is missing: pip install 'semel[app]'")

from semel.database.connections import AsyncHandle, Handle, within, within_async
from semel.database.dialects import OpenRawTransaction
from semel.database.effects import elsewhere
from semel.database.engines import begin_immediately, engine_of, read_only
from semel.database.errors import REMEDY, is_missing_table, is_passing
from semel.database.open_transactions import (
    AsyncOpenTransaction,
    keep_open,
    keep_open_async,
    kept_open,
    kept_open_async,
)
from semel.database.refusals import (
    CommitTooEarly,
    EffectFailed,
    NotFlushed,
    NotImmediate,
    NotInTransaction,
    PreparesThroughPooler,
    TransactionBroken,
    UnknownConnection,
    UnknownDatabase,
    WaitsForItself,
    WrittenElsewhere,
)
from semel.database.transactions import OpenTransaction

__all__ = [
    "REMEDY",
    "AsyncHandle",
    "AsyncOpenTransaction",
    "CommitTooEarly",
    "EffectFailed",
    "Handle",
    "NotFlushed",
    "NotImmediate",
    "NotInTransaction",
    "OpenRawTransaction",
    "OpenTransaction",
    "PreparesThroughPooler",
    "TransactionBroken",
    "UnknownConnection",
    "UnknownDatabase",
    "WaitsForItself",
    "WrittenElsewhere",
    "begin_immediately",
    "elsewhere",
    "engine_of",
    "is_missing_table",
    "is_passing",
    "keep_open",
    "keep_open_async",
    "kept_open",
    "kept_open_async",
    "read_only",
    "within",
    "within_async",
]
