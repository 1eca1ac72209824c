"""The processes of the service: starts them, kills them, and starts them again.

A process that ends by itself is started again, too, and that is recorded: a trial must not hide it. All processes end
with the trial.
"""

import asyncio
import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

WORKING_SECONDS_MAX: Final = 120.0
STOPPING_SECONDS_MAX: Final = 20.0
# The pause before a restart, because a process that ends by itself may do so again and again.
AGAIN_AFTER_SECONDS: Final = 0.5
TOLD_LINES: Final = 5


class NotWorking(Exception):
    """A process does not become ready; the message has the end of its log."""


class Process:
    """One process of the service, with all its restarts; its output also goes to a file."""

    def __init__(self, name: str, words: Sequence[str], works: str, environment: Mapping[str, str], log: Path) -> None:
        """`works` is a pattern for the line that the process prints after each start when it is ready."""
        self.name = name
        self.words = list(words)
        self.kills = 0
        # The lines that the process printed, for each start.
        self.lives: list[list[str]] = []
        # The last lines before each time that it ended by itself.
        self.ended_by_itself: list[str] = []
        # Whether it did not end when it was asked to.
        self.had_to_be_killed = False
        self._works = re.compile(works)
        self._environment = environment
        self._log = log
        self._working = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._is_wanted = self._is_killed = False
        self._living: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the process, and start it again each time it ends."""
        self._is_wanted = True
        self._living = asyncio.create_task(self._live())

    async def working(self) -> str:
        """Wait until the process is ready; return the line that says so."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._working.wait(), WORKING_SECONDS_MAX)
            return next(line for line in reversed(self.lives[-1]) if self._works.search(line))
        raise NotWorking(f"{self.name} is not at work after {WORKING_SECONDS_MAX:g} s: {self.last_words()}")

    def kill(self) -> None:
        """`kill -9`; then the process is started again at once."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            self._working.clear()
            self._is_killed = True
            self.kills += 1

    async def stop(self) -> None:
        """Ask the process to end, and wait until it has."""
        self._is_wanted = False
        if self._living is None:
            return
        self._terminate()
        try:
            await asyncio.wait_for(asyncio.shield(self._living), STOPPING_SECONDS_MAX)
        except TimeoutError:
            self.had_to_be_killed = True
            self.kill()
            await self._living

    def last_words(self) -> str:
        return "\n".join(self.lives[-1][-TOLD_LINES:]) if self.lives else ""

    def _terminate(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()

    async def _live(self) -> None:
        while self._is_wanted:
            self._is_killed = False
            pipe = asyncio.subprocess.PIPE
            self._process = await asyncio.create_subprocess_exec(
                *self.words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=pipe,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, **self._environment, "PYTHONUNBUFFERED": "1"},
                # Ctrl-C interrupts only the trial, and the trial ends its processes.
                start_new_session=True,
            )
            if not self._is_wanted:
                self._terminate()
            await self._listen(self._process)
            await self._process.wait()
            self._working.clear()
            if self._is_wanted and not self._is_killed:
                self.ended_by_itself.append(self.last_words())
                await asyncio.sleep(AGAIN_AFTER_SECONDS)

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        lines: list[str] = []
        self.lives.append(lines)
        with self._log.open("a") as log:
            while line := (await process.stdout.readline()).decode(errors="replace"):
                log.write(line)
                log.flush()
                lines.append(line.rstrip())
                if self._works.search(line) and not self._is_killed:
                    self._working.set()
