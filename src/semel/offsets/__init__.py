"""Offsets stored with the output: how far a consumer has read is a row, written in the transaction of the effect.

    with engine.begin() as connection:
        if offsets.advance(connection, "billing", record.topic(), record.partition(), record.offset()):
            book(connection, record)

It is for consumers whose events have no id. The claim is the place in the topic, so an event that its producer sent
twice has its effect twice: if events have ids, use the inbox. This room must never begin, commit or roll back the
caller's transaction.
"""

import importlib.util

if importlib.util.find_spec("sqlalchemy") is None:
    raise ImportError("semel.offsets needs SQLAlchemy, which is missing: pip install 'semel[app]'")

from semel.offsets.places import OffsetsDoNotFit, advance, advance_async, forget, next_offsets
from semel.offsets.seek import seeking
from semel.offsets.tables import metadata

__all__ = ["OffsetsDoNotFit", "advance", "advance_async", "forget", "metadata", "next_offsets", "seeking"]
