"""The brokers on a store: which one is active, in which epoch, which standbys there are and how far behind, and
takeovers.

The console asks the store and no broker, so the page works while all brokers are down. It lists the takeovers that it
has seen itself; the epoch counts all of them, because each takeover raises it by one.
"""

import asyncio
import threading
import time
from collections import deque
from typing import Any, Final

from semel.log.status import BrokenHistory, StoreStatus
from semel.log.stores import StoreError, open_store
from semel.ui.cli.status import addresses_shown, as_json, look
from semel.ui.console.http import PageRefused
from semel.ui.console.query import Query

TAKEOVERS_MAX: Final = 50

Answer = dict[str, Any]


class Stores:
    """The store that `--store` names."""

    def __init__(self, url: str) -> None:
        """StoreError if `url` names no store."""
        self._url = url
        self._name = open_store(url).describe()
        self._takeovers: deque[Answer] = deque(maxlen=TAKEOVERS_MAX)
        self._epoch: int | None = None
        # Each thread asks in its own event loop; this lock protects the notes about takeovers.
        self._lock = threading.Lock()

    def status(self, query: Query) -> Answer:
        """The state of the store now."""
        try:
            status = asyncio.run(look(open_store(self._url)))
        except (StoreError, BrokenHistory) as error:
            raise PageRefused(502, str(error)) from None
        lease = status.lease
        with self._lock:
            self._note(status)
            takeovers = list(reversed(self._takeovers))
        return {
            **as_json(self._name, status),
            "is_active": status.is_active,
            "epoch": None if lease is None else lease.epoch,
            "addresses": {} if lease is None else addresses_shown(lease.addresses),
            "is_released": lease is not None and lease.is_released,
            "lease_seconds": None if lease is None else lease.seconds,
            "journal_bytes": lease.position if lease is not None and lease.is_active else None,
            "takeovers": takeovers,
        }

    def _note(self, status: StoreStatus) -> None:
        """Remember a takeover if the epoch has risen since the last look."""
        if status.lease is None or (self._epoch is not None and status.lease.epoch <= self._epoch):
            return
        if self._epoch is not None:
            now_ms = time.time_ns() // 1_000_000
            addresses = addresses_shown(status.lease.addresses)
            self._takeovers.append({"seen_ms": now_ms, "epoch": status.lease.epoch, "addresses": addresses})
        self._epoch = status.lease.epoch
