"""The processes of the service, as a person who runs one sees them: started, killed, and started again.

A process that ends by itself is started again too, and that is on record: a trial must not hide it. Whatever was
started ends with the trial.
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
# A process that ends by itself may do so over and over again.
AGAIN_AFTER_SECONDS: Final = 0.5
TOLD_LINES: Final = 5


class NotWorking(Exception):
    """A process does not get to work; the message has the end of its log."""


class Process:
    """One process of the service, through all its lives; what it says goes to a file as well."""

    def __init__(self, name: str, words: Sequence[str], works: str, environment: Mapping[str, str], log: Path) -> None:
        """`works` is a pattern for the line that it says in each life when it is at work."""
        self.name = name
        self.words = list(words)
        self.kills = 0
        # The lines that each life printed.
        self.lives: list[list[str]] = []
        # The last lines of each life that ended by itself.
        self.ended_by_itself: list[str] = []
        # It did not end when it was asked to.
        self.had_to_be_killed = False
        self._works = re.compile(works)
        self._environment = environment
        self._log = log
        self._working = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._is_wanted = self._is_killed = False
        self._living: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Have it run from here on, in as many lives as it takes."""
        self._is_wanted = True
        self._living = asyncio.create_task(self._live())

    async def working(self) -> str:
        """Wait until it is at work; answer the line that says so."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._working.wait(), WORKING_SECONDS_MAX)
            return next(line for line in reversed(self.lives[-1]) if self._works.search(line))
        raise NotWorking(f"{self.name} is not at work after {WORKING_SECONDS_MAX:g} s: {self.last_words()}")

    def kill(self) -> None:
        """`kill -9`; it is started again at once."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            self._working.clear()
            self._is_killed = True
            self.kills += 1

    async def stop(self) -> None:
        """Ask it to end, and wait until it has."""
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
                # Ctrl-C interrupts the trial alone, and the trial ends its processes.
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
