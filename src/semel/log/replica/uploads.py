"""Creates the objects of a checkpoint: the bytes of the log's files that the store does not have, and the state. Every
object gets a name that was never used before, with the epoch of its broker. An object counts only when the floor names
it. A thread reads the disk and computes digests. Bytes that must be uploaded again and are not on the disk are fetched
first.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from semel.log.replica.cache import Cache, Unreadable, has
from semel.log.replica.contents import (
    OBJECT_BYTES_MAX,
    SEGMENTS,
    Contents,
    Extent,
    kept,
    missing,
    packed,
    proven_of,
    size_of,
    with_object,
    without,
)
from semel.log.replica.floor import Piece
from semel.log.replica.slot import digest_of
from semel.log.replica.worker import Worker, in_thread
from semel.log.replica.writer import Fenced, create_surely, few_at_once
from semel.log.storage import checkpoint
from semel.log.storage.aborted_blocks import BlockWalk
from semel.log.storage.checkpoint import CheckpointJob
from semel.log.storage.files import Files
from semel.log.storage.journal import Damaged
from semel.log.storage.segment import Proven, Stretch
from semel.log.storage.verification import Walk, refuse
from semel.log.store import Store

CHECKPOINTS: Final = "checkpoints"
# How many objects are created at once, each of which is in memory meanwhile.
CREATED_AT_ONCE: Final = 4

Result = TypeVar("Result")


class Uploads:
    """The objects that one process creates."""

    def __init__(self, store: Store, worker: Worker, cache: Cache) -> None:
        self._store = store
        self._worker = worker
        self._cache = cache
        # Objects that are damaged or lost. A checkpoint names their contents as long as the files exist.
        self._unreadable: set[str] = set()
        # Objects that are damaged, and whose bytes the disk may have.
        self.damaged: set[str] = set()
        self._name = secrets.token_hex(8)
        self._objects = 0
        self._reading = asyncio.Lock()

    async def contents(self, job: CheckpointJob, before: Contents, epoch: int) -> Contents:
        """The contents of the files of a checkpoint. Extents of the previous checkpoint are not uploaded again. Damaged
        if the disk has lost what was written after it, or has other bytes.
        """
        while True:
            damaged, unreadable = self.damaged - self._unreadable, frozenset(self._unreadable)
            plan = await self._in_thread(partial(_planned, job, before, damaged, unreadable))
            try:
                upload = partial(self._batch, job.files, plan, epoch)
                await few_at_once(upload, plan.batches, CREATED_AT_ONCE)
                await self._in_thread(partial(_end_walks, job.files, plan.walks))
                return plan.contents
            except Unreadable as error:
                # Readers of it get an error, but the checkpoint is written all the same.
                if error.key in self._unreadable:
                    raise
                self._unreadable.add(error.key)

    async def _batch(self, files: Files, plan: "_Plan", epoch: int, batch: list[Stretch]) -> None:
        # One after the other, because a walk goes on where the last object ended.
        async with self._reading:
            await self._compare(batch, plan.again)
            body, digests = await self._cache.held(
                batch, lambda: self._in_thread(partial(_read, files, batch, plan.walks))
            )
        with_object(plan.contents, await self._create(SEGMENTS, epoch, body), batch, digests)

    async def _compare(self, batch: list[Stretch], again: dict[str, list[Extent]]) -> None:
        """Compare what is uploaded again with its digest. What the disk has lost of it counts as unseen, and is fetched
        from the object that is given up.
        """
        files = self._cache.files
        for path, position, size in batch:
            extents = [
                extent
                for extent in again.get(path, ())
                if position - extent.size < extent.position < position + size and files.is_here(path, extent)
            ]
            if extents:
                same = await self._in_thread(partial(_same, files.disk, path, extents))
                for extent in extents:
                    if extent not in same:
                        files.note_unseen(path, extent)

    async def state(self, job: CheckpointJob, history: dict[str, Any], contents: Contents) -> tuple[Piece, ...]:
        """The state, at the end of this history."""
        parts = await self._in_thread(partial(_encoded, job, history, contents))
        epoch = history["epoch"]
        pieces = [Piece(await self._create(CHECKPOINTS, epoch, part), len(part), digest) for part, digest in parts]
        return tuple(pieces)

    async def is_same(
        self, pieces: Iterable[Piece], job: CheckpointJob, history: dict[str, Any], contents: Contents
    ) -> bool:
        """Whether `state` would create exactly these pieces, and the files have all bytes of the contents."""
        parts = await self._in_thread(partial(_encoded, job, history, contents))
        if [digest for _, digest in parts] != [piece.digest for piece in pieces]:
            return False
        return await self.same(job.files, contents) == contents

    async def same(self, files: Files, named: Contents) -> Contents:
        """The same contents without the extents whose bytes the files here do not have."""
        rows = {path: await self._same_row(files, path, row) for path, row in named.files.items()}
        return Contents(rows, named.objects, named.ends)

    async def _same_row(self, files: Files, path: str, row: list[Extent]) -> list[Extent]:
        unknown = [extent for extent in row if not self._cache.files.knows(path, extent)]
        if not unknown:
            return row
        stretches = [Stretch(path, extent.position, extent.size) for extent in unknown]
        try:
            same = await self._cache.held(stretches, lambda: self._in_thread(partial(_same, files, path, unknown)))
        except Unreadable:
            same = []
        return [extent for extent in row if extent not in unknown or extent in same]

    async def _create(self, folder: str, epoch: int, body: bytes) -> str:
        self._objects += 1
        key = f"{folder}/{epoch:08d}-{self._name}-{self._objects}"
        if not await create_surely(self._store, key, body):
            raise Fenced(f"another broker has taken over: it has removed {key} from {self._store.describe()}")
        return key

    async def _in_thread(self, job: Callable[[], Result]) -> Result:
        return await in_thread(self._worker, job)


class _Plan(NamedTuple):
    """What a checkpoint uploads."""

    # That stay from the previous checkpoint.
    contents: Contents
    # The content of each new object.
    batches: list[list[Stretch]]
    # By path, the extents of the previous checkpoint that do not stay.
    again: dict[str, list[Extent]]
    # By path, for each segment and each file of blocks of which the previous checkpoint does not have all.
    walks: dict[str, Walk | BlockWalk]


def _planned(job: CheckpointJob, before: Contents, damaged: set[str], unreadable: frozenset[str]) -> _Plan:
    sizes = {}
    for path, size in job.contents():
        if size is None:
            file = job.files.open(path)
            size = file.size()
            file.close()
        sizes[path] = size
    files = dict(before.files)
    walks: dict[str, Walk | BlockWalk] = {}
    for segment in job.segments():
        # The disk may have cut the file.
        sizes[segment.path] = max(sizes[segment.path], segment.size)
        proven = proven_of(before, segment)
        if proven is None and unreadable.isdisjoint(extent.key for extent in files[segment.path]):
            # The files of another broker are not quite the same.
            proven = Proven(0, segment.base_offset, 0)
            del files[segment.path]
        if proven is not None and proven.size < segment.size:
            walks[segment.path] = Walk(segment, proven)
    for blocks in job.blocks():
        walks[blocks.path] = BlockWalk(blocks, size_of(before.files.get(blocks.path, ())))
    ends = {segment.path: segment.whole for each in job.partition_files for segment in each.segments.last}
    contents = kept(without(Contents(files, before.objects), damaged), sizes, unreadable)._replace(ends=ends)
    again = {}
    for path, row in contents.files.items():
        gone = set(before.files.get(path, ())).difference(row)
        if gone:
            again[path] = sorted(gone)
    return _Plan(contents, list(packed(list(missing(contents, sizes)))), again, walks)


def _end_walks(files: Files, walks: dict[str, Walk | BlockWalk]) -> None:
    for walk in walks.values():
        refuse(files, walk, walk.end())


def _read(files: Files, batch: Iterable[Stretch], walks: dict[str, Walk | BlockWalk]) -> tuple[bytes, list[str]]:
    """The bytes of an object, and the digest of each part. Damaged if the walk over a file finds that it has other
    bytes than were written.
    """
    parts = []
    for path, position, size in batch:
        file = files.open(path)
        try:
            parts.append(file.read_at(size, position))
        finally:
            file.close()
        if path in walks:
            refuse(files, walks[path], walks[path].take(parts[-1], position))
        if len(parts[-1]) < size:
            raise Damaged(f"{files.describe(path)}: ends at offset {position + len(parts[-1])}, and has lost its end")
    return b"".join(parts), [digest_of([part]).hex() for part in parts]


def _same(files: Files, path: str, row: Iterable[Extent]) -> list[Extent]:
    """The extents whose bytes the file here has."""
    try:
        file = files.open(path)
    except FileNotFoundError:
        return []
    try:
        return [extent for extent in row if has(file, extent)]
    finally:
        file.close()


def _encoded(job: CheckpointJob, history: dict[str, Any], contents: Contents) -> list[tuple[bytes, str]]:
    """The checkpoint in pieces, each with its digest."""
    packed_parts = job.packed()
    state = {**job.state, "journal": history, "contents": contents.to_record()}
    return [(piece, digest_of([piece]).hex()) for piece in in_pieces(checkpoint.encode(state, packed_parts))]


def in_pieces(buffers: Iterable[bytes], bytes_max: int = OBJECT_BYTES_MAX) -> Iterator[bytes]:
    """The same bytes in pieces of this size; the last one may be smaller. They are never joined as a whole, because no
    other thread could run while hundreds of megabytes are copied.
    """
    piece: list[memoryview] = []
    bytes_left = bytes_max
    for buffer in buffers:
        rest = memoryview(buffer)
        while rest:
            piece.append(rest[:bytes_left])
            rest = rest[bytes_left:]
            bytes_left -= len(piece[-1])
            if not bytes_left:
                yield b"".join(piece)
                piece, bytes_left = [], bytes_max
    if piece:
        yield b"".join(piece)
