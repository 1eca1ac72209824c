"""The contract of a store: its five calls, what each promises, and the errors with which a call may end.

`tests/log/store/test_contract.py` tests every engine against it. An engine sends each call once and never repeats it:
the caller decides whether to repeat a create, and what its refusal means then.

Every call ends in one of four ways: it succeeded; it was refused because of the object under the key (`Exists`,
`Missing`, `Changed`), and changed nothing; its outcome is unknown (`Unsure`); or a person must act first
(`StoreRefused`). The outcome of a cancelled call is unknown.

An object that a call returns, or because of which it refuses, is durable: a store that returns an object that it may
still lose violates this contract.
"""

import re
from collections.abc import AsyncIterator
from typing import Final, NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview

# An object under this key never changes: it says whose the store is.
FORMAT_KEY: Final = "format"
# A segment has 64 MiB by default; PostgreSQL accepts no value above 1 GB, and needs twice its size in memory.
BODY_BYTES_MAX: Final = 256 * 1024 * 1024
# S3 allows 1,024 bytes including the user's prefix, and a path on a disk 255 bytes in each part.
KEY_CHARACTERS_MAX: Final = 200
# Parts between slashes. No part begins with a dot, because the directory engine uses such names itself.
_KEY: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")


class StoreError(Exception):
    """A call of a store failed; the message is one line."""

    # What an operator counts it as.
    kind = "refused"


class Exists(StoreError):
    """The key has an object already. Nothing was changed."""


class Missing(StoreError):
    """The key has no object. Nothing was changed."""


class Changed(StoreError):
    """The object is not the one that the caller has read. Nothing was changed."""


class Unsure(StoreError):
    """No answer came, or one that does not say how the call ended: it may have happened, or may still happen. The same
    call may succeed later, because the store is only busy, full, restarting or unreachable.
    """

    kind = "unsure"


class Full(Unsure):
    """The store has no space for this, and will when a person makes some, or when objects are deleted."""

    kind = "full"


class Silent(Unsure):
    """No answer came in the time that the caller could wait."""

    kind = "silent"


class StoreRefused(StoreError):
    """The store will refuse this until a person changes something; the message says what. The same call may succeed
    then.
    """


class StoreBroken(StoreRefused):
    """This process must not call the store any more: what it was told of earlier calls may be wrong."""


class Found(NamedTuple):
    """An object that was read."""

    body: bytes
    # For `replace`. Two equal bodies under one key may have the same version.
    version: str


class Listed(NamedTuple):
    """An object in a listing."""

    key: str
    size_bytes: int


class Store(Protocol):
    """Objects under keys such as `journal/17`. No key continues another one after a slash. Bodies must not change
    while a call is under way."""

    async def create(self, key: str, body: Buffer) -> str:
        """Create the object, whole and durable, and return its version; raises Exists if the key has one. If many
        callers create the same key at once, one succeeds.
        """
        ...

    async def replace(self, key: str, body: Buffer, version: str) -> str:
        """Replace the body that has this version, and return the new version; raises Changed if another caller was
        faster, and Missing if there is no object any more.
        """
        ...

    async def get(self, key: str) -> Found:
        """The whole object, as the last call before this one has left it; raises Missing."""
        ...

    async def get_range(self, key: str, start: int, size: int) -> bytes:
        """`size` bytes from `start`; fewer if the object ends before that, and none from after its end; raises
        Missing.
        """
        ...

    def list(self, folder: str, after: str = "") -> AsyncIterator[Listed]:
        """The objects below `folder/`, or all of them below "", in no order, but only those whose keys sort after
        `after`. It may miss objects that are created or deleted meanwhile, and show objects that were just deleted.
        """
        ...

    async def delete(self, key: str) -> None:
        """Remove the object; nothing happens if there is none."""
        ...

    async def close(self) -> None:
        """Return when no call of this process is under way any more. No call may come after this."""
        ...

    def describe(self) -> str:
        """The address of the store, for messages, without secrets."""
        ...


def check_key(key: str) -> str:
    """The key, if it is valid."""
    if len(key) > KEY_CHARACTERS_MAX or not _KEY.fullmatch(key):
        raise ValueError(f"not a key of a store: {key[:KEY_CHARACTERS_MAX]!r}")
    return key


def check_folder(folder: str) -> str:
    """The folder, if it is valid: the beginning of keys up to a slash, without the slash."""
    return check_key(folder) if folder else folder


def check_after(after: str) -> str:
    """The key after which a listing begins, if it is valid; empty for a whole listing."""
    return check_key(after) if after else after


def check_body(body: Buffer) -> Buffer:
    """The body, if it is not too large."""
    if memoryview(body).nbytes > BODY_BYTES_MAX:
        raise ValueError(f"an object has {BODY_BYTES_MAX} bytes at most, and this one {memoryview(body).nbytes}")
    return body


def check_range(start: int, size: int) -> slice:
    """The range, if it is valid."""
    if start < 0 or size < 0:
        raise ValueError(f"not a range: {size} bytes from {start}")
    return slice(start, start + size)
