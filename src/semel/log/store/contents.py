"""The contents of a store, by the first part of the key: how many objects, and how many bytes."""

from collections import Counter
from typing import NamedTuple

from semel.log.store.contract import Store


class Contents(NamedTuple):
    """The objects under one first part."""

    objects: int
    size_bytes: int


async def contents_of(store: Store) -> dict[str, Contents]:
    """The contents, sorted by name. On most stores this takes a call for each thousand objects."""
    objects: Counter[str] = Counter()
    size_bytes: Counter[str] = Counter()
    async for listed in store.list(""):
        name = listed.key.partition("/")[0]
        objects[name] += 1
        size_bytes[name] += listed.size_bytes
    return {name: Contents(objects[name], size_bytes[name]) for name in sorted(objects)}
