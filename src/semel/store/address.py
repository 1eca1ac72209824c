"""The address of a store: which engine a URL names."""

from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from semel.store.contract import Store, StoreRefused
from semel.store.directory import DirectoryStore
from semel.store.threads import ThreadedStore

EXAMPLES: Final = "file:///srv/semel"


def open_store(url: str) -> Store:
    """The store at this URL: `file:///dir`. Raises StoreRefused."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise StoreRefused(f"{url!r} is no URL of a store ({error}): write {EXAMPLES}") from None
    if parts.scheme == "file":
        if not url.startswith("file:///") or parts.path == "/" or parts.query or parts.fragment:
            raise StoreRefused(f"{url!r} names no directory: write file:///dir, with three slashes")
        return ThreadedStore(DirectoryStore(Path(unquote(parts.path))))
    raise StoreRefused(f"{url!r} names no store that semel knows: write {EXAMPLES}")
