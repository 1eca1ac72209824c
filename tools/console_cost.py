"""Measures what a console costs and how soon it tells, beside the bound of each figure: `make console-cost`.

A real broker, a real console and a real Chromium, as in the tests of its pages. The command fails if a bound does not
hold. Counts and memory do not depend on the machine; times and the broker's CPU do, so the sides of the latter take
turns, and the load of the machine is printed. It must never leave a process behind.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, cycle
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from threading import Thread
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from bench.peers.process import cpu_seconds
from confluent_kafka.admin import AdminClient, NewTopic

from chromium import NoChromium, chromium_browser
from process_memory import memory_bytes
from semel.client import groups
from semel.client.cluster import Cluster
from semel.client.connection import Connection
from semel.client.places import TopicPartition
from semel.client.settings import from_options
from semel.testing.served import ServedBroker
from semel.wire import kafka
from semel.wire.batch import HEADER_BYTES
from semel.wire.produce_client import PartitionBatch
from semel.wire.records import Record, encode_batch, sealed
from semel_command import serving

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event

    from playwright.sync_api import Browser, Page

TOPIC: Final = "payments"
PARTITIONS: Final = 4
EVENTS_PER_SECOND: Final = 4_200
TIMEOUT_MS: Final = 30_000
MEGABYTE: Final = 1_000_000

COLD_STARTS: Final = 5
PROBES: Final = 200
CPU_TURNS: Final = 8
EVENTS_RECORDED: Final = 200
CPU_SECONDS: Final = 10.0
# A console listens on for a while after its last page has gone.
SETTLE_SECONDS: Final = 7.0
TOPICS: Final = 10_000
TOPIC_SECONDS: Final = 30.0
GROUPS: Final = 100_000
GROUP_SECONDS: Final = 60.0
SAMPLE_SECONDS: Final = 10.0
# The load while memory is looked at: the page draws as often as with any higher one.
MEMORY_EVENTS_PER_SECOND: Final = 200
_TICK_SECONDS: Final = 0.01

_NOTE_COUNTS: Final = """() => {
  window.seen = [];
  const look = () => {
    const shown = Number(document.querySelector("main .lead")?.textContent.split(" ")[0] ?? 0);
    while (window.seen.length < shown) window.seen.push(performance.timeOrigin + performance.now());
  };
  const all = { subtree: true, childList: true, characterData: true };
  new MutationObserver(look).observe(document.getElementById("main"), all);
  look();
}"""

# At once, where Playwright would wait for a page that does not change.
_PRESS_PAUSE: Final = "() => document.getElementById('pause').click()"


class Counted(Protocol):
    """A number that two processes share."""

    value: int


class Figure(NamedTuple):
    """What was measured, and the most that it may be."""

    what: str
    value: float
    most: float
    decimals: int = 1

    @property
    def holds(self) -> bool:
        return self.value <= self.most

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "DOES NOT HOLD"
        return f"{self.what:<74} {self.value:10,.{self.decimals}f}   at most {self.most:6g}: {verdict}"


# -- what is sent ------------------------------------------------------------------------------------------------------


class Sender:
    """An idempotent producer of one connection that sends batches of one record, and can send the last one again."""

    def __init__(self, bootstrap: str) -> None:
        settings = from_options({"kafka.bootstrap.servers": bootstrap})
        self._connection = Connection(settings.bootstrap[0], settings)
        answer = self._connection.ask(
            kafka.init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TIMEOUT_MS)
        )
        assert answer.error_code == 0
        self._identity = answer.producer_id, answer.producer_epoch
        self._turns = cycle(range(PARTITIONS))
        self._sequences = [count() for _ in range(PARTITIONS)]
        self._now_ms = int(time.time() * 1000)
        self._records = encode_batch([Record(b"x" * 100, timestamp_ms=self._now_ms)])[HEADER_BYTES:]
        self._last: PartitionBatch | None = None

    def _next(self) -> PartitionBatch:
        partition = next(self._turns)
        batch = sealed(
            self._records,
            record_count=1,
            attributes=0,
            base_timestamp_ms=self._now_ms,
            max_timestamp_ms=self._now_ms,
            producer_id=self._identity[0],
            producer_epoch=self._identity[1],
            base_sequence=next(self._sequences[partition]),
        )
        return PartitionBatch(TOPIC, partition, batch)

    def send(self, batches: int) -> None:
        """Send this number of batches, each in a request of its own, all under way at once."""
        for _ in range(batches):
            self._last = self._next()
            self._connection.send_produce([self._last], None, TIMEOUT_MS)
        for _ in range(batches):
            self._take_answer()

    def send_again(self) -> None:
        """The last batch: a duplicate."""
        assert self._last is not None
        self._connection.send_produce([self._last], None, TIMEOUT_MS)
        self._take_answer()

    def _take_answer(self) -> None:
        (answer,) = self._connection.receive_produce()
        assert answer.error_code == 0, answer

    def close(self) -> None:
        self._connection.close()


def keep_sending(bootstrap: str, per_second: int, stop: Event, sent: Counted) -> None:
    """Send at an even rate until it is to stop. What could not be sent in time is sent late, and not left out."""
    sender = Sender(bootstrap)
    began = time.monotonic()
    done = 0
    while not stop.is_set():
        due = int((time.monotonic() - began) * per_second)
        sender.send(min(due - done, per_second))
        done = max(done, due)
        sent.value = done
        time.sleep(_TICK_SECONDS)
    sender.close()


@contextmanager
def load(bootstrap: str, per_second: int) -> Iterator[Counted]:
    """Batches from a process of its own; yields how many it has sent."""
    context = get_context("spawn")
    stop, sent = context.Event(), context.Value("q", 0)
    process = context.Process(target=keep_sending, args=(bootstrap, per_second, stop, sent), daemon=True)
    process.start()
    try:
        while not sent.value:
            assert process.is_alive(), "the load has ended by itself"
            time.sleep(_TICK_SECONDS)
        yield sent
    finally:
        stop.set()
        process.join()


# -- the parts ---------------------------------------------------------------------------------------------------------


def first_page(browser: Browser, broker: ServedBroker) -> list[Figure]:
    """From the start of the console's process until the first page is there, in an empty tab of a browser that has none
    of it."""
    took = []
    for _ in range(COLD_STARTS):
        page = browser.new_context().new_page()
        began = time.monotonic()
        with consoled(page, broker) as shown:
            shown.page.locator(".tile").first.wait_for()
            took.append(time.monotonic() - began)
            progress(f"the console itself has taken {cpu_seconds(shown.process_id):.2f} s of CPU")
    return [Figure("first page from a cold start, s (the median of 5)", median(took), 1.0, 2)]


def latency(browser: Browser, broker: ServedBroker) -> list[Figure]:
    """From the moment before a duplicate is sent until the page counts it."""
    figures = []
    for per_second in (0, EVENTS_PER_SECOND):
        with consoled(browser.new_context().new_page(), broker) as shown:
            page = shown.page
            shown.visit("decisions")
            page.locator("main .lead").wait_for()
            page.evaluate(_NOTE_COUNTS)
            before = page.evaluate("window.seen.length")
            sent_at = probed(broker, per_second)
            while len(seen_at := page.evaluate("window.seen")[before:]) < len(sent_at):
                page.wait_for_timeout(100)
        took_ms = sorted(seen - at * 1000 for seen, at in zip(seen_at, sent_at, strict=True))
        what = f"a decision from the wire to the page, p95, ms, at {per_second:,} events a second"
        figures.append(Figure(what, took_ms[len(took_ms) * 95 // 100], 250))
    return figures


def probed(broker: ServedBroker, per_second: int) -> list[float]:
    """Duplicates at times that follow no beat, beside a load; answers when each was sent."""
    sent_at = []

    def probe() -> None:
        chance = random.Random(17)
        sender = Sender(broker.bootstrap)
        sender.send(1)
        for _ in range(PROBES):
            time.sleep(chance.uniform(0.03, 0.2))
            sent_at.append(time.time())
            sender.send_again()
        sender.close()

    if per_second:
        with load(broker.bootstrap, per_second):
            probe()
    else:
        probe()
    return sent_at


def broker_cpu(browser: Browser, broker: ServedBroker) -> list[Figure]:
    """The broker's CPU for the same requests: with a page open, with none, and with one of another broker, in turn.

    A browser at work slows down whatever runs beside it on cores that share a cache or a clock. The page of another
    broker is drawn as often and costs this one nothing: the difference to it is what the console asks of this broker.
    """
    figures = []
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="semel-console-cost-"))
        sent = stack.enter_context(load(broker.bootstrap, EVENTS_PER_SECOND))
        idle = stack.enter_context(ServedBroker(Path(directory) / "data"))
        retold = stack.enter_context(told_again(events_of(broker, EVENTS_RECORDED)))
        this = stack.enter_context(consoled(browser.new_context().new_page(), broker))
        other = stack.enter_context(consoled(browser.new_context().new_page(), idle, retold))
        for name in ("decisions", "overview"):
            spent: dict[Shown | None, list[float]] = {this: [], other: [], None: []}
            for turn in range(CPU_TURNS):
                for shown in list(spent)[:: 1 if turn % 2 == 0 else -1]:
                    for one in (this, other):
                        one.page.goto("about:blank")
                    if shown is not None:
                        shown.visit(name)
                    time.sleep(SETTLE_SECONDS)
                    spent[shown].append(cpu_us_per_event(broker, sent))
            more = {
                shown: [100 * (a / b - 1) for a, b in zip(spent[this], spent[shown], strict=True)] for shown in spent
            }
            progress(f"{name}: {median(spent[None]):.1f} us of the broker for an event without a page")
            for shown, what in ((other, "a page of another broker"), (None, "no page")):
                turns = ", ".join(f"{one:+.1f}" for one in more[shown])
                progress(f"    more with the page than with {what}: {turns}; the median {median(more[shown]):+.1f} %")
            what = f"broker CPU with the page of {name} open at {EVENTS_PER_SECOND:,} events a second, % more"
            figures.append(Figure(what, median(more[other]), 3))
    return figures


def events_of(broker: ServedBroker, count: int) -> list[tuple[float, bytes]]:
    """The next events of a broker's stream of decisions, and how long after the one before each of them came."""
    events: list[tuple[float, bytes]] = []
    with urllib.request.urlopen(f"http://{broker.metrics_address}/decisions") as stream:
        came = time.monotonic()
        while len(events) < count:
            event = stream.readline() + stream.readline()
            came, before = time.monotonic(), came
            events.append((came - before, event))
    return events


@contextmanager
def told_again(events: Sequence[tuple[float, bytes]]) -> Iterator[str]:
    """A server of decisions that tells these over and over, as fast as they came; yields its address."""

    class Teller(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                for pause, event in cycle(events):
                    time.sleep(pause)
                    self.wfile.write(event)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Teller) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def cpu_us_per_event(broker: ServedBroker, sent: Counted) -> float:
    before, spent = sent.value, cpu_seconds(broker.process_id)
    time.sleep(CPU_SECONDS)
    return (cpu_seconds(broker.process_id) - spent) / (sent.value - before) * 1e6


def many_topics(browser: Browser, broker: ServedBroker) -> list[Figure]:
    """The most memory that the console had, while a page lists them and another one searches them."""
    for first in range(0, TOPICS, 1000):
        # One is there already.
        make_topics(broker, [f"topic-{number:05}" for number in range(max(first, 1), first + 1000)], 1)
    with consoled(browser.new_context().new_page(), broker) as shown:
        for path in ("topics", "topics?page=50", "topics?find=99", "overview"):
            shown.visit(path)
            shown.page.locator("main table, .tile").first.wait_for()
            time.sleep(TOPIC_SECONDS / 4)
        peak = memory_bytes(shown.process_id, "VmHWM")
    return [Figure(f"console RSS with {TOPICS:,} topics, MB (the most it ever had)", peak / MEGABYTE, 80)]


def many_groups(browser: Browser, broker: ServedBroker) -> list[Figure]:
    """The most memory that the console had, while several pages list them, search them and show one."""
    with Cluster(from_options({"kafka.bootstrap.servers": broker.bootstrap})) as cluster:
        (address,) = cluster.brokers()
        for number in range(GROUPS):
            groups.commit(cluster, address, f"group-{number:06}", {TopicPartition(TOPIC, 0): 0})
    with consoled(browser.new_context().new_page(), broker) as shown:
        beside = shown.page.context.new_page()
        beside.goto(f"{shown.address}/groups?page=1000")
        for path in ("groups", "groups?find=9999", "group?group=group-050000", "overview"):
            shown.visit(path)
            shown.page.locator("main table, main .facts, .tile").first.wait_for()
            time.sleep(GROUP_SECONDS / 4)
        beside.locator("main table").wait_for()
        peak = memory_bytes(shown.process_id, "VmHWM")
    return [Figure(f"console RSS with {GROUPS:,} groups, MB (the most it ever had)", peak / MEGABYTE, 80)]


def flat_memory(browser: Browser, broker: ServedBroker, minutes: float) -> list[Figure]:
    """How much more the page and the console hold in the last third of the time than in the first, when all that can
    be collected is collected."""
    samples: list[dict[str, float]] = []
    with consoled(browser.new_context().new_page(), broker) as shown, load(broker.bootstrap, MEMORY_EVENTS_PER_SECOND):
        shown.visit("decisions")
        page = shown.page
        tools = page.context.new_cdp_session(page)
        ends = time.monotonic() + minutes * 60
        while time.monotonic() < ends:
            page.wait_for_timeout(SAMPLE_SECONDS * 1000)
            # A page that goes on makes more meanwhile than a leak would.
            page.evaluate(_PRESS_PAUSE)
            tools.send("HeapProfiler.collectGarbage")
            dom = tools.send("Memory.getDOMCounters")
            samples.append(
                {
                    "heap": tools.send("Runtime.getHeapUsage")["usedSize"],
                    "nodes": dom["nodes"],
                    "listeners": dom["jsEventListeners"],
                    "console": memory_bytes(shown.process_id, "VmRSS"),
                }
            )
            page.evaluate(_PRESS_PAUSE)
            progress(", ".join(f"{name} {value:,.0f}" for name, value in samples[-1].items()))
    figures = []
    names = {
        "heap": "memory of the page's scripts",
        "nodes": "nodes of the page",
        "listeners": "listeners of the page",
        "console": "memory of the console",
    }
    for one, name in names.items():
        first, last = (median(part) for part in thirds([sample[one] for sample in samples]))
        progress(f"{name}: {first:,.0f} in the first third, {last:,.0f} in the last")
        # A number that reaches five digits is shown in parts, each of them a node, in every row.
        most = 20 if one == "nodes" else 5
        figures.append(Figure(f"{name} after {minutes:g} minutes, % more", 100 * (last / first - 1), most))
    return figures


def thirds(values: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """The first and the last third, without the samples at the very beginning."""
    kept = values[len(values) // 10 :]
    length = max(len(kept) // 3, 1)
    return kept[:length], kept[-length:]


# -- the console, its page, and its process ----------------------------------------------------------------------------


class Shown(NamedTuple):
    """A console in a process of its own, and a page of a browser that it has let in."""

    process_id: int
    address: str
    page: Page

    def visit(self, path: str) -> None:
        self.page.goto(f"{self.address}/{path}")
        self.page.get_by_role("heading", level=1).wait_for()


@contextmanager
def consoled(page: Page, broker: ServedBroker, decisions: str | None = None) -> Iterator[Shown]:
    """A console of a broker, with its decisions or those from another address."""
    told_at = decisions or broker.metrics_address
    words = ("--listen=127.0.0.1:0", f"--bootstrap={broker.bootstrap}", f"--decisions={told_at}")
    with serving("console", *words) as console:
        assert console.stdout is not None
        address = console.stdout.readline().rpartition(" ")[2].strip()
        page.set_default_timeout(120_000)
        page.goto(address)
        yield Shown(console.pid, address.partition("/enter")[0], page)
        page.context.close()


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


PARTS: Final[dict[str, Callable[[Browser, ServedBroker], list[Figure]]]] = {
    "first-page": first_page,
    "latency": latency,
    "broker-cpu": broker_cpu,
    "topics": many_topics,
    "groups": many_groups,
}
MEMORY: Final = "memory"


def main() -> int:
    parser = argparse.ArgumentParser(prog="console_cost", description="Measure what a console costs.")
    parser.add_argument("--only", action="append", choices=[*PARTS, MEMORY], help="this part only; may be given again")
    parser.add_argument("--minutes", type=float, default=30, help="how long memory is looked at (default %(default)s)")
    arguments = parser.parse_args()
    parts = {**PARTS, MEMORY: lambda browser, broker: flat_memory(browser, broker, arguments.minutes)}
    wanted = arguments.only or list(parts)
    progress(f"load before: {', '.join(f'{one:.2f}' for one in os.getloadavg())}")
    figures: list[Figure] = []
    # An end in order, so that nothing that was started is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("console_cost: interrupted"))
    try:
        with chromium_browser() as browser:
            for name in wanted:
                # Each part has a broker of its own, in which the other parts have left nothing.
                with tempfile.TemporaryDirectory(prefix="semel-console-cost-") as directory:
                    options = (f"--partitions={PARTITIONS}", f"--limit=groups_max={2 * GROUPS}")
                    with ServedBroker(Path(directory) / "data", *options, metrics=True) as broker:
                        make_topics(broker, [TOPIC], PARTITIONS)
                        for figure in parts[name](browser, broker):
                            print(figure, flush=True)
                            figures.append(figure)
    except NoChromium as missing:
        sys.exit(f"console_cost: {missing}")
    progress(f"load after: {', '.join(f'{one:.2f}' for one in os.getloadavg())}")
    return 0 if all(figure.holds for figure in figures) else 1


def make_topics(broker: ServedBroker, names: Sequence[str], partitions: int) -> None:
    # Its answers come only as long as it lives.
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
        made.result()


if __name__ == "__main__":
    sys.exit(main())
