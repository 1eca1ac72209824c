"""`semel serve` in its own process, for tests that kill a broker, measure it, or start it with options.

    with ServedBroker(tmp_path / "data", "--partitions=4") as broker:
        book_payment(broker.bootstrap)
        broker.kill()
        broker.start()
        book_payment(broker.bootstrap)

All starts are at one address, and find the same data. This file must never leave a process behind, whatever signal
comes while it starts one.
"""

import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from semel.chaos.undisturbed import undisturbed
from semel.testing.ports import free_port

# The line of `semel serve` when clients can connect: the addresses, the seconds of the start (of a broker that stood by
# before, those on standby instead), its name among the brokers on one store, the address of the metrics.
READY_LINE: Final = re.compile(
    r"semel ready on (.+:\d+) (?:in ([\d.]+) s|after \d+ s on standby)"
    r"(?: \(active, epoch \d+\))?(?:, metrics on (\S+))?$",
    re.MULTILINE,
)

# The line before that, if another broker on the same store is active.
STANDBY_LINE: Final = re.compile(r"semel standing by on (.+:\d+?)(?:, metrics on (\S+))?, active is \S+$", re.MULTILINE)

# A start takes a fraction of a second; the recovery of a large log on a busy machine takes many seconds.
READY_SECONDS_MAX: Final = 120.0
# A stop writes one checkpoint.
STOP_SECONDS_MAX: Final = 30.0
METRICS_SECONDS_MAX: Final = 10.0


class ServeFailed(RuntimeError):
    """The broker ended before it was ready, or did not stop; the message has the last line that it printed."""


class ServedBroker:
    """A broker in its own process, from `start` to `stop` or for the `with` block."""

    def __init__(
        self,
        data: Path | str,
        *options: str,
        environment: Mapping[str, str] | None = None,
        metrics: bool = False,
        ready_seconds_max: float = READY_SECONDS_MAX,
    ) -> None:
        """`data` is the directory of the log, `options` are those of `semel serve`. `environment` is added to the
        environment of this process. With `metrics` the broker serves metrics on another free port.
        """
        self._data = data
        self._options = [*options, *(["--metrics=127.0.0.1:0"] if metrics else [])]
        self._environment = {**os.environ, **(environment or {})}
        self._ready_seconds_max = ready_seconds_max
        self._bootstrap = f"127.0.0.1:{free_port()}"
        self._addresses = ""
        self._metrics_address: str | None = None
        self._ready_seconds = 0.0
        self._is_standing_by = False
        self._process: subprocess.Popen[str] | None = None
        # The file descriptor for the standard error of the process.
        self._errors = 0
        self._output = ""
        self._exit_code: int | None = None

    @property
    def bootstrap(self) -> str:
        """The address for clients' `bootstrap.servers`."""
        return self._bootstrap

    @property
    def addresses(self) -> str:
        """The broker's addresses, as it prints them: one address, or `NAME=PROTOCOL://HOST:PORT, ...` for several."""
        return self._addresses

    @property
    def process_id(self) -> int:
        """The process id; 0 if no process runs."""
        return self._process.pid if self._process is not None else 0

    @property
    def ready_seconds(self) -> float:
        """How long the last start took, as the broker printed it; a takeover is none."""
        return self._ready_seconds

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last process, -9 if it was killed; None while it runs."""
        return self._process.poll() if self._process is not None else self._exit_code

    @property
    def output(self) -> str:
        """The broker's log since the last start, which is its standard error."""
        return self._read_errors() if self._process is not None else self._output

    def start(self) -> Self:
        """Start it; returns when clients can connect, or it is the standby. Raises `ServeFailed` if the broker ends
        before that.
        """
        if self._process is not None:
            raise ServeFailed("the broker has been started already")
        command = [sys.executable, "-m", "semel", "serve", f"--listen={self._bootstrap}", f"--data={self._data}"]
        # If this process is killed, the broker has to end as well.
        command.append("--until-input-ends")
        self._errors = _nameless_file()
        try:
            # Before the process is known here, nobody could end it.
            with undisturbed():
                self._process = subprocess.Popen(
                    [*command, *self._options],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._errors,
                    text=True,
                    env=self._environment,
                    # Ctrl-C is for the program that started the broker; that program ends the broker.
                    process_group=0,
                )
            self._hear(self._process)
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Send SIGTERM and wait for the end: everything is durable, and the next start has nothing to replay."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL: the broker ends at once, whatever it is doing."""
        self._end(signal.SIGKILL)

    @property
    def is_standing_by(self) -> bool:
        """Whether another broker on the same store was active when this one printed its last line."""
        return self._is_standing_by

    def wait_until_active(self) -> None:
        """Wait until the standby has taken over."""
        assert self._process is not None, "the broker is not running"
        while self._is_standing_by:
            self._hear(self._process)

    def wait_until_standing_by(self) -> None:
        """Wait until an active broker that was cut off from its store stands by again."""
        assert self._process is not None, "the broker is not running"
        while not self._is_standing_by:
            self._hear(self._process)

    def pause(self) -> None:
        """Send SIGSTOP: when this returns, the whole process stands still until `resume`."""
        process = self._send(signal.SIGSTOP)
        # Before it has stopped, one of its threads may still take a lock.
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Send SIGCONT."""
        self._send(signal.SIGCONT)

    def terminate(self) -> None:
        """Send SIGTERM and do not wait for the end; `wait` does."""
        self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> subprocess.Popen[str]:
        assert self._process is not None, "the broker is not running"
        self._process.send_signal(number)
        return self._process

    def wait(self) -> int:
        """Wait for a process that ends by itself; returns its exit code."""
        if self._process is not None:
            self._process.wait(self._ready_seconds_max)
            self._end(signal.SIGKILL)
        assert self._exit_code is not None, "the broker was never started"
        return self._exit_code

    def restart(self) -> None:
        """Stop and start again, at the same address and with the same data."""
        self.stop()
        self.start()

    @property
    def metrics_address(self) -> str:
        """The HOST:PORT of its metrics and decisions."""
        assert self._metrics_address is not None, "only a broker that was made with metrics=True has metrics"
        return self._metrics_address

    def metrics(self) -> dict[str, float]:
        """The broker's metrics, by their names in Prometheus' text format, including labels."""
        with urllib.request.urlopen(f"http://{self.metrics_address}/metrics", timeout=METRICS_SECONDS_MAX) as answer:
            lines = answer.read().decode().splitlines()
        samples = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in samples}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _hear(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(self._ready_seconds_max):
                raise ServeFailed(f"semel serve was not ready after {self._ready_seconds_max:g} s{self._last_line()}")
        line = process.stdout.readline()
        standing_by = STANDBY_LINE.match(line)
        if standing_by is not None:
            self._is_standing_by = True
            self._note_addresses(standing_by[1], standing_by[2])
            return
        ready = READY_LINE.match(line)
        if ready is None:
            process.wait(STOP_SECONDS_MAX)
            raise ServeFailed(f"semel serve did not start{self._last_line()}")
        self._is_standing_by = False
        self._ready_seconds = float(ready[2] or 0)
        self._note_addresses(ready[1], ready[3])

    def _note_addresses(self, addresses: str, metrics_address: str | None) -> None:
        self._addresses, self._metrics_address = addresses, metrics_address
        self._bootstrap = self._addresses.partition(", ")[0].rpartition("/")[2]

    def _end(self, number: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        try:
            process.send_signal(number)
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise ServeFailed(f"semel serve did not stop in {STOP_SECONDS_MAX:g} s{self._last_line()}") from None
        finally:
            process.kill()
            self._exit_code = process.wait()
            self._output = self._read_errors()
            self._process = None
            os.close(self._errors)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _read_errors(self) -> str:
        return os.pread(self._errors, os.fstat(self._errors).st_size, 0).decode(errors="replace")

    def _last_line(self) -> str:
        lines = self._read_errors().splitlines()
        return f": {lines[-1].removeprefix('semel: ')}" if lines else ""


def _nameless_file() -> int:
    """A file without a name, which vanishes when it is closed."""
    descriptor, path = tempfile.mkstemp(prefix="semel-serve-")
    os.unlink(path)
    return descriptor
