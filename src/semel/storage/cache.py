"""A directory that is the cache of a log in a store, and is marked as one.

A cache lacks what only the store has, and a log of its own would be thrown away as a cache. So a directory is one or
the other from its first use on.
"""

from typing import Final

from semel.storage import checkpoint
from semel.storage.files import Files
from semel.storage.journal import Damaged

MARK: Final = "cache"


def take_as_cache(files: Files) -> None:
    """Take the directory for this process, and mark it; Damaged if it holds a log of its own."""
    files.lock()
    try:
        if checkpoint.NAME in files.names(""):
            raise Damaged(f"{files.describe('')}: holds a log of its own, not the cache of one in a store")
        files.open(MARK, create=True).close()
    except BaseException:
        files.close()
        raise


def refuse_cache(files: Files) -> None:
    """Damaged if the directory is a cache."""
    if MARK in files.names(""):
        raise Damaged(f"{files.describe('')}: holds the cache of a log in a store, not a log of its own")
