"""The state of everything at one position of the journal, in one file that is replaced as a whole.

Recovery starts here. The file is written beside the old one, synced, and renamed over it; then the directory is synced.
So there is always one good checkpoint, and it is either the old one or the new one.

    magic, size of the JSON part, size of the packed part, CRC-32C of both
    JSON    the parts that stay small: topics, producer ids, the segments of each partition
    packed  the parts that may have a million items: the indexes of growing segments, the states of producers, where
            open transactions began and where the youngest aborted ones lie

A full disk must not keep the log from checkpointing, because old files can be deleted only after a checkpoint. So a
reserve of `RESERVE_BYTES` is held for that moment.
"""

import contextlib
import errno
import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from semel.core.aborted import AbortedTransactions
from semel.core.leader_epochs import LeaderEpochs
from semel.core.partition import Partition
from semel.core.producers import Producers
from semel.storage.files import OUT_OF_SPACE, Files
from semel.storage.journal import DIRECTORY as JOURNAL_DIRECTORY
from semel.storage.journal import Damaged
from semel.storage.segment import FilePart, Index, Mark

FORMAT: Final = 2
NAME: Final = "checkpoint"
RESERVE_BYTES: Final = 1024 * 1024
_UNFINISHED: Final = "checkpoint.new"
_RESERVE: Final = "reserve"
_HEAD: Final = struct.Struct("<8sIQI")
_MAGIC: Final = b"semel-ck"
# Some thousandths of a second, even where each of them is a partition's record.
_PIECE_ITEMS: Final = 500
# What is written in one go.
_BUFFERS_AT_ONCE: Final = 500
_PRODUCER: Final = struct.Struct("<qH")
_OPEN_TRANSACTION: Final = struct.Struct("<qqqq")


# What a checkpoint says: in words, and packed.
Content = tuple[dict[str, Any], memoryview]


class PartitionParts(NamedTuple):
    """What is packed of one partition."""

    growing_index: Index
    producers: dict[int, bytes]
    # By producer id, in the order in which they began.
    open_transactions: dict[int, Mark]
    # As `core.aborted` packs them, which is cheaper than to copy them: those that are in no block, and the blocks.
    aborted: bytes
    aborted_blocks: bytes


@dataclass(frozen=True, slots=True)
class CheckpointJob:
    """All that a checkpoint consists of, taken at `position`; nothing that happens later changes it."""

    files: Files
    position: int
    dirty: frozenset[str]
    grown: frozenset[str]
    state: dict[str, Any]
    parts: list[PartitionParts]
    unnamed: list[str] = field(default_factory=list)
    # Where the journal lies in a store: the parts of files that hold what the state speaks of.
    contents: list[FilePart] = field(default_factory=list)

    def run(self) -> None:
        """Sync what the checkpoint will name, then replace the checkpoint. For a thread; takes as long as the disk."""
        try:
            self._sync()
        except OSError as error:
            # Whatever the reason, want of space included: what was to be synced may be lost, so none may try again.
            raise OSError(errno.EIO, f"a sync failed: {error}") from error
        write(self.files, self.state, self.packed())

    def packed(self) -> list[bytes]:
        """The packed part; how long its pieces are goes into the state."""
        packed: list[bytes] = []
        for record, parts in zip(self.state["partitions"], self.parts, strict=True):
            packed_parts = pack(parts)
            record["packed"] = [len(part) for part in packed_parts]
            packed += packed_parts
        return packed

    def _sync(self) -> None:
        for path in sorted(self.dirty):
            file = self.files.open(path)
            try:
                file.sync()
            finally:
                file.close()
        for path in sorted(self.grown):
            self.files.sync_directory(path)
        # The checkpoint will name a position in a journal file whose own name may not be durable yet.
        self.files.sync_directory(JOURNAL_DIRECTORY)


def write(files: Files, state: dict[str, Any], packed: list[bytes]) -> None:
    """Replace the checkpoint. When this returns the new one is durable; when it raises the old one still is."""
    content = encode(state, packed)
    try:
        _replace(files, content)
    except OSError as error:
        if error.errno not in OUT_OF_SPACE or _RESERVE not in files.names(""):
            raise
        files.remove(_RESERVE)
        _replace(files, content)
    _keep_reserve(files)


def encode(state: dict[str, Any], packed: list[bytes]) -> list[bytes]:
    """What stands in the file."""
    text = "".join(_pieces({"format": FORMAT, **state})).encode()
    size = sum(len(part) for part in packed)
    checksum = crc32c(text)
    for part in packed:
        checksum = crc32c(part, checksum)
    return [_HEAD.pack(_MAGIC, len(text), size, checksum), text, *packed]


def _pieces(value: Any) -> Iterator[str]:
    """A value as JSON, piece by piece. No other thread can run while a piece is made, so no piece may be large, even if
    the value is. The items of a list are alike.
    """
    if isinstance(value, dict) and _may_be_large(value):
        mark = "{"
        for key, inner in value.items():
            yield f"{mark}{_text(str(key))}:"
            yield from _pieces(inner)
            mark = ","
        yield "}"
    elif isinstance(value, list) and value and _may_be_large(value[0]):
        mark = "["
        for inner in value:
            yield mark
            yield from _pieces(inner)
            mark = ","
        yield "]"
    elif isinstance(value, list) and len(value) > _PIECE_ITEMS:
        mark = "["
        for at in range(0, len(value), _PIECE_ITEMS):
            yield mark + _text(value[at : at + _PIECE_ITEMS])[1:-1]
            mark = ","
        yield "]"
    else:
        yield _text(value)


def _may_be_large(value: Any) -> bool:
    """Whether there are many items in a value, or items that have some of their own."""
    if isinstance(value, dict):
        return len(value) > _PIECE_ITEMS or any(isinstance(i, dict) or _may_be_large(i) for i in value.values())
    return isinstance(value, list) and (len(value) > _PIECE_ITEMS or (bool(value) and _may_be_large(value[0])))


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _replace(files: Files, content: list[bytes]) -> None:
    file = files.open(_UNFINISHED, create=True)
    try:
        file.truncate(0)
        position = 0
        # Not joined: no other thread can run while a hundred megabytes are copied.
        for first in range(0, len(content), _BUFFERS_AT_ONCE):
            position += file.write_at(content[first : first + _BUFFERS_AT_ONCE], position)
        file.sync()
    finally:
        file.close()
    files.rename(_UNFINISHED, NAME)
    files.sync_directory("")


def _keep_reserve(files: Files) -> None:
    if _RESERVE in files.names(""):
        return
    with contextlib.suppress(OSError):
        file = files.open(_RESERVE, create=True)
        try:
            file.allocate(RESERVE_BYTES)
        except OSError:
            files.remove(_RESERVE)
            raise
        finally:
            file.close()


def read(files: Files) -> Content | None:
    """The state and the packed part of the last checkpoint; None if there was none yet; `Damaged` if not whole."""
    if NAME not in files.names(""):
        return None
    file = files.open(NAME)
    try:
        content = file.read_at(file.size(), 0)
    finally:
        file.close()
    return decode(content, files.describe(NAME))


def decode(content: bytes, where: str) -> Content:
    """The state and the packed part; `Damaged` if this is not a whole checkpoint."""
    if len(content) < _HEAD.size or content[:8] != _MAGIC:
        raise Damaged(f"{where}: not a checkpoint of semel (offset 0)")
    _, text_bytes, packed_bytes, checksum = _HEAD.unpack_from(content)
    body = memoryview(content)[_HEAD.size :]
    if len(body) != text_bytes + packed_bytes or crc32c(body) != checksum:
        raise Damaged(f"{where}: the checksum does not match the content (offset {_HEAD.size})")
    state = json.loads(bytes(body[:text_bytes]))
    if state["format"] != FORMAT:
        raise Damaged(
            f"{where}: written in format {state['format']} by another version of semel; this one reads {FORMAT}"
        )
    return state, body[text_bytes:]


def pack(parts: PartitionParts) -> list[bytes]:
    open_transactions = (_OPEN_TRANSACTION.pack(key, *mark) for key, mark in parts.open_transactions.items())
    return [
        parts.growing_index.to_bytes(),
        pack_producers(parts.producers.items()),
        b"".join(open_transactions),
        parts.aborted,
        parts.aborted_blocks,
    ]


def unpack(records: list[dict[str, Any]], packed: memoryview) -> Iterator[tuple[dict[str, Any], PartitionParts]]:
    """The record of each partition, as JSON has it, and the packed parts whose sizes the record names."""
    at = 0
    for record in records:
        parts: list[memoryview] = []
        for size in record["packed"]:
            parts.append(packed[at : at + size])
            at += size
        # An older checkpoint has no blocks.
        index, producers, open_transactions, aborted, *blocks = parts
        opened = {key: Mark(*mark) for key, *mark in _OPEN_TRANSACTION.iter_unpack(open_transactions)}
        yield (
            record,
            PartitionParts(
                Index.from_bytes(index),
                dict(unpack_producers(producers)),
                opened,
                bytes(aborted),
                b"".join(blocks),
            ),
        )


def restore_state(state: Partition, record: dict[str, Any], parts: PartitionParts) -> None:
    """A partition's rules go on from where a checkpoint found them."""
    state.log_start = record["log_start"]
    state.next_offset = record["next_offset"]
    state.epochs = LeaderEpochs(record.get("epochs", ()))
    state.producers = Producers(parts.producers.items())
    state.open_transactions = {key: mark.offset for key, mark in parts.open_transactions.items()}
    state.aborted = AbortedTransactions.from_bytes(parts.aborted, parts.aborted_blocks)


def pack_producers(states: Iterable[tuple[int, bytes]]) -> bytes:
    """Producer ids and their states, one behind the other."""
    parts: list[bytes] = []
    for producer_id, state in states:
        parts.append(_PRODUCER.pack(producer_id, len(state)))
        parts.append(state)
    return b"".join(parts)


def unpack_producers(packed: memoryview) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(packed):
        producer_id, size = _PRODUCER.unpack_from(packed, at)
        at += _PRODUCER.size
        yield producer_id, bytes(packed[at : at + size])
        at += size
