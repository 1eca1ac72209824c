"""A store of objects that may outlive this machine: five calls, and what every engine promises about them.

`open_store` makes one from a URL. The engines are a directory, whatever speaks S3, and PostgreSQL. This room must never
know what the objects mean.
"""

from semel.store.address import open_store
from semel.store.contract import (
    BODY_BYTES_MAX,
    Changed,
    Exists,
    Found,
    Listed,
    Missing,
    Store,
    StoreError,
    StoreRefused,
    Unsure,
)

__all__ = [
    "BODY_BYTES_MAX",
    "Changed",
    "Exists",
    "Found",
    "Listed",
    "Missing",
    "Store",
    "StoreError",
    "StoreRefused",
    "Unsure",
    "open_store",
]
