"""Holds that a disk which is full of what the store has is no reason to refuse anybody."""

import errno
import os
from typing import Any

import pytest

from lives import Life, WatchedStore, run, written
from semel.log.storage.files import MemoryFile, NotHere
from semel.log.storage.segment import Stretch


def test_a_full_disk_has_room_for_what_is_read_as_long_as_something_can_be_freed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The disk is smaller than the cache may be."""
    is_full = False

    def write_at(file: MemoryFile, buffers: Any, position: int) -> int:
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, buffers, position)

    def free(file: MemoryFile, size: int, position: int) -> None:
        nonlocal is_full
        is_full = False
        punch(file, size, position)

    async def scenario() -> None:
        nonlocal is_full
        store = WatchedStore()
        await written(store)
        life = await Life(store, cache_bytes=1_000_000, is_cold=True).start()
        first, second, *_ = [segment.path for segment in life.partition().segments]
        is_full = True
        failure = (await life.cache.bring([Stretch(first, 0, 10)]))[first]
        assert isinstance(failure, OSError), "nothing could be freed"
        is_full = False
        assert not await life.cache.bring([Stretch(first, 0, 10)])
        is_full = True
        assert not await life.cache.bring([Stretch(second, 0, 10)])
        assert life.cache.files.open(second).read_at(10, 0)
        with pytest.raises(NotHere):
            life.cache.files.open(first).read_at(10, 0)

    write, punch = MemoryFile.write_at, MemoryFile.free
    monkeypatch.setattr(MemoryFile, "write_at", write_at)
    monkeypatch.setattr(MemoryFile, "free", free)
    run(scenario())
