"""The stores under a log: to open one, to look into it, and to make a double of it."""

from semel.log.store import Missing, Store, StoreError, StoreRefused, Unsure, open_store
from semel.log.store.contents import contents_of
from semel.log.store.contract import (
    Buffer,
    Changed,
    Exists,
    Found,
    Listed,
    check_after,
    check_body,
    check_folder,
    check_key,
    check_range,
)
from semel.log.store.probe import FOLDER, probe, probe_at_start
