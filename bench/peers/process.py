"""A broker as a process of its own: started in a temporary directory, watched through /proc, and always cleaned up.
This is the only way the bench touches a broker. It must never leave a process or a directory behind, whatever ends
the run. What its clients see of it is a `Contender`, which may also be several brokers (`bench.peers.cluster`)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from semel.testing.ports import free_port

READY_TIMEOUT_SECONDS = 120.0
"""Kafka recovers 1 GB after a kill in some 13 s on two cores; ten times that is a hang, not a slow start."""

STOP_TIMEOUT_SECONDS = 20.0

_CPU_CLOCK_OF_PROCESS = 2
_PR_SET_PDEATHSIG = 1


class SkipReason(Exception):
    """Why a peer cannot run here. It ends up in the table's footnotes and is not an error."""


class BrokerFailed(Exception):
    """The broker was started and died, or did not become ready in time. The message carries the end of its log."""


def cache_dir() -> Path:
    """Where peers are kept between runs: outside the repository, `SEMEL_CACHE` or `~/.cache/semel`."""
    configured = os.environ.get("SEMEL_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "semel"


def port_is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True


def answers_metadata(bootstrap: str) -> bool:
    """True once the broker names itself in a Metadata answer: an open port alone is not a broker that serves."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 100})
    try:
        return len(client.list_topics(timeout=2.0).brokers) > 0
    except KafkaException:
        return False


def _die_with_parent() -> None:
    """Runs in the child: a bench killed with SIGKILL takes its brokers with it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Contender(ABC):
    """What a measure runs on, as its clients see it: one broker, or several. Use it as a context manager, or call
    `start` and `stop`."""

    name: str
    # Whether it takes orders of administrators; one that does not makes topics by itself.
    is_administered = True
    # How many brokers hold each partition of a topic that the bench makes.
    replication_factor = 1

    @property
    @abstractmethod
    def bootstrap(self) -> str: ...

    @abstractmethod
    def version(self) -> str:
        """The peer's name and version for the table's head."""

    @abstractmethod
    def install(self) -> None:
        """Make sure the peer is there, fetching it when it is not. Raises `SkipReason` when it cannot be had."""

    @abstractmethod
    def start(self) -> Self:
        """Start it and wait until it serves."""

    @abstractmethod
    def stop(self) -> None:
        """A clean stop, then the data goes. Safe to call twice and after a failure."""

    @abstractmethod
    def cpu_seconds(self) -> float:
        """What its brokers have taken so far."""

    def store_cpu_seconds(self) -> float:
        """What the processes of its store have taken so far. A broker that keeps its log itself has none."""
        return 0.0

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Broker(Contender):
    """A broker process. `kill` is `kill -9` and keeps the data, so that `start` afterwards is a recovery. `stop`
    removes the data unless the directory was given."""

    def __init__(self, *, port: int = 0, directory: Path | None = None) -> None:
        self.port = port
        self.started_at = 0.0
        self.ready_seconds = 0.0
        self._log_offset = 0
        self._given_directory = directory
        self._directory: Path | None = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise BrokerFailed(f"{self.name} is not running")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started, and not ended by us."""
        return self._process is not None

    @property
    def directory(self) -> Path:
        """Holds the broker's data and its log; on the disk that `TMPDIR` names."""
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix=f"semel-bench-{self.name}-"))
        return self._directory

    @property
    def log_path(self) -> Path:
        return self.directory / "broker.log"

    def log_since_spawn(self) -> bytes:
        """What this start wrote; a log that goes on after a kill holds the lines of the starts before it too."""
        return self.log_path.read_bytes()[self._log_offset :]

    @abstractmethod
    def prepare(self) -> None:
        """Write what the first start needs (configuration, a formatted directory). Not part of any measured time."""

    @abstractmethod
    def command(self) -> Sequence[str]: ...

    @abstractmethod
    def is_ready(self) -> bool: ...

    def start(self, *, wait: bool = True) -> Self:
        """Spawn the process and wait until it serves. `wait=False` returns at once, for measures that time the
        first acknowledgement themselves."""
        self.spawn_prepared()
        if wait:
            self.wait_ready()
        return self

    def spawn_prepared(self) -> None:
        self.install()
        if self.port == 0:
            self.port = free_port()
        self.directory.mkdir(parents=True, exist_ok=True)
        self.prepare()
        command = list(self.command())
        self._log = self.log_path.open("ab")
        self._log_offset = self._log.tell()
        self.started_at = time.perf_counter()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            cwd=self.directory,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )

    def wait_ready(self, timeout_seconds: float = READY_TIMEOUT_SECONDS) -> None:
        self.wait_for(self.is_ready, timeout_seconds)
        self.ready_seconds = time.perf_counter() - self.started_at

    def wait_for(self, condition: Callable[[], bool], timeout_seconds: float = READY_TIMEOUT_SECONDS) -> None:
        deadline = self.started_at + timeout_seconds
        while not condition():
            self.check_alive()
            if time.perf_counter() > deadline:
                raise BrokerFailed(f"{self.name} was not ready after {timeout_seconds:.0f} s:\n{self.log_tail()}")
            time.sleep(0.005)

    def check_alive(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            code = self._process.returncode
            raise BrokerFailed(f"{self.name} ended with exit code {code}:\n{self.log_tail()}")

    def log_tail(self, bytes_max: int = 2000) -> str:
        try:
            return self.log_path.read_bytes()[-bytes_max:].decode(errors="replace")
        except OSError:
            return "(no log)"

    def kill(self) -> None:
        """`kill -9`, and the data stays."""
        self._end(signal.SIGKILL)

    def shut_down(self) -> None:
        """A clean stop, and the data stays."""
        self._end(signal.SIGTERM)

    def stop(self) -> None:
        """A clean stop, then the temporary directory goes."""
        try:
            self._end(signal.SIGTERM)
        finally:
            if self._given_directory is None and self._directory is not None:
                shutil.rmtree(self._directory, ignore_errors=True)
                self._directory = None

    def _end(self, first_signal: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(first_signal)
            try:
                process.wait(STOP_TIMEOUT_SECONDS)
            except BaseException as interruption:
                process.kill()
                process.wait()
                if not isinstance(interruption, subprocess.TimeoutExpired):
                    raise
        if self._log is not None:
            self._log.close()
            self._log = None

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)

    def rss_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(process_id: int) -> float:
    """User and system time of a process so far, with all its threads, those that ended too.

    This is the clock that clock_getcpuclockid(3) names. It counts what utime and stime of /proc/PID/stat count,
    in nanoseconds where those come in ticks of 10 ms, too coarse for a difference of 2 %."""
    return time.clock_gettime((~process_id << 3) | _CPU_CLOCK_OF_PROCESS)


def family_cpu_seconds(process_id: int) -> float:
    """The same of a process and of all that it has started, those that ended too, in ticks of 10 ms."""
    stat = Path(f"/proc/{process_id}/stat").read_text()
    # Behind the name, which may have spaces in it: utime, stime, and those of children that ended.
    ticks = sum(map(int, stat.rpartition(")")[2].split()[11:15]))
    children = {
        int(child)
        for task in Path(f"/proc/{process_id}/task").iterdir()
        for child in (task / "children").read_text().split()
    }
    return ticks / os.sysconf("SC_CLK_TCK") + sum(map(family_cpu_seconds, children))


def run_in_foreground(broker: Broker) -> int:
    """Run one peer until SIGTERM or Ctrl-C, for a person who points a client at it by hand."""

    def interrupt(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        with broker:
            print(f"{broker.name} ready on {broker.bootstrap} in {broker.ready_seconds:.2f} s", flush=True)
            while True:
                broker.check_alive()
                time.sleep(0.5)
    except KeyboardInterrupt:
        return 0
    except (SkipReason, BrokerFailed) as reason:
        print(f"{broker.name}: {reason}", file=sys.stderr)
        return 1
