"""The tables of the HTTP keys: one row for each caller and key, and one for each step that a handler has finished.

Times are in milliseconds since 1970. A row without a status belongs to a request that is running, or that died; its
token fences the earlier holder.
"""

from typing import Final

from sqlalchemy import Column, Index, MetaData, Table

from semel.database.columns import BYTES, INTEGER, TEXT, key, with_options
from semel.steps.tables import NAME_BYTES_MAX, steps

metadata: Final = MetaData()

keys: Final = Table(
    "semel_http_keys",
    metadata,
    # A digest of the caller, because the value that identifies a caller may be a secret.
    Column("scope", key(64), primary_key=True),
    Column("key", key(NAME_BYTES_MAX), primary_key=True),
    Column("fingerprint", TEXT, nullable=False),
    # Rises with each new holder of the key.
    Column("token", INTEGER, nullable=False),
    # Until when the holder has the key; 0 if the holder has released it, -1 if a transaction holds it.
    Column("lease_until_ms", INTEGER, nullable=False),
    Column("expires_ms", INTEGER, nullable=False),
    # The stored answer. A status without headers is an answer that was not kept.
    Column("status", INTEGER),
    Column("headers", TEXT),
    Column("body", BYTES),
)
Index("semel_http_keys_expires", keys.c.expires_ms)

# The steps of a request are recorded as those of a workflow are.
steps.to_metadata(metadata)

with_options(metadata)
