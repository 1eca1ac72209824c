"""A store of objects that outlives this machine: five calls, and the promises that every engine keeps. `open_store`
opens one by its URL. The engines are a directory, a bucket of any service that speaks S3, and PostgreSQL. This package
must never depend on the meaning of the objects.
"""

from semel.log.store.address import open_store
from semel.log.store.contract import (
    BODY_BYTES_MAX,
    FORMAT_KEY,
    Changed,
    Exists,
    Found,
    Full,
    Missing,
    Silent,
    Store,
    StoreBroken,
    StoreError,
    StoreRefused,
    Unsure,
)
