"""The object in a slot: a head, and the entries of the journal that it carries.

    head    magic, version, CRC-32C of the rest of the head, and the fields of `core.slots.SlotHead`
    body    entries, one after the other: the size of the payload, the kind, three zero bytes, the payload

The digests are the first 16 bytes of SHA-256.
"""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from semel.log.core.slots import DIGEST_BYTES, BrokenHistory, SlotHead
from semel.log.storage.files import Buffer
from semel.wire.checksum import crc32c

# Version 2 added the slot below which all were created.
VERSION: Final = 2
JOURNAL: Final = "journal"
_MAGIC: Final = b"semel-sl"
_PREFIX: Final = struct.Struct("<8sII")
_HEAD: Final = struct.Struct("<QQ16s16sQQQ16s")
HEAD_BYTES: Final = _PREFIX.size + _HEAD.size
_ENTRY: Final = struct.Struct("<IB3x")
ENTRY_HEAD_BYTES: Final = _ENTRY.size


class Slot(NamedTuple):
    """A slot that was read."""

    head: SlotHead
    # The digest of the head.
    digest: bytes
    body: memoryview


def key_of(slot: int) -> str:
    """The key of a slot. Buckets spread their load by the first characters of a key, and list in their order."""
    return f"{JOURNAL}/{slot:012d}"


def slot_of(key: str) -> int | None:
    """The slot with this key; None if no slot has it."""
    number = key.rpartition("/")[2]
    return int(number) if number.isascii() and number.isdigit() and key_of(int(number)) == key else None


def digest_of(parts: Sequence[Buffer]) -> bytes:
    """The digest of these bytes, one after the other."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()[:DIGEST_BYTES]


def encode_head(head: SlotHead) -> bytes:
    """The bytes of the head."""
    fields = _HEAD.pack(*head)
    return _PREFIX.pack(_MAGIC, VERSION, crc32c(fields)) + fields


def encode_entry(kind: int, parts: Sequence[Buffer]) -> bytes:
    """An entry as in the body: a copy, because the parts are views of a client's request."""
    size = sum(len(part) for part in parts)
    return b"".join((_ENTRY.pack(size, kind), *parts))


def decode_head(slot: int, content: bytes) -> SlotHead:
    """The head at the beginning of these bytes; BrokenHistory if there is none."""
    if len(content) < HEAD_BYTES or not content.startswith(_MAGIC):
        raise BrokenHistory(f"slot {slot} holds what is no part of a journal")
    _, version, checksum = _PREFIX.unpack_from(content)
    if version != VERSION:
        raise BrokenHistory(f"slot {slot} is of version {version}, and this semel knows version {VERSION}")
    if crc32c(memoryview(content)[_PREFIX.size : HEAD_BYTES]) != checksum:
        raise BrokenHistory(f"slot {slot} is damaged: the checksum does not match its head")
    return SlotHead(*_HEAD.unpack_from(content, _PREFIX.size))


def decode(slot: int, content: bytes) -> Slot:
    """The slot in these bytes; BrokenHistory if they are not a slot, or not a whole one."""
    head = decode_head(slot, content)
    view = memoryview(content)
    body = view[HEAD_BYTES:]
    if len(body) != head.body_bytes or digest_of([body]) != head.body_digest:
        raise BrokenHistory(f"slot {slot} is damaged: the digest does not match its entries")
    return Slot(head, digest_of([view[:HEAD_BYTES]]), body)


def entries(slot: int, body: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The kind and the payload of each entry in a body."""
    at = 0
    while at < len(body):
        if at + ENTRY_HEAD_BYTES > len(body):
            raise BrokenHistory(f"slot {slot} ends in the middle of an entry")
        size, kind = _ENTRY.unpack_from(body, at)
        at += ENTRY_HEAD_BYTES + size
        if at > len(body):
            raise BrokenHistory(f"slot {slot} ends in the middle of an entry")
        yield kind, body[at - size : at]
