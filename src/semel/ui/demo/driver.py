"""The process of a Spark driver, controlled from outside: read its messages, let it go on, and end it.

The driver starts Java and Python workers as processes. They end with it, because it leads a session, and `kill` kills
every process of the session. So this must never start anything else in that session.
"""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from semel.ui.demo import DemoFailed

_SILENT_SECONDS_MAX: Final = 300.0
_POLL_SECONDS: Final = 0.02
# A driver lives briefly: the gain of Java's second compiler would come too late, and other collectors need more
# threads.
_JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_TOLD_CHARACTERS: Final = 2_000


class Driver:
    """One run of the driver process."""

    def __init__(self, module: str, orders: str, directory: Path) -> None:
        """`module` is run with its orders as the only argument; all its files are in the directory."""
        scratch = directory / "scratch"
        scratch.mkdir(exist_ok=True)
        environment = {
            **os.environ,
            # The temporary files of a killed process are removed with the directory.
            "SPARK_SUBMIT_OPTS": f'{os.environ.get("SPARK_SUBMIT_OPTS", _JAVA_OPTIONS)} "-Djava.io.tmpdir={scratch}"',
            "TMPDIR": str(scratch),
            "SPARK_LOCAL_DIRS": str(scratch),
        }
        self._errors = directory / "driver.log"
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, orders],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment,
                start_new_session=True,
            )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def next(self) -> dict[str, Any] | None:
        """The driver's next message; None when it has ended."""
        try:
            line = self._lines.get(timeout=_SILENT_SECONDS_MAX)
        except queue.Empty:
            raise DemoFailed(
                f"the pipeline has been silent for {_SILENT_SECONDS_MAX:g} s: {self.complaint()}"
            ) from None
        if line is None:
            # The next call also has to find the end.
            self._lines.put(None)
            return None
        event: dict[str, Any] = json.loads(line)
        return event

    def has_more_to_say(self) -> bool:
        return not self._lines.empty()

    @property
    def process_id(self) -> int:
        """The process id of the program; Java and the workers have others."""
        return self._process.pid

    def process_ids(self) -> list[int]:
        """The process ids of the program and of all processes that it has started."""
        return processes_of_session(self._process.pid)

    def go_on(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write("\n")
            self._process.stdin.flush()

    def pause(self) -> None:
        """Stop the driver and all its processes, until they are resumed or killed."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """`kill -9` the driver and all its processes; returns when none is left."""
        while self._signal(signal.SIGKILL):
            self._process.wait()
            time.sleep(_POLL_SECONDS)
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def complaint(self) -> str:
        """The end of its standard error, in one line and without the lines of Java's stack traces."""
        lines = (line.strip() for line in self._errors.read_text(errors="replace").splitlines())
        words = " ".join(line for line in lines if not line.startswith(("at ", "...")))
        return " ".join(words.split())[-_TOLD_CHARACTERS:]

    def _signal(self, number: signal.Signals) -> bool:
        """Signal all processes of the session; returns whether there were any."""
        members = self.process_ids()
        for process_id in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process_id, number)
        return bool(members)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # Java writes other lines to the same stream.
            if line.startswith("{"):
                self._lines.put(line)
        self._lines.put(None)


def processes_of_session(session_id: int) -> list[int]:
    """All processes of a session except zombies, which only their parents can remove."""
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # After the name in brackets, which may hold anything: state, parent, group, session.
                state, _, _, session = entry.joinpath("stat").read_text().rpartition(")")[2].split()[:4]
                if int(session) == session_id and state != "Z":
                    members.append(int(entry.name))
    return members
