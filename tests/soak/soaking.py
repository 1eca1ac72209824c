"""A soak from its beginning to its end: a stream, two queries behind it, all that strikes them, and the audits.

The stream flows at its pace whatever happens. What came of it is read past the proxies, from where it ended. This file
must never believe what the driver says of its rows, and must never hold back a fault because of what it might do.
"""

from __future__ import annotations

import contextlib
import time
from array import array
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from semel import audit
from semel.chaos.plan import Fault
from semel.chaos.proxy import ChaosProxy
from semel.settings import Semantics
from semel.ui.demo import DemoFailed
from semel.ui.demo.driver import Driver
from semel.ui.demo.payments import PARTITIONS, payments
from semel.ui.demo.pipeline import amounts_of
from semel.ui.demo.stage import CountedBroker, create_topics
from semel.ui.demo.stream import NEVER, Run, Sender
from soak.pipeline import MODULE, Orders
from soak.plan import NETWORK, QUERIES, Kind, Strike, Where, plan
from soak.watching import Watched

SOURCE: Final = "payments"
ENRICHED: Final = "payments-enriched"
TICK_SECONDS: Final = 0.01
SAMPLE_SECONDS: Final = 2.0
# Whoever is to be struck in its work, and is only about to begin, is struck a little later.
LATER_SECONDS: Final = 1.0
# A driver that gives up is started again, as whoever runs one would; it is counted, and this often is too often.
GIVEN_UP_MAX: Final = 3
# How long it may be before anybody says anything, when there is work to do.
SILENT_SECONDS_MAX: Final = 300.0
# Before each query of a driver has ended so many micro-batches, what its processes take is what they need to work.
WARM_BATCHES: Final = 10
# So many seconds of the stream a micro-batch has at most: after a fault the rest is made up for in large steps.
BATCH_SECONDS: Final = 60

ON_THE_WAY: Final = {Kind.DROP_ACK: Fault.DROP_ACK, Kind.CUT: Fault.CUT, Kind.HANG: Fault.HANG}


@dataclass(slots=True)
class Figures:
    """All that came of it."""

    seed: int
    seconds: float
    watched: Watched
    planned: Counter[Kind] = field(default_factory=Counter)
    struck: Counter[Kind] = field(default_factory=Counter)
    sent: int = 0
    acknowledged: int = 0
    # Batches of the producers that the broker knew again, and requests that it turned away as late.
    absorbed: int = 0
    fenced: int = 0
    given_up: list[str] = field(default_factory=list)
    batches: Counter[str] = field(default_factory=Counter)
    verdicts: list[tuple[str, audit.Verdict]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Seen:
    """What can be seen at one moment."""

    doing: str
    at_seconds: float
    sent: int
    acknowledged: int
    rows: dict[Where, int]
    struck: Counter[Kind]
    held_mb: dict[str, float]


class Soak:
    """One run, in a directory of its own."""

    def __init__(
        self, seed: int, seconds: float, per_second: int, directory: Path, show: Callable[[Seen, str], None]
    ) -> None:
        """`show` is told what is seen, with what has just happened, if anything has."""
        self.figures = Figures(seed, seconds, Watched(directory))
        self._per_second = per_second
        self._directory = directory
        self._showing = show
        self._payments = payments(seed, round(seconds * per_second))
        self._strikes = deque(plan(seed, seconds))
        self.figures.planned.update(strike.kind for strike in self._strikes)
        self._broker = CountedBroker(str(directory / "data"), PARTITIONS)
        self._proxies: dict[Where, ChaosProxy] = {}
        self._orders: Orders
        self._sender: Sender | None = None
        self._driver: Driver | None = None
        # Whether both queries of this life run, and whether it has done everything.
        self._is_started = self._is_done = False
        self._is_draining = False
        # By query and batch: how many rows it had, as the last attempt at it was told.
        self._rows: dict[tuple[str, int], int] = {}
        self._batches_of_this_life: Counter[str] = Counter()
        self._orders_to_kill = 0
        self._armed: Counter[tuple[ChaosProxy, Fault]] = Counter()
        self._begun = self._heard_at = self._sampled_at = time.monotonic()

    def run(self) -> Figures:
        with contextlib.ExitStack() as closing:
            closing.callback(self._broker.kill)
            self._broker.start()
            create_topics(self._broker.bootstrap, [SOURCE, ENRICHED], PARTITIONS)
            for where in NETWORK:
                self._proxies[where] = closing.enter_context(ChaosProxy(self._broker.bootstrap))
            self._orders = Orders(
                bootstrap=self._proxies[Where.PIPELINE].bootstrap,
                source=SOURCE,
                enriched=ENRICHED,
                directory=str(self._directory),
                rows_per_batch=self._per_second * BATCH_SECONDS,
            )
            self._orders.tables.mkdir()
            closing.callback(self._end_driver)
            self._start_driver()
            while not self._is_started:
                self._tick("Spark starts")
            self._flow()
            self._drain()
            self._end_driver()
            self._sum_up()
            self._audit()
        return self.figures

    # -- the stream ----------------------------------------------------------------------------------------------

    def _flow(self) -> None:
        """The payments at their pace, and the faults at their times."""
        run = Run(Semantics.EXACTLY_ONCE, SOURCE, array("d", [NEVER]) * len(self._payments))
        sender = self._sender = Sender(run, self._proxies[Where.PRODUCER])
        begun = time.monotonic()
        while self.figures.sent < len(self._payments):
            now = time.monotonic() - begun
            while self._strikes and self._strikes[0].at_seconds <= now:
                self._strike(self._strikes.popleft())
            due = min(len(self._payments), int(now * self._per_second))
            for payment in self._payments[self.figures.sent : due]:
                sender.send(payment, payment.encoded(), begun)
            self.figures.sent = due
            sender.hear()
            self._tick("soaking")
        sender.settle()

    def _drain(self) -> None:
        """All that is under way gets to its end, and what was let loose may still strike."""
        self._is_draining = True
        self._leave_to_end()
        while not self._is_done:
            self._tick("draining")

    def _tick(self, doing: str) -> None:
        self._hear_the_driver()
        now = time.monotonic()
        if now - self._heard_at > SILENT_SECONDS_MAX:
            raise DemoFailed(f"the pipeline has said nothing for {SILENT_SECONDS_MAX:g} s: {self._complaint()}")
        if now - self._sampled_at >= SAMPLE_SECONDS:
            self._sampled_at = now
            self.figures.watched.look(self._now(), self._broker, self._driver if self._is_warm() else None)
            self._show(doing)
        time.sleep(TICK_SECONDS)

    def _is_warm(self) -> bool:
        """By batches and not by the clock: a busy machine takes minutes to where another one is in seconds."""
        return all(self._batches_of_this_life[query] >= WARM_BATCHES for query in QUERIES)

    # -- the driver ----------------------------------------------------------------------------------------------

    def _start_driver(self) -> None:
        self._is_started = False
        self._batches_of_this_life.clear()
        self._heard_at = time.monotonic()
        self._driver = Driver(MODULE, self._orders.written(), self._directory)
        if self._is_draining:
            self._leave_to_end()

    def _leave_to_end(self) -> None:
        if self._driver is not None:
            self._driver.go_on()

    def _end_driver(self) -> None:
        if self._driver is not None:
            self._driver.kill()
            self._driver = None

    def _complaint(self) -> str:
        return self._driver.complaint() if self._driver is not None else ""

    def _hear_the_driver(self) -> None:
        while self._driver is not None and not self._is_done and self._driver.has_more_to_say():
            told = self._driver.next()
            self._heard_at = time.monotonic()
            if told is None:
                self._start_again_after_giving_up()
            else:
                self._note(told)

    def _note(self, told: dict[str, Any]) -> None:
        match told["event"]:
            case "started":
                self._is_started = True
            case "batch":
                self._rows[told["query"], told["batch"]] = told["rows"]
                self._batches_of_this_life[told["query"]] += 1
            case "heap" if self._is_warm():
                self.figures.watched.note_the_heap(self._now(), told["process_id"], told["bytes"])
            case "done":
                self._is_done = True

    def _start_again_after_giving_up(self) -> None:
        complaint = self._complaint()
        self.figures.given_up.append(complaint)
        self._end_driver()
        if len(self.figures.given_up) > GIVEN_UP_MAX:
            raise DemoFailed(f"the driver gives up again and again: {complaint}")
        self._start_driver()
        self._show("soaking", "the driver gave up, and starts again")

    # -- what is done to it --------------------------------------------------------------------------------------

    def _strike(self, strike: Strike) -> None:
        match strike.kind:
            case Kind.BROKER:
                self._kill_the_broker()
            case Kind.DRIVER:
                self._kill_the_driver(strike)
            case Kind.TASK:
                self._order_a_kill(strike.where)
            case kind:
                self._arm(self._proxies[strike.where], ON_THE_WAY[kind])

    def _arm(self, proxy: ChaosProxy, fault: Fault) -> None:
        # One that nothing has met yet stands for both, or a pipeline that was away is met by all of them at once.
        if self._armed[proxy, fault] == proxy.fired[fault]:
            proxy.arm(fault)
            self._armed[proxy, fault] += 1

    def _kill_the_broker(self) -> None:
        self._broker.note_counts()
        killed = self._broker.process_id
        self._broker.kill()
        self._broker.start()
        self.figures.struck[Kind.BROKER] += 1
        self._show("soaking", f"kill -9 of the broker ({killed}), ready again in {self._broker.ready_seconds:.2f} s")

    def _kill_the_driver(self, strike: Strike) -> None:
        if not self._is_started:
            later = Strike(strike.at_seconds + LATER_SECONDS, strike.kind, strike.where)
            self._strikes = deque(sorted([*self._strikes, later]))
            return
        self._end_driver()
        self._start_driver()
        self.figures.struck[Kind.DRIVER] += 1
        self._show("soaking", "kill -9 of the driver, its Java and its workers; it starts again")

    def _order_a_kill(self, query: Where) -> None:
        order = self._orders.assassin(query)
        # One that nobody has taken up yet stands for both.
        if not order.exists():
            order.touch()
            self._orders_to_kill += 1

    # -- what is seen --------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return time.monotonic() - self._begun

    def _show(self, doing: str, news: str = "") -> None:
        rows = {query: sum(count for (of, _), count in self._rows.items() if of == query) for query in QUERIES}
        acknowledged = self._sender.acknowledged if self._sender is not None else 0
        struck = Counter(self.figures.struck)
        self._count_what_struck(struck)
        seen = Seen(doing, self._now(), self.figures.sent, acknowledged, rows, struck, self.figures.watched.held_mb())
        self._showing(seen, news)

    def _count_what_struck(self, struck: Counter[Kind]) -> None:
        for kind, fault in ON_THE_WAY.items():
            struck[kind] = sum(proxy.fired[fault] for proxy in self._proxies.values())
        # An order that is still there was not carried out.
        waiting = sum(self._orders.assassin(query).exists() for query in QUERIES)
        struck[Kind.TASK] = self._orders_to_kill - waiting

    # -- what came of it -----------------------------------------------------------------------------------------

    def _sum_up(self) -> None:
        figures = self.figures
        figures.watched.measure_disk(self._now())
        self._count_what_struck(figures.struck)
        figures.acknowledged = self._sender.acknowledged if self._sender is not None else 0
        figures.absorbed = self._broker.duplicates()
        figures.fenced = self._broker.fenced()
        figures.batches.update(query for query, _ in self._rows)

    def _audit(self) -> None:
        """Every place against what was sent: ids and amounts."""
        self._show("auditing")
        owed: Counter[str] = Counter()
        for payment in self._payments:
            owed[payment.account] += payment.cents
        sent = amounts_of("payment", {payment.id: payment.cents for payment in self._payments})
        in_values = "id=value.$.payment&amount=value.$.cents"
        in_columns = "id=payment&amount=cents"
        places = (
            ("topic, from the producer", sent, f"semel://{self._broker.bootstrap}/{SOURCE}?{in_values}"),
            ("topic, from the first query", sent, f"semel://{self._broker.bootstrap}/{ENRICHED}?{in_values}"),
            ("SQLite, upserted", sent, f"sqlite:{self._orders.database}/payments?{in_columns}"),
            ("SQLite, merged balances", amounts_of("account", owed), self._balances()),
            ("Delta, appended", sent, f"delta:{self._orders.delta}?{in_columns}"),
        )
        for name, source, address in places:
            self.figures.verdicts.append((name, audit.audit(source, address)))

    def _balances(self) -> str:
        return f"sqlite:{self._orders.database}/balances?id=account&amount=cents"
