"""The tools of the demo: a broker that can be killed, a reader of topics, and the page that people watch."""

import os
from collections import Counter
from collections.abc import Sequence
from typing import Final, Self

from semel.chaos.topic_reader import ReadingStopped, to_the_end
from semel.testing.served import ServedBroker, ServeFailed
from semel.ui.demo import DemoFailed

_CREATE_SECONDS_MAX: Final = 25.0
# The broker's metrics that the demo reads.
DUPLICATES: Final = ('semel_batches_total{outcome="duplicate"}',)
FENCED: Final = (
    'semel_batches_total{outcome="fenced"}',
    'semel_transactions_total{outcome="fenced"}',
    "semel_fenced_requests_total",
)
OPEN_TRANSACTIONS: Final = "semel_open_transactions"
_COUNTED: Final = frozenset({*DUPLICATES, *FENCED, OPEN_TRANSACTIONS})


class CountedBroker(ServedBroker):
    """A broker that is killed and restarted, and its counts over all its processes."""

    def __init__(self, data: str, partitions: int) -> None:
        """`partitions`: how many partitions a topic gets that is created automatically."""
        super().__init__(data, "--log-level=error", f"--partitions={partitions}", metrics=True)
        # The counts of the killed processes before this one.
        self._counted_before: Counter[str] = Counter()

    def start(self) -> Self:
        try:
            return super().start()
        except ServeFailed as failed:
            raise DemoFailed(str(failed)) from None

    def note_counts(self) -> None:
        """Remember the counts of the process that is about to be killed."""
        self._counted_before.update(self._counts())

    def duplicates(self) -> int:
        """How many batches were recognised as repetitions, as the broker itself counts them."""
        return self._sum(DUPLICATES)

    def fenced(self) -> int:
        """How often a fenced producer was refused, or a successor aborted its transaction."""
        return self._sum(FENCED)

    def open_transactions(self) -> int:
        return self._counts()[OPEN_TRANSACTIONS]

    def _sum(self, names: tuple[str, ...]) -> int:
        counts = self._counted_before + self._counts()
        return sum(counts[name] for name in names)

    def _counts(self) -> Counter[str]:
        return Counter({name: int(value) for name, value in self.metrics().items() if name in _COUNTED})


def create_topics(bootstrap: str, topics: Sequence[str], partitions: int) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for created in admin.create_topics([NewTopic(topic, partitions) for topic in topics]).values():
        created.result(_CREATE_SECONDS_MAX)


def read(topic: str, bootstrap: str) -> Counter[bytes]:
    """All records of a topic that consumers see, read by a real consumer directly from the broker."""
    try:
        return Counter(message.value() or b"" for message in to_the_end(bootstrap, topic))
    except ReadingStopped as stopped:
        raise DemoFailed(str(stopped)) from None


class Page:
    """The output for the user: plain text, with colours on a terminal."""

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

    def end(self, text: str, held: bool) -> None:
        self._print("\n" + self._style("1;32" if held else "1;31", text))

    def _print(self, text: str) -> None:
        # Flushed, because the user watches it happen.
        print(text, flush=True)

    def _style(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._in_colour else text
