"""What the demos are played on: a broker that can be killed, a reader of topics, and the page that people watch."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Sequence
from typing import Final

from semel.chaos.reading import ReadingStopped, to_the_end
from semel.chaos.undisturbed import undisturbed
from semel.cli.errors import Failure

_CREATE_SECONDS_MAX: Final = 25.0
_READY_SECONDS_MAX: Final = 15.0
_READY: Final = re.compile(r"semel ready on (\S+):(\d+) in (\S+) s")
# What the broker counts, under the names that its metrics give it.
DUPLICATES: Final = ('semel_batches_total{outcome="duplicate"}',)
FENCED: Final = (
    'semel_batches_total{outcome="fenced"}',
    'semel_transactions_total{outcome="fenced"}',
    "semel_fenced_requests_total",
)
OPEN_TRANSACTIONS: Final = "semel_open_transactions"


class ServedBroker:
    """`semel serve` as a process, killed and started again at the same addresses."""

    def __init__(self, data: str, partitions: int) -> None:
        """`partitions`: how many a topic gets that is made by being used."""
        self._data = data
        self._partitions = partitions
        self._port = 0
        self._metrics_port = _free_port()
        self._process: subprocess.Popen[str] | None = None
        # What the processes before this one had counted when they were killed.
        self._counted_before: Counter[str] = Counter()
        self.ready_in = ""

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def process_id(self) -> int:
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Return when clients can connect."""
        command = [sys.executable, "-m", "semel", "serve", "--data", self._data, "--log-level", "error"]
        command += ["--listen", self.bootstrap, "--metrics", f"127.0.0.1:{self._metrics_port}"]
        command += ["--partitions", str(self._partitions)]
        with undisturbed():
            process = self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                # Ctrl-C is for the demo, which ends it.
                process_group=0,
            )
        assert process.stdout is not None
        assert process.stderr is not None
        # Whoever does not get ready is ended, and with it the wait for its line.
        patience = threading.Timer(_READY_SECONDS_MAX, process.kill)
        patience.start()
        try:
            line = process.stdout.readline()
        finally:
            patience.cancel()
        ready = _READY.match(line)
        if ready is None:
            process.kill()
            raise Failure(f"semel serve did not start: {process.stderr.read().strip() or line.strip()}")
        self._port = int(ready[2])
        self.ready_in = ready[3]

    def kill(self) -> None:
        """End it as the kernel does: at once, whatever it was doing."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            for stream in (self._process.stdout, self._process.stderr):
                if stream is not None:
                    stream.close()
            self._process = None

    def note_counts(self) -> None:
        """Remember what the process has counted that is about to be killed."""
        self._counted_before.update(self._metrics())

    def duplicates(self) -> int:
        """How many batches were recognised as repetitions, as the broker itself counts them."""
        return self._counted(DUPLICATES)

    def fenced(self) -> int:
        """How often somebody who was late was turned away, or had a transaction aborted by a successor."""
        return self._counted(FENCED)

    def open_transactions(self) -> int:
        return self._metrics()[OPEN_TRANSACTIONS]

    def _counted(self, names: tuple[str, ...]) -> int:
        now = self._metrics()
        return sum(self._counted_before[name] + now[name] for name in names)

    def _metrics(self) -> Counter[str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        wanted = (*DUPLICATES, *FENCED, OPEN_TRANSACTIONS)
        found = (line.rpartition(" ") for line in lines)
        return Counter({name: int(value) for name, _, value in found if name in wanted})


def create_topics(bootstrap: str, topics: Sequence[str], partitions: int) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for created in admin.create_topics([NewTopic(topic, partitions) for topic in topics]).values():
        created.result(_CREATE_SECONDS_MAX)


def read(topic: str, bootstrap: str, *, committed: bool = True) -> Counter[bytes]:
    """All that consumers get to see of a topic, through a real one, straight from the broker."""
    try:
        return Counter(message.value() or b"" for message in to_the_end(bootstrap, topic, committed=committed))
    except ReadingStopped as stopped:
        raise Failure(str(stopped)) from None


class Page:
    """What the reader sees: plain text, and colours where there is a terminal."""

    def __init__(self, is_terminal: bool) -> None:
        self.is_terminal = is_terminal
        self._in_colour = is_terminal and "NO_COLOR" not in os.environ
        self._parts = 0

    def title(self, text: str) -> None:
        self._print(self._style("1", text))

    def part(self, text: str) -> None:
        self._parts += 1
        self._print("\n" + self._style("1", f"{self._parts}. {text}"))

    def say(self, text: str, *, faint: bool = False) -> None:
        self._print("   " + (self._style("2", text) if faint else text))

    def figures(self, **figures: int | str) -> None:
        told = (
            f"{name.replace('_', ' ')} {value:,}" if isinstance(value, int) else f"{name.replace('_', ' ')} {value}"
            for name, value in figures.items()
        )
        self.say("  " + "   ".join(told), faint=True)

    def verdict(self, text: str, kept: bool) -> None:
        self.say(f"{self._style('32', 'ok')}  {text}" if kept else f"{self._style('31', 'BROKEN')}  not so: {text}")

    def end(self, text: str, held: bool) -> None:
        self._print("\n" + self._style("1;32" if held else "1;31", text))

    def _print(self, text: str) -> None:
        # At once, because the reader watches it happen.
        print(text, flush=True)

    def _style(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._in_colour else text


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
