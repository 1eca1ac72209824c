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

A start takes 9 s of two cores as Spark is, and 5 s as it is here: `fast_start()` says why. This module must never let a
process outlive its `with` block.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from eventually import eventually
from semel.cli.demo.driver import processes_of_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent
WAIT_SECONDS_MAX = 400.0
# An archive of two hundred megabytes is written as well.
_TRAINING_SECONDS_MAX = 500.0
# Short lives: what the second compiler would gain comes too late, and other collectors want threads of their own.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# The archives come first: pyspark.zip and py4j-...-src.zip.
_PYTHON = """\
#!/bin/sh
export PYTHONPATH="${{PYTHONPATH#*/pyspark.zip:*/py4j-*-src.zip:}}"
exec {executable} "$@"
"""
# Every kind of thing that the tests do: the classes that it loads are those of the archive.
_TRAINING = """
import sys
from driver_process import driver_session

spark = driver_session()
spark.range(100).mapInArrow(lambda batches: batches, "id long").write.parquet(f"{sys.argv[1]}/rows")
stream = spark.readStream.schema("id long").parquet(f"{sys.argv[1]}/rows").groupBy("id").count()
writing = stream.writeStream.outputMode("update").foreachBatch(lambda rows, batch: rows.collect())
writing.option("checkpointLocation", f"{sys.argv[1]}/checkpoint").trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""


def driver_session(**config: str) -> SparkSession:
    """The session of a script in a process of its own."""
    from semel.spark import session

    return session("semel-driver", master="local[2]", config=config)


@cache
def fast_start() -> dict[str, str]:
    """What the environment of a session says for it to start in half the time, and each process of Python as well."""
    return {**fast_java(), "PYSPARK_PYTHON": str(_python_without_archive())}


@cache
def fast_java() -> dict[str, str]:
    """What the environment of a session says for Java to start in half the time: an archive of Spark's classes, loaded
    and checked once for all; it is made by the first who asks. Skips the test where Spark cannot run."""
    from semel.spark.java import JavaMissing, find_java

    try:
        java = find_java()
    except JavaMissing as missing:
        pytest.skip(str(missing))
    name = hashlib.sha256(f"{java} {_spark_version()} {_SHORT_LIVED} {_TRAINING}".encode()).hexdigest()[:16]
    directory = _workshop()
    # Java's own classes, which not every JRE brings with it in such a form, and on top of them those of Spark. The
    # upper archive names the lower one by its path.
    own, spark = directory / f"java-{name}.jsa", directory / f"spark-{name}.jsa"
    flags = [*_SHORT_LIVED.split(), "-Xlog:disable"]
    with (directory / "lock").open("w") as lock:
        # One makes them, and all others wait.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not own.exists():
            with _in_one_step(own) as written:
                dump = [f"-XX:SharedArchiveFile={written}", "-Xshare:dump"]
                subprocess.run([java.executable, *flags, *dump], check=True, capture_output=True)
        if not spark.exists():
            with _in_one_step(spark) as written, tempfile.TemporaryDirectory() as scratch:
                options = shlex.join([*flags, f"-XX:SharedArchiveFile={own}", f"-XX:ArchiveClassesAtExit={written}"])
                with DriverProcess(_TRAINING, scratch, environment={"SPARK_SUBMIT_OPTS": options}) as driver:
                    driver.finish(_TRAINING_SECONDS_MAX)
    # An archive that does not fit is not used, and nothing is said.
    return {"SPARK_SUBMIT_OPTS": shlex.join([*flags, f"-XX:SharedArchiveFile={own}:{spark}"])}


@cache
def _workshop() -> Path:
    """Where what is made once for all goes: `build`, which keeps it for the next run, or where nobody may write there a
    directory that goes with this process."""
    directory = ROOT / "build" / "spark"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError:
        directory = Path(tempfile.mkdtemp(prefix="semel-build-"))
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def _python_without_archive() -> Path:
    """This Python, with PySpark as it is installed. Spark puts an archive of the same modules in front, which every
    process compiles anew: 0.55 s of CPU, and on a busy machine more than the ten seconds that Spark gives to some."""
    path = _workshop() / f"python-{hashlib.sha256(sys.executable.encode()).hexdigest()[:16]}"
    text = _PYTHON.format(executable=shlex.quote(sys.executable))
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as written:
        written.write(text)
    Path(written.name).chmod(0o755)
    Path(written.name).rename(path)
    return path


def with_scratch(environment: Mapping[str, str], directory: str) -> dict[str, str]:
    """The same environment, but that Python and the Java of Spark have their temporary files in this directory."""
    option = shlex.quote(f"-Djava.io.tmpdir={directory}")
    java = {
        name: f"{environment.get(name, '')} {option}".strip()
        for name in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS")
    }
    return {**environment, "TMPDIR": directory, **java}


@contextlib.contextmanager
def _in_one_step(path: Path) -> Iterator[Path]:
    """Where to write a file that is there as a whole, or not at all."""
    written = path.with_name(f"unfinished-{path.name}")
    yield written
    written.rename(path)


def _kill(process_id: int) -> None:
    """Return when the process has ended, whoever its parent is."""
    process = os.pidfd_open(process_id)
    try:
        signal.pidfd_send_signal(process, signal.SIGKILL)
        select.select([process], [], [])
    finally:
        os.close(process)


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
        eventually(lambda: holds() or self._process.poll() is not None, WAIT_SECONDS_MAX)
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
            for process_id in members:
                with contextlib.suppress(ProcessLookupError):
                    _kill(process_id)
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
        """`environment` is added to that of the tests; who gives it starts without `fast_start()`."""
        paths = [str(ROOT / "tests" / "spark"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
        added = fast_start() if environment is None else environment
        super().__init__(
            [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
            {**os.environ, **added, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )


def _spark_version() -> str:
    import pyspark

    return pyspark.__version__
