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
from semel.log.replica.contents import Contents
from semel.log.replica.examination import CheckedObject, objects_of
from semel.log.storage import scrub
from semel.log.storage.scrub import Scrub
from semel.log.store import Store, StoreError

# A store charges for each object that is read, and some for each byte.
PERIOD_MS: Final = 30 * 86_400_000
BYTES_PER_SECOND: Final = 4 * 1024 * 1024
FIRST_SECONDS: Final = 600.0


class ObjectScrubber:
    """The passes of one active broker."""

    def __init__(
        self,
        store: Store,
        cache: Cache,
        checkpoints: StoreCheckpoints,
        note: Callable[[int], None],
        tell: Callable[[str], None],
    ) -> None:
        """`note` gets the bytes of each object that was read, and `tell` a line for each that is damaged."""
        self._store = store
        self._cache = cache
        self._checkpoints = checkpoints
        self._note = note
        self._tell = tell
        self._found: set[str] = set()

    @property
    def damaged(self) -> set[str]:
        """The damaged objects that the newest checkpoint still names."""
        return self._found & self._checkpoints.contents.objects.keys()

    async def go_on(self) -> None:
        """Make a pass after the other."""
        while True:
            await asyncio.sleep(FIRST_SECONDS)
            last = scrub.read(self._cache.files.disk)
            if last is None or not last.is_over or time.time() * 1000 >= last.began_ms + PERIOD_MS:
                try:
                    await self.look()
                except StoreError:
                    # The store does not work, of which the operator is told by others.
                    continue

    async def look(self) -> None:
        """Read the objects that this pass has not read yet; begin a new pass if it is over."""
        disk = self._cache.files.disk
        last = scrub.read(disk)
        if last is None or last.is_over:
            last = Scrub(int(time.time() * 1000))
        async for checked in objects_of(self._store, _after(self._checkpoints.contents, last.key)):
            self._note(checked.size)
            await self._judge(checked)
            last = last._replace(key=checked.key)
            scrub.write(disk, last)
            await asyncio.sleep(checked.size / BYTES_PER_SECOND)
        scrub.write(disk, last._replace(is_over=True))

    async def _judge(self, checked: CheckedObject) -> None:
        named = self._checkpoints.contents
        for path, row in named.files.items():
            for extent in row:
                if extent.key == checked.key:
                    await self._cache.doubt_if_damaged(path, extent)
        self._found.discard(checked.key)
        # A checkpoint may have given the object up since the pass began.
        if checked.trouble and checked.key in named.objects:
            self._tell(f"{self._store.describe()}: {checked.key}: {checked.trouble}")
            self._found.add(checked.key)
            self._checkpoints.write_again(checked.key)


def _after(contents: Contents, key: str) -> Contents:
    """The contents without the objects up to this one, in their order."""
    files = {path: [extent for extent in row if extent.key > key] for path, row in contents.files.items()}
    return Contents(files, contents.objects)
