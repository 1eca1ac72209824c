"""The console that `semel serve --console` starts beside the broker: a process of its own, which ends with the broker.

It reads from a pipe to the broker, so that it ends even if the broker is killed. If the console ends, or cannot start,
the broker goes on without it.
"""

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable
from typing import Final

from semel.log.listeners import Listener
from semel.ui.cli.errors import Failure
from semel.wire.hosts import shown_address

_LOG: Final = logging.getLogger("semel")
# The console prints one line for each browser.
_LINE_BYTES_MAX: Final = 64 * 1024
_END_SECONDS_MAX: Final = 5.0
_ANY: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}


def plain_listener(listeners: list[Listener]) -> Listener:
    """The listener that a console without a login can use."""
    for listener in listeners:
        if listener.protocol == "PLAINTEXT":
            return listener
    raise Failure(
        "--console asks over a plain listener, and this broker has none: leave --console out, and run semel console "
        "--command-config FILE beside the broker, or add --listen 127.0.0.1:PORT"
    )


class Beside:
    """One console, from `start` to `stop`."""

    def __init__(self, listen: str, broker: Listener, decisions: tuple[str, int], tell: Callable[[str], None]) -> None:
        self._words = ["console", "--listen", listen, "--until-input-ends"]
        self._words += ["--bootstrap", _place(broker.host, broker.port), "--decisions", _place(*decisions)]
        self._tell = tell
        self._process: asyncio.subprocess.Process | None = None
        self._hearing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "semel", *self._words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_LINE_BYTES_MAX,
            # Ctrl-C is meant for the broker, which then ends its console.
            start_new_session=True,
        )
        self._hearing = asyncio.create_task(self._hear(self._process))

    async def stop(self) -> None:
        process = self._process
        if process is None:
            return
        if self._hearing is not None:
            self._hearing.cancel()
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(_END_SECONDS_MAX):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _hear(self, process: asyncio.subprocess.Process) -> None:
        """Pass on what the console prints: the addresses that let browsers in."""
        assert process.stdout is not None
        with contextlib.suppress(ValueError):
            while line := await process.stdout.readline():
                self._tell(line.decode(errors="replace").rstrip("\n"))
        _LOG.warning("the console has ended with code %s; the broker goes on", await process.wait())


def _place(host: str, port: int) -> str:
    return shown_address(_ANY.get(host, host), port)
