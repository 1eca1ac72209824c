"""The service of a trial: broker, API, relay and ledger, each a process, and their addresses.

They are started as an operator would start them: a trial must not give a process anything that it would not have in
production.
"""

import asyncio
import contextlib
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from payments.trial import topic
from payments.trial.databases import Databases
from payments.trial.processes import Process

API: Final = "API"
RELAY: Final = "relay"
LEDGER: Final = "ledger"
BROKER: Final = "broker"
VICTIMS: Final = (API, RELAY, LEDGER, BROKER)

TOPIC: Final = "payments"
GROUP: Final = "ledger"
PARTITIONS: Final = 4
# The directory from which `payments` is imported.
_SOURCES: Final = str(Path(__file__).parents[2])
_ADDRESS: Final = re.compile(r"127\.0\.0\.1:\d+")


class TablesMissing(Exception):
    """The tables could not be made; the message has the output of the command."""


class Service:
    def __init__(self, databases: Databases, directory: Path) -> None:
        self.databases = databases
        self.address = self.bootstrap = ""
        self._environment = {
            "PYTHONPATH": os.pathsep.join(filter(None, (_SOURCES, os.environ.get("PYTHONPATH")))),
            "PAYMENTS_DATABASE": databases.url("payments"),
            "LEDGER_DATABASE": databases.url("ledger"),
        }
        serve = ["semel", "serve", "--data", str(directory / "log"), "--listen", "127.0.0.1:0"]
        relay = ["semel", "outbox", "run", "--database", databases.url("payments"), "--bootstrap", ""]
        self.processes = {
            name: Process(name, [sys.executable, "-m", *words], works, self._environment, directory / f"{name}.log")
            for name, words, works in (
                (BROKER, serve, "semel ready"),
                (API, ["uvicorn", "payments.service:app", "--no-access-log", "--port", "0"], "Uvicorn running"),
                (RELAY, relay, "publishing"),
                (LEDGER, ["payments.ledger"], "first_time="),
            )
        }

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Inside this context, all processes run, and are started again each time they end."""
        await self._make_tables()
        try:
            await self._start()
            yield
        finally:
            # The broker ends last, because the others still send to it when they end.
            await asyncio.gather(*(self.processes[name].stop() for name in (API, RELAY, LEDGER)))
            await self.processes[BROKER].stop()

    async def working(self) -> None:
        """Wait until all processes are ready, also those that were killed before."""
        for process in self.processes.values():
            await process.working()

    async def _start(self) -> None:
        broker, api, relay, ledger = (self.processes[name] for name in (BROKER, API, RELAY, LEDGER))
        broker.start()
        api.start()
        self.bootstrap = _address_in(await broker.working())
        await asyncio.to_thread(topic.create, self.bootstrap, TOPIC, PARTITIONS)
        # A restarted broker gets its old address.
        broker.words[-1] = relay.words[-1] = self._environment["BOOTSTRAP"] = self.bootstrap
        relay.start()
        ledger.start()
        self.address = _address_in(await api.working())
        api.words[-1] = self.address.rpartition(":")[2]

    async def _make_tables(self) -> None:
        making = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "payments.tables"),
            env={**os.environ, **self._environment},
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await making.communicate()
        if making.returncode:
            raise TablesMissing(f"the tables could not be made: {said.decode(errors='replace').strip()}")


def _address_in(line: str) -> str:
    found = _ADDRESS.search(line)
    assert found is not None, line
    return found[0]
