"""Records as Arrow columns, both ways: read from fetched batches, and encoded for batches to send.

It needs numpy and pyarrow, so the rest of the client must never need this package.
"""

import importlib.util

if importlib.util.find_spec("numpy") is None or importlib.util.find_spec("pyarrow") is None:
    raise ImportError("semel.client.arrow needs numpy and pyarrow, and one is missing: pip install 'semel[audit]'")

from semel.client.arrow.columns import TYPES, schema_of
from semel.client.arrow.slices import read_slice

__all__ = ["TYPES", "read_slice", "schema_of"]
