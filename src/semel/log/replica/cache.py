"""The cache of a broker on a store: fetches missing parts of files from the store, and frees parts that the store has.

The cache fetches a part of a file by reading a range of an object, and compares it with its digest before anybody sees
it. When the cache is larger than it may be, it frees the least recently read parts. All jobs that touch the disk run in
one thread, one after the other, so a part that is fetched again after it was freed is also written after it was freed.
Data that is only on this disk is never freed: it was written since the last checkpoint, and takes additional space.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from semel.log.replica.cached_files import UNSEEN, CachedFiles, Part
from semel.log.replica.contents import Contents, Extent
from semel.log.replica.slot import digest_of
from semel.log.replica.worker import JobError, Worker, in_thread
from semel.log.replica.writer import answered
from semel.log.storage.files import OUT_OF_SPACE, File, Files
from semel.log.storage.journal import Damaged
from semel.log.storage.segment import Stretch
from semel.log.store import Missing, Store

# How many parts are fetched at the same time; each is in memory meanwhile.
AT_ONCE: Final = 4
# A smaller cache would free a fetched part at once, and its reader would never make progress.
CACHE_BYTES_MIN: Final = 64 * 1024 * 1024
CACHE_BYTES: Final = 10 * 1024 * 1024 * 1024

# By path: why a part of the file could not be fetched.
Failures = Mapping[str, Exception]
NO_FAILURES: Final[Failures] = {}
Result = TypeVar("Result")


_SAVED: Final = (
    "if the disk of another broker has these records, have it take over (semel resign URL), and its next checkpoint "
    "writes them again; otherwise a backup may have them (semel backup)"
)
OBJECT_REMEDY: Final = (
    f"if the disk of this broker has these records, the next checkpoint writes them into another object; {_SAVED}"
)
_GONE: Final = (
    f"the store has no copy of these records; if another broker has taken over, that is why. If not, {_SAVED}"
)
_DAMAGED: Final = f"the store has no right copy of these records; {_SAVED}"


class Unreadable(Damaged):
    """The store no longer has these bytes, or has other bytes; the message names the object."""

    def __init__(self, message: str, key: str, *, is_gone: bool) -> None:
        super().__init__(message)
        self.key = key
        self.is_gone = is_gone

    @property
    def remedy(self) -> str:
        return _GONE if self.is_gone else _DAMAGED


class Cache:
    """The cache of one broker."""

    def __init__(self, store: Store, disk: Files, bytes_max: int | None) -> None:
        """Without `bytes_max` nothing is ever freed. Call `use` before anything is fetched or freed."""
        self.files = CachedFiles(disk)
        # Since the start: how much was fetched from the store, and how much was freed.
        self.fetched_bytes = 0
        self.fetches = 0
        self.freed_bytes = 0
        self._store = store
        self._bytes_max = bytes_max
        self._worker: Worker
        self._tell: Callable[[str], None]
        self._coming: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._holding: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(AT_ONCE)
        self._frees = True

    def use(self, worker: Worker, tell: Callable[[str], None]) -> None:
        """Use this thread for the disk. `tell` gets messages for the operator."""
        self._worker = worker
        self._tell = tell

    def stop(self) -> None:
        """Fetch nothing more, and wait for the disk."""
        for task in (*self._coming.values(), *self._holding):
            task.cancel()
        self._worker.stop()

    # -- fetching -----------------------------------------------------------------------------------------------

    async def bring(self, stretches: Iterable[Stretch]) -> Failures:
        """Fetch these parts of files, however long that takes; returns when they are on the disk, with the reasons for
        those that cannot be fetched. They may be freed again, unless they are held.
        """
        tasks = {self._task_of(path, part): path for path, part in self.files.lacking(stretches)}
        if tasks:
            await asyncio.wait(tasks)
        failures: dict[str, Exception] = {}
        for task, path in tasks.items():
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if isinstance(error, Exception):
                failures[path] = error
            elif error is not None:
                raise error
        return failures

    async def held(self, stretches: Sequence[Stretch], work: Callable[[], Awaitable[Result]]) -> Result:
        """Do this work while these parts of files are on the disk. Raises the reason if one cannot be fetched."""
        paths = {stretch.path for stretch in stretches}
        self.files.hold(paths)
        try:
            # While they come, a checkpoint may give the same bytes other names. Then they must be fetched once more.
            while self.files.lacking(stretches):
                for failure in (await self.bring(stretches)).values():
                    raise failure
            return await work()
        finally:
            self.files.release(paths)

    def run_held(
        self, stretches: Sequence[Stretch], worker: Worker, job: Callable[[], None], done: Callable[[JobError], None]
    ) -> None:
        """Run a job in a thread while these parts of files are on the disk, then `done` on the event loop."""

        async def run() -> None:
            outcome: JobError = None
            try:
                await self.held(stretches, lambda: in_thread(worker, job))
            except Exception as error:
                outcome = error
            done(outcome)

        task = asyncio.get_running_loop().create_task(run())
        self._holding.add(task)
        task.add_done_callback(self._holding.discard)

    def _task_of(self, path: str, part: Part) -> asyncio.Task[None]:
        key = path, part.extent.position
        task = self._coming.get(key)
        if task is None:
            task = self._coming[key] = asyncio.get_running_loop().create_task(self._come(path, part))
            self.files.coming[path].add(part.extent.position)

            def ended(task: asyncio.Task[None]) -> None:
                del self._coming[key]
                self.files.coming[path].discard(part.extent.position)
                if not self.files.coming[path]:
                    del self.files.coming[path]
                if not task.cancelled():
                    # Marks the error as seen; `bring` gets it from the task, if a reader still waits.
                    task.exception()

            task.add_done_callback(ended)
        return task

    async def _come(self, path: str, part: Part) -> None:
        # Between two attempts others have the place, because a store may have lost one object and answer for the rest.
        await answered(partial(self._fetch, path, part))

    async def _fetch(self, path: str, part: Part) -> None:
        async with self._places:
            extent = part.extent
            if part.state != UNSEEN or not await self._in_thread(partial(self._has, path, extent)):
                self.fetches += 1
                body = await self._read(path, extent)
                await self._put(path, extent, body)
                self.fetched_bytes += len(body)
            self.files.note_here(path, extent)
            self._free()

    async def _read(self, path: str, extent: Extent) -> bytes:
        try:
            return await self._store.get_range(extent.key, extent.place, extent.size)
        except Missing as gone:
            again = self.files.lacking([Stretch(path, extent.position, extent.size)])
            if again and again[0][1].extent.key != extent.key:
                # A checkpoint has written the same bytes to another object meanwhile.
                return await self._read(path, again[0][1].extent)
            raise Unreadable(f"{gone}, and {path} needs it", extent.key, is_gone=True) from None

    async def _put(self, path: str, extent: Extent, body: bytes) -> None:
        write = partial(self._write, path, extent, body)
        try:
            await self._in_thread(write)
        except OSError as error:
            if error.errno not in OUT_OF_SPACE:
                raise
            # The disk is smaller than the cache may be, or others fill it. What is freed is freed before the next try.
            self.make_room()
            await self._in_thread(write)

    async def doubt_if_damaged(self, path: str, extent: Extent) -> None:
        """Compare these bytes with their digest, if they are on the disk. If they are others, they count as unseen, and
        are fetched when somebody reads them.
        """
        if self.files.is_here(path, extent) and not await self._in_thread(partial(self._has, path, extent)):
            self.files.note_unseen(path, extent)

    def _has(self, path: str, extent: Extent) -> bool:
        try:
            file = self.files.disk.open(path)
        except FileNotFoundError:
            return False
        try:
            return has(file, extent)
        finally:
            file.close()

    def _write(self, path: str, extent: Extent, body: bytes) -> None:
        if len(body) != extent.size or digest_of([body]).hex() != extent.digest:
            where = f"{self._store.describe()}: {extent.key}"
            message = f"{where} is damaged: the checkpoint knows another digest of {path} in it"
            raise Unreadable(message, extent.key, is_gone=False)
        try:
            file = self.files.disk.open(path)
        except FileNotFoundError:
            # The file was removed meanwhile, and nobody will read it.
            return
        try:
            file.write_at([body], extent.position)
        finally:
            file.close()

    # -- freeing ------------------------------------------------------------------------------------------------

    def name(self, contents: Contents) -> None:
        """The newest checkpoint names these contents, so they may be freed."""
        self.files.name(contents)
        self._free()

    def make_room(self) -> None:
        """Free a part of the cache, because the disk is full, although the cache is smaller than it may be."""
        self._free(self.files.cached_bytes - 1)

    def _free(self, bytes_max: int | None = None) -> None:
        if self._bytes_max is None or not self._frees:
            return
        chosen = self.files.choose(self._bytes_max if bytes_max is None else max(bytes_max, 0))
        if not chosen:
            return
        self.freed_bytes += sum(stretch.size for stretch in chosen)
        self._worker.run(partial(self._free_on_disk, chosen), self._note_freed)

    def _free_on_disk(self, stretches: Iterable[Stretch]) -> None:
        for path, position, size in stretches:
            try:
                file = self.files.disk.open(path)
            except FileNotFoundError:
                continue
            try:
                file.free(size, position)
            finally:
                file.close()

    def _note_freed(self, error: BaseException | None) -> None:
        if isinstance(error, OSError) and error.errno == errno.EOPNOTSUPP:
            self._frees = False
            self._tell(f"the file system cannot free a part of a file, so the cache grows without a bound: {error}")
        elif error is not None:
            self._tell(f"a part of the cache could not be freed: {error}")

    async def _in_thread(self, job: Callable[[], Result]) -> Result:
        return await in_thread(self._worker, job)


def has(file: File, extent: Extent) -> bool:
    """Whether the file has the bytes of an extent."""
    content = file.read_at(extent.size, extent.position)
    return len(content) == extent.size and digest_of([content]).hex() == extent.digest
