"""Prolongs a lease while its handler runs, in a task or in a thread. It must end with the handler, whatever happens.

A beat that failed, of whatever, is followed by the next one: where a connection cannot be made, asyncpg raises errors
that are none of SQLAlchemy's. Who was fenced has nothing to prolong.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Iterator

from semel.database.errors import one_line
from semel.http.claims import Fenced
from semel.http.holding import Holder, drive, drive_async
from semel.http.leases import Leased
from semel.http.transactions import whole

logger = logging.getLogger("semel.http")


@contextlib.asynccontextmanager
async def beating(holder: Holder) -> AsyncIterator[None]:
    if not isinstance(holder, Leased):
        yield
        return
    beats = asyncio.create_task(_beat(holder))
    try:
        yield
    finally:
        beats.cancel()
        # The task ends by this, after the beat that it is in: a lease must not be prolonged after it was let go of.
        await whole(asyncio.wait([beats]))


async def _beat(lease: Leased) -> None:
    with contextlib.suppress(Fenced):
        while True:
            await asyncio.sleep(lease.beat_seconds)
            with _outlived():
                await drive_async(lease.beat())


@contextlib.contextmanager
def beating_in_thread(holder: Holder) -> Iterator[None]:
    if not isinstance(holder, Leased):
        yield
        return
    ended = threading.Event()
    beats = threading.Thread(target=_beat_until, args=(ended, holder), name="semel-http-heartbeat", daemon=True)
    beats.start()
    try:
        yield
    finally:
        ended.set()
        beats.join()


def _beat_until(ended: threading.Event, lease: Leased) -> None:
    with contextlib.suppress(Fenced):
        while not ended.wait(lease.beat_seconds):
            with _outlived():
                drive(lease.beat())


@contextlib.contextmanager
def _outlived() -> Iterator[None]:
    try:
        yield
    except Fenced:
        raise
    except Exception as error:
        said = one_line(error)
        logger.warning("a lease could not be prolonged, and is tried again: %s: %s", type(error).__name__, said)
