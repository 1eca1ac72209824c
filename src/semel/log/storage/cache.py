"""Marks a data directory as the cache of a log in a store, and recognises the mark.

A broker without the store must not open a cache, because the journal is in the store. And a broker with a store must
not use a directory with a log of its own as its cache, because it would delete the log. So from its first use on a
directory is one or the other. The mark names the store, for a person who looks into the directory, and the cluster: a
store that belongs to another cluster is not the one that the operator meant.
"""

from typing import Final

from semel.log.storage import checkpoint
from semel.log.storage.files import Files
from semel.log.storage.journal import Damaged

MARK: Final = "cache"
# Far longer than any address of a store.
_MARK_BYTES_MAX: Final = 4096


class OwnLog(Damaged):
    """The directory holds a log of its own, where a cache is wanted."""


class Cached(Damaged):
    """The directory is the cache of a log in a store, where a log is wanted."""


def take_as_cache(files: Files) -> str:
    """Lock the directory for this process; Damaged if it holds a log of its own. Returns the id of the cluster whose
    cache it is; empty if that is not known.
    """
    files.lock()
    try:
        if checkpoint.NAME in files.names(""):
            raise OwnLog(f"{files.describe('')}: holds a log of its own, not the cache of one in a store")
        return _read_mark(files)[1]
    except BaseException:
        files.close()
        raise


def mark_as_cache(files: Files, store: str, cluster_id: str) -> None:
    """Mark a directory that this process has taken as the cache of the log of this cluster in this store."""
    mark = files.open(MARK, create=True)
    try:
        content = f"{store}\n{cluster_id}".encode()
        if mark.read_at(_MARK_BYTES_MAX, 0) != content:
            mark.write_at([content], 0)
            mark.truncate(len(content))
    finally:
        mark.close()


def store_of(files: Files) -> str | None:
    """The store named in the mark; None if the directory is not a cache, empty if the mark names no store."""
    if MARK not in files.names(""):
        return None
    store, _ = _read_mark(files)
    return store if store.isprintable() else ""


def _read_mark(files: Files) -> tuple[str, str]:
    """The store and the cluster in the mark, as far as it names them."""
    if MARK not in files.names(""):
        return "", ""
    mark = files.open(MARK)
    try:
        store, _, cluster_id = mark.read_at(_MARK_BYTES_MAX, 0).decode(errors="replace").partition("\n")
    finally:
        mark.close()
    return store, cluster_id


def refuse_cache(files: Files) -> None:
    """Damaged if the directory is a cache."""
    if MARK in files.names(""):
        raise Cached(f"{files.describe('')}: holds the cache of a log in a store, not a log of its own")
