"""What brokers on one store have in common: the object `format`, made by the first of them.

It says which cluster the store belongs to, in which version everything else is written, and how many slots a broker may
have under way. A store in another version, or with another number, must never be used.
"""

import asyncio
import json
from typing import Any, Final

from semel.core.slots import DEPTH, BrokenHistory
from semel.replica.slot import VERSION
from semel.replica.writer import create_surely
from semel.store import Missing, Store, Unsure

FORMAT_KEY: Final = "format"
_AGAIN_SECONDS: Final = 0.2


async def cluster_of(store: Store, new_cluster_id: str) -> str:
    """The id of the cluster that the store belongs to; the new one if there is none. Raises BrokenHistory for a store
    that this semel must not use."""
    content = json.dumps({"version": VERSION, "depth": DEPTH, "cluster_id": new_cluster_id}).encode()
    if await create_surely(store, FORMAT_KEY, content):
        return new_cluster_id
    while True:
        try:
            return _cluster_in((await store.get(FORMAT_KEY)).body, store.describe())
        except Unsure:
            await asyncio.sleep(_AGAIN_SECONDS)
        except Missing:
            raise BrokenHistory(f"{store.describe()}: the object {FORMAT_KEY!r} was there and is gone") from None


def _cluster_in(content: bytes, where: str) -> str:
    try:
        fields: Any = json.loads(content)
        version, depth, cluster_id = fields["version"], fields["depth"], fields["cluster_id"]
    except (ValueError, LookupError, TypeError):
        raise BrokenHistory(f"{where}: the object {FORMAT_KEY!r} is none of semel's") from None
    if (version, depth) != (VERSION, DEPTH) or not isinstance(cluster_id, str):
        raise BrokenHistory(f"{where}: in version {version!r} with depth {depth!r}; this semel has {VERSION}, {DEPTH}")
    return cluster_id
