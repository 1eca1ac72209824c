"""The heartbeat of a lease: prolongs it in a task or a thread, which always ends with the work.

A lease must not be prolonged after it was released. A beat that fails is tried again, since two may fail before the
lease runs out; a holder that was fenced beats no more.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Protocol

from semel.database.errors import one_line
from semel.database.procedures import Procedure, drive, drive_async
from semel.steps.records import Fenced
from semel.steps.transactions import whole

logger = logging.getLogger("semel.steps")


class Lease(Protocol):
    @property
    def beat_seconds(self) -> float: ...
    def beat(self) -> Procedure[float]:
        """Prolong the lease, and return the seconds to the next beat."""


@contextlib.asynccontextmanager
async def beating(lease: Lease | None) -> AsyncIterator[None]:
    if lease is None:
        yield
        return
    beats = asyncio.create_task(_beat(lease))
    try:
        yield
    finally:
        beats.cancel()
        # The task ends after its present beat.
        await whole(asyncio.wait([beats]))


async def _beat(lease: Lease) -> None:
    seconds = lease.beat_seconds
    with contextlib.suppress(Fenced):
        while True:
            await asyncio.sleep(seconds)
            with _outlived():
                seconds = await drive_async(lease.beat())


@contextlib.contextmanager
def beating_in_thread(lease: Lease | None) -> Iterator[None]:
    if lease is None:
        yield
        return
    ended = threading.Event()
    beats = threading.Thread(target=_beat_until, args=(ended, lease), name="semel-heartbeat", daemon=True)
    beats.start()
    try:
        yield
    finally:
        ended.set()
        beats.join()


def _beat_until(ended: threading.Event, lease: Lease) -> None:
    seconds = lease.beat_seconds
    with contextlib.suppress(Fenced):
        while not ended.wait(seconds):
            with _outlived():
                seconds = drive(lease.beat())


@contextlib.contextmanager
def _outlived() -> Iterator[None]:
    try:
        yield
    except Fenced:
        raise
    except Exception as error:
        reason = one_line(error)
        logger.warning("a lease could not be prolonged, and is tried again: %s: %s", type(error).__name__, reason)
