"""Looks for damage in the objects with records of a store, and in what the disk has of them, in the background.

The active broker reads each object that the newest checkpoint names once a month, at a bounded speed, and after a
restart on the same disk it goes on where it was. What is damaged on the disk alone is fetched again when somebody reads
it. A damaged object is written again by the next checkpoint, under another name, if the disk has its bytes; and the
operator is told. This must never write or delete an object itself.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from semel.log.replica.cache import Cache
from semel.log.replica.checkpoints import StoreCheckpoints
from semel.log.replica.contents import Extent
from semel.log.replica.examination import CheckedObject, check_object, extents_by_key
from semel.log.replica.floor import FLOOR_KEY
from semel.log.storage import scrub
from semel.log.storage.scrub import Scrub
from semel.log.store import Store, StoreError

# A store charges for each object that is read, and some for each byte.
PERIOD_MS: Final = 30 * 86_400_000
BYTES_PER_SECOND: Final = 4 * 1024 * 1024
FIRST_SECONDS: Final = 600.0
# An object that cannot be read so often, from a store that works, counts as damaged.
TRIES: Final = 3


class ObjectScrubber:
    """The passes of one active broker."""

    def __init__(
        self,
        store: Store,
        cache: Cache,
        checkpoints: StoreCheckpoints,
        note: Callable[[int], None],
        tell: Callable[[str], None],
        interrupt: Callable[[OSError], None],
    ) -> None:
        """`note` gets the bytes of each object that was read, `tell` a line for each that is damaged, and `interrupt`
        the error of the disk at which a pass stopped.
        """
        self._store = store
        self._cache = cache
        self._checkpoints = checkpoints
        self._note = note
        self._tell = tell
        self._interrupt = interrupt
        # The object that could not be read last, and how often.
        self._unread = "", 0
        self._found: set[str] = set()

    @property
    def damaged(self) -> set[str]:
        """The damaged objects that the newest checkpoint still names."""
        return self._found & self._checkpoints.contents.objects.keys()

    async def go_on(self) -> None:
        """Make a pass after the other."""
        while True:
            await asyncio.sleep(FIRST_SECONDS)
            await self.try_on()

    async def try_on(self) -> None:
        """Go on with a pass if one is due, as far as the store and the disk let it."""
        try:
            last = scrub.read(self._cache.files.disk)
            if last is None or last.is_due(time.time() * 1000, PERIOD_MS):
                await self.look()
        except StoreError:
            # If the store does not work, the operator is told of that by others.
            return
        except OSError as error:
            self._interrupt(error)

    async def look(self) -> None:
        """Read the objects that this pass has not read yet; begin a new pass if it is over."""
        disk = self._cache.files.disk
        last = scrub.read(disk)
        if last is None or last.is_over:
            last = Scrub(int(time.time() * 1000))
        for key, extents in extents_by_key(self._checkpoints.contents):
            if key <= last.key:
                continue
            checked = await self._checked(key, extents)
            self._note(checked.size)
            await self._judge(checked, extents)
            last = last._replace(key=checked.key)
            scrub.write(disk, last)
            await asyncio.sleep(checked.size / BYTES_PER_SECOND)
        scrub.write(disk, last._replace(is_over=True))

    async def _checked(self, key: str, extents: list[tuple[str, Extent]]) -> CheckedObject:
        try:
            return await check_object(self._store, key, extents)
        except StoreError as error:
            before, count = self._unread
            self._unread = key, count + 1 if key == before else 1
            if self._unread[1] < TRIES:
                raise
            # Raises as well if it is the store that does not work.
            await self._store.get(FLOOR_KEY)
            return CheckedObject(key, 0, len(extents), f"it cannot be read: {error}")

    async def _judge(self, checked: CheckedObject, extents: list[tuple[str, Extent]]) -> None:
        for path, extent in extents:
            await self._cache.doubt_if_damaged(path, extent)
        self._found.discard(checked.key)
        # A checkpoint may have given the object up since the pass began.
        if checked.trouble and checked.key in self._checkpoints.contents.objects:
            self._tell(f"{self._store.describe()}: {checked.key}: {checked.trouble}")
            self._found.add(checked.key)
            self._checkpoints.write_again(checked.key)
