"""The second half of the demo: from the log to the last row on Spark, with faults on the way.

The driver stops before each micro-batch and waits for permission. This file decides which fault strikes: it kills a
task, the broker and the driver, each in the middle of a batch, and the last batch is replayed. In the end every sink is
audited against the payments that were sent, by ids and by amounts. This file must never believe what the driver says
about its sinks.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from semel import audit
from semel.chaos.plan import Fault
from semel.chaos.proxy import ChaosProxy
from semel.chaos.undisturbed import undisturbed
from semel.settings import Semantics
from semel.ui.cli.display import counted
from semel.ui.demo import DemoFailed
from semel.ui.demo.database import BALANCES, PAYMENTS, Database
from semel.ui.demo.driver import Driver
from semel.ui.demo.figures import NOT_COUNTED, Happening, Pipeline, Row
from semel.ui.demo.payments import PARTITIONS, Payment
from semel.ui.demo.pipeline_driver import BALANCES_SINK, MODULE, PAYMENTS_SINK, TOPIC_SINK, Orders
from semel.ui.demo.screen import Screen, bar
from semel.ui.demo.stage import CountedBroker, Page, create_topics
from semel.ui.demo.stream import Stream, topic_of

ENRICHED: Final = "payments-enriched"
PARQUET: Final = "Parquet files"
# The number of micro-batches; faults strike three of them, and one is replayed.
BATCHES: Final = 6
FIRST_STRUCK: Final = 1
LAST_STRUCK: Final = BATCHES - 2
# One is killed, and some may give up by themselves, for example if the broker was away for too long.
LIVES_MAX: Final = 5


def carry(page: Page, broker: CountedBroker, stream: Stream, directory: Path, place: Database) -> Pipeline:
    """Process all payments to the last row, and audit the sinks."""
    page.part("The pipeline on Spark: from the log to the last row")
    source = next(run for run in stream.runs if run.semantics is Semantics.AT_LEAST_ONCE)
    page.say(
        f"It reads what the at-least-once client wrote, {source.stored:,} records with {source.doubled:,} doubles,"
    )
    page.say("and deduplicates it by the tills' own numbers. Each payment goes to a topic of enriched payments, to")
    page.say(f"{place.name} and to Parquet, once.")
    create_topics(broker.bootstrap, [ENRICHED], PARTITIONS)
    # A proxy that forwards everything, except the ACKs that are lost on purpose.
    with ChaosProxy(broker.bootstrap) as proxy:
        orders = Orders(
            bootstrap=proxy.bootstrap,
            source=topic_of(Semantics.AT_LEAST_ONCE),
            enriched=ENRICHED,
            database=place.url,
            directory=str(directory),
            rows_per_batch=-(-source.stored // BATCHES),
        )
        work = _Work(page, broker, proxy, orders, source.stored)
        work.run()
    page.say("Waiting for the audit, which holds every sink against what was sent ...", faint=True)
    try:
        audits = _audit(broker.bootstrap, orders, place, stream.payments, work)
    except audit.AuditFailed as failure:
        raise DemoFailed(f"there is no verdict: {failure}") from failure
    work.pipeline.rows = [work.dedup_row(stream.payments), *audits]
    return work.pipeline


class _Work:
    """The runs of the driver, and the faults that strike them."""

    def __init__(self, page: Page, broker: CountedBroker, proxy: ChaosProxy, orders: Orders, rows: int) -> None:
        self.pipeline = Pipeline()
        # By sink: how many batches it refused because it had them already.
        self.absorbed: Counter[str] = Counter()
        self._screen = Screen(page.is_terminal)
        self._broker = broker
        self._proxy = proxy
        self._orders = orders
        self._rows = rows
        self._begun = time.monotonic()
        self._fenced_before = broker.fenced()
        # By batch: how many of its rows had which outcome, as its last attempt reported.
        self._judged: dict[int, dict[str, int]] = {}
        # In their order, one in each batch from the second on.
        self._deeds: list[Callable[[Driver, int], bool]] = [
            self._kill_a_task,
            self._kill_the_broker,
            self._kill_the_driver,
        ]

    @property
    def fenced(self) -> int:
        return self._broker.fenced() - self._fenced_before

    def absorbed_by(self, sink: str) -> str:
        return counted(self.absorbed[sink], "batch", "batches")

    def outcome(self, name: str) -> int:
        return sum(outcomes.get(name, 0) for outcomes in self._judged.values())

    def dedup_row(self, payments: Sequence[Payment]) -> Row:
        """What the deduplication accepted of the rows that it read. The sinks show whether that was right."""
        accepted, duplicates = self.outcome("accepted"), self.outcome("duplicate")
        return Row(
            name="deduplicated",
            sent=len(payments),
            stored=accepted,
            lost=max(len(payments) - accepted, 0),
            doubled=max(accepted - len(payments), 0),
            verdict="one of each",
            held=accepted == len(payments) and accepted + duplicates == self._rows,
            absorbed=counted(duplicates, "row", "rows"),
        )

    def run(self) -> None:
        self._note("life", "the driver starts; it waits for Java and Spark, 10 to 30 s")
        for _ in range(LIVES_MAX):
            driver = None
            deeds = len(self._deeds)
            try:
                with undisturbed():
                    driver = Driver(MODULE, self._orders.written(), Path(self._orders.directory))
                if self._live(driver):
                    break
                complaint = driver.complaint()
            finally:
                if driver is not None:
                    driver.kill()
            was_killed = len(self._deeds) < deeds and not self._deeds
            how = "the driver starts again" if was_killed else "the driver gave up, and starts again"
            self._note("life", f"{how}; it waits again for Java and Spark")
        else:
            raise DemoFailed(f"the pipeline does not get to its end: {complaint}")
        self.pipeline.seconds = self._passed()
        self._screen.leave()
        if self._deeds:
            raise DemoFailed("there were too few micro-batches to strike: send more payments")

    def _live(self, driver: Driver) -> bool:
        """Follow the driver until it has ended; returns whether it has processed everything."""
        while (event := driver.next()) is not None:
            match event["event"]:
                case "batch":
                    if not self._strike(driver, event["batch"]):
                        return False
                case "judged":
                    self._judged[event["batch"]] = event["outcomes"]
                case "sink":
                    self._hear_of_a_sink(event)
                case "replay":
                    batch = event["batch"]
                    told_of = f"the end of batch {batch} is taken out of Spark's checkpoint: it is replayed"
                    self._note("replay", told_of, "batch replayed")
                case "files":
                    self._grow(PARQUET, self.outcome("accepted"))
                case "done":
                    self._note("life", "everything is processed")
                    return True
            self._draw()
        return False

    def _hear_of_a_sink(self, event: dict[str, Any]) -> None:
        sink, batch = event["sink"], event["batch"]
        if event["outcome"] == "duplicate":
            self.absorbed[sink] += 1
            self._note("life", f"{sink}: batch {batch} is there already, nothing is written")
        else:
            self._grow(sink, self._judged[batch].get("accepted", 0))

    def _grow(self, sink: str, rows: int) -> None:
        points = self.pipeline.growth.setdefault(sink, [])
        points.append((self._passed(), (points[-1][1] if points else 0) + rows))

    # -- faults: each method returns whether the driver still runs ------------------------------------------------

    def _strike(self, driver: Driver, batch: int) -> bool:
        if batch < FIRST_STRUCK or not self._deeds:
            driver.go_on()
            return True
        return self._deeds[0](driver, batch)

    def _kill_a_task(self, driver: Driver, batch: int) -> bool:
        del self._deeds[0]
        self._orders.assassin.touch()
        self._note("kill", f"kill -9 of a task in the middle of its rows, in batch {batch}", "task killed")
        driver.go_on()
        return True

    def _kill_the_broker(self, driver: Driver, batch: int) -> bool:
        del self._deeds[0]
        self._until_a_transaction_is_open(driver)
        killed = self._broker.process_id
        self._broker.note_counts()
        self._broker.kill()
        driver.resume()
        self._broker.start()
        ready = f"ready again in {self._broker.ready_seconds:.2f} s"
        self._note("kill", f"kill -9 of the broker ({killed}) in the middle of batch {batch}, {ready}", "broker killed")
        return True

    def _kill_the_driver(self, driver: Driver, batch: int) -> bool:
        """Kill it with a transaction open, which its successor has to fence; in this batch, or otherwise in the next
        one.
        """
        is_open = self._until_a_transaction_is_open(driver)
        if not is_open and batch < LAST_STRUCK:
            return True
        del self._deeds[0]
        driver.kill()
        how = "with a transaction open" if is_open else "between two of its sinks"
        self._note("kill", f"kill -9 of the driver, its Java and its workers, in batch {batch}, {how}", "driver killed")
        return False

    def _until_a_transaction_is_open(self, driver: Driver) -> bool:
        """Let the driver go on until a transaction is open, then stop it with all its processes, so that it may be
        killed. False if the moment was missed, and the first sink has the batch.
        """
        # A client that waits for a lost ACK sends its records again before it commits.
        self._proxy.arm(Fault.DROP_ACK)
        driver.go_on()
        judged = driver.next()
        if judged is not None and judged["event"] == "judged":
            self._judged[judged["batch"]] = judged["outcomes"]
        while not driver.has_more_to_say():
            if self._broker.open_transactions():
                driver.pause()
                # A request that was sent before may have ended it.
                if self._broker.open_transactions():
                    return True
                driver.resume()
        return False

    # -- what is shown --------------------------------------------------------------------------------------------

    def _passed(self) -> float:
        return time.monotonic() - self._begun

    def _note(self, kind: str, text: str, label: str = "") -> None:
        self.pipeline.happenings.append(Happening(self._passed(), kind, text, label))
        self._screen.say(f"   {self._passed():5.1f} s  {text}")
        self._draw()

    def _draw(self) -> None:
        judged = sum(sum(outcomes.values()) for outcomes in self._judged.values())
        shown = [("read and judged", judged)]
        shown += [(sink, points[-1][1]) for sink, points in self.pipeline.growth.items()]
        self._screen.draw([f"   {name:18} {bar(count / self._rows)} {count:>8,} rows" for name, count in shown])


@dataclass(frozen=True, slots=True)
class _Audited:
    """A sink: the source to compare it with, its place, and the notes about it."""

    name: str
    source: audit.Given
    address: str
    absorbed: str = NOT_COUNTED
    fenced: str = NOT_COUNTED


def _audit(bootstrap: str, orders: Orders, place: Database, payments: Sequence[Payment], work: _Work) -> list[Row]:
    """Audit every sink against the payments that were sent, by ids and amounts."""
    balances: Counter[str] = Counter()
    for payment in payments:
        balances[payment.account] += payment.cents
    sent = amounts_of("payment", {payment.id: payment.cents for payment in payments})
    owed = amounts_of("account", balances)
    topic = f"semel://{bootstrap}/{orders.enriched}?id=value.$.payment&amount=value.$.cents"
    options = "id=payment&amount=cents"
    sinks = [
        _Audited(f"topic {ENRICHED}", sent, topic, work.absorbed_by(TOPIC_SINK), counted(work.fenced, "time", "times")),
        _Audited(f"payments in {place.name}", sent, place.audited(PAYMENTS, options), work.absorbed_by(PAYMENTS_SINK)),
        _Audited(
            f"balances in {place.name}",
            owed,
            place.audited(BALANCES, "id=account&amount=cents"),
            work.absorbed_by(BALANCES_SINK),
        ),
        _Audited(PARQUET, sent, f"parquet:{orders.parquet}?{options}"),
    ]
    return [_row(sink, audit.audit(sink.source, sink.address)) for sink in sinks]


def amounts_of(name: str, amounts: Mapping[str, int]) -> audit.Given:
    import pyarrow as pa

    rows = pa.table({name: list(amounts), "cents": list(amounts.values())})
    return audit.Given(rows, id=name, amount="cents")


def _row(sink: _Audited, verdict: audit.Verdict) -> Row:
    [one] = verdict.sinks
    wrong = {"foreign": one.foreign.rows, "altered": one.altered.rows}
    more = ", ".join(f"{count:,} {kind}" for kind, count in wrong.items() if count)
    return Row(
        name=sink.name,
        sent=verdict.source.rows,
        stored=one.sink.rows,
        lost=one.lost.rows,
        doubled=one.doubled.rows,
        verdict=f"audit clean{', with ' if more else ''}{more}",
        held=verdict.is_clean,
        absorbed=sink.absorbed,
        fenced=sink.fenced,
    )
