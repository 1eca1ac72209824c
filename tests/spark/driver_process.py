"""A Python script as a Spark driver in a process of its own, which can be killed with all that it started.

    SCRIPT = '''
    import sys
    from driver_process import driver_session

    spark = driver_session()
    ...
    print("the batch is in the table", flush=True)
    '''

    with DriverProcess(SCRIPT, topic, tmp_path / "checkpoint") as driver:
        driver.wait_for_line("the batch is in the table")
        driver.kill()

The arguments are the script's `sys.argv[1:]`, and it can import what lies in `tests` and `tests/spark`. Where the
driver has to be held at a place, the script waits there for ever, or for a file, and is killed. A script that is to
end by itself is waited for with `driver.finish()`, which fails if the script failed.

This module must never let a process outlive its `with` block.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from eventually import eventually
from fast_spark import fast_java
from semel.ui.demo.driver import processes_of_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent
WAIT_SECONDS_MAX = 400.0


def driver_session(**config: str) -> SparkSession:
    """The session of a script in a process of its own."""
    from semel.spark import session

    return session("semel-driver", master="local[2]", config=config)


def with_scratch(environment: Mapping[str, str], directory: str) -> dict[str, str]:
    """The same environment, but that Python and the Java of Spark have their temporary files in this directory."""
    option = shlex.quote(f"-Djava.io.tmpdir={directory}")
    java = {
        name: f"{environment.get(name, '')} {option}".strip()
        for name in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS")
    }
    return {**environment, "TMPDIR": directory, **java}


def _kill(process_ids: Sequence[int]) -> None:
    """Return when these processes have ended, whoever their parents are. All stand still before any is killed: Java
    tidies up after its tasks when it sees its Python die, and on a busy machine it has the time."""
    with contextlib.ExitStack() as stack:
        processes = []
        for process_id in process_ids:
            with contextlib.suppress(ProcessLookupError):
                process = os.pidfd_open(process_id)
                stack.callback(os.close, process)
                processes.append(process)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(process, number)
        for process in processes:
            select.select([process], [], [])


class ProcessTree:
    """A command with all that it starts and all its temporary files, from its making to the end of the `with` block, at
    the latest."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        # Whoever is killed leaves everything there.
        self._scratch = tempfile.TemporaryDirectory(prefix="semel-process-")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            env=with_scratch(environment, self._scratch.name),
            # PySpark gives its workers a process group of their own, but all stay in the session.
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._is_read_out = False
        self._read = threading.Condition()
        self._reader = threading.Thread(target=self._read_lines, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._stderr.close()
        self._scratch.cleanup()

    @property
    def errors(self) -> str:
        """What has been written to standard error."""
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")

    def wait_for_line(self, text: str) -> str:
        """The first line of standard output with this text in it, once it is there."""

        def line() -> str | None:
            return next((line for line in self.lines if text in line), None)

        with self._read:
            self._read.wait_for(lambda: line() is not None or self._is_read_out, WAIT_SECONDS_MAX)
            found = line()
        assert found is not None, self._told(f"never said {text!r}")
        return found

    def wait_for_file(self, path: Path) -> None:
        """Until the file is there."""
        self.wait_until(path.exists, f"never made {path}")

    def wait_until(self, holds: Callable[[], bool], complaint: str) -> None:
        """Until this holds; fails with the complaint if the process ends before."""
        assert eventually(lambda: holds() or self._process.poll() is not None, WAIT_SECONDS_MAX), self._told(complaint)
        # What it had still done in its last moment counts.
        assert holds(), self._told(complaint)

    def finish(self, seconds_max: float = WAIT_SECONDS_MAX) -> list[str]:
        """The lines that the command has printed when it has ended well, with all that it started."""
        try:
            code = self._process.wait(seconds_max)
        except subprocess.TimeoutExpired:
            raise AssertionError(self._told("did not end")) from None
        assert code == 0, self._told(f"ended with {code}")
        # Java ends a moment later, and has the other end of the pipe until then.
        self._reader.join(seconds_max)
        return self.lines

    def fail(self) -> str:
        """What the command has written to standard error when it has failed."""
        code = self._process.wait(WAIT_SECONDS_MAX)
        assert code != 0, self._told("ended well")
        return self.errors

    def kill(self) -> None:
        """`kill -9` for the command, its Java and all Python workers; returns when none of them is left."""
        while members := processes_of_session(self._process.pid):
            _kill(members)
        self._process.wait()
        self._reader.join()

    def _read_lines(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                with self._read:
                    self.lines.append(line.rstrip("\n"))
                    self._read.notify_all()
        with self._read:
            self._is_read_out = True
            self._read.notify_all()

    def _told(self, complaint: str) -> str:
        said = "\n".join(self.lines[-20:])
        # Of a failure in Spark, a hundred lines are where in Spark it was.
        errors = "\n".join(line for line in self.errors.splitlines() if not line.startswith("\tat "))
        return f"the process {complaint}\n--- it said:\n{said}\n--- and its errors:\n{errors[-4000:]}"


class DriverProcess(ProcessTree):
    """A script that runs as a driver."""

    def __init__(self, script: str, *arguments: object, environment: Mapping[str, str] | None = None) -> None:
        """`environment` is added to that of the tests; who gives it starts without `fast_java()`."""
        paths = [str(ROOT / "tests" / "spark"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
        added = fast_java() if environment is None else environment
        super().__init__(
            [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
            {**os.environ, **added, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )
