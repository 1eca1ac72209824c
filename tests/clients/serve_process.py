"""`semel serve` as a user starts it, in a process of its own, found beside the Python that runs the tests. It is taken
for ready when its ready line says so and is always ended; the port and the data outlive a restart."""

from __future__ import annotations

import re
import selectors
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

READY_LINE = re.compile(r"semel ready on (\S+):(\d+) in ")
READY_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 20.0


class ServeProcess:
    def __init__(self, data: Path, *options: str) -> None:
        self._data = data
        self._options = options
        self._listen = "127.0.0.1:0"
        self._process: subprocess.Popen[str] | None = None
        self._errors = data.with_name(f"{data.name}.stderr")

    def __enter__(self) -> ServeProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        return self._listen

    def start(self) -> None:
        """The first start takes a free port, and every later one the same."""
        semel = Path(sys.executable).parent / "semel"
        command = [str(semel), "serve", "--listen", self._listen, "--data", str(self._data), *self._options]
        with self._errors.open("a") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        ready = READY_LINE.search(self._first_line())
        assert ready, f"semel serve did not become ready:\n{self._errors.read_text()[-2000:]}"
        self._listen = f"{ready[1]}:{ready[2]}"

    def kill(self) -> None:
        """`kill -9`; the data stays."""
        assert self._process is not None
        self._process.kill()
        self._reap()

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._reap()

    def _reap(self) -> None:
        assert self._process is not None
        process, self._process = self._process, None
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            assert process.stdout is not None
            process.stdout.close()

    def _first_line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + READY_SECONDS_MAX
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(deadline - time.monotonic()):
                return ""
        return self._process.stdout.readline()
