"""A person's walk through the pages, while the network between the cluster and everybody fails: what each page says is
what the wire says, number by number. With SEMEL_TEST_BOOTSTRAP the same on Apache Kafka.

The wire is asked by librdkafka, over a connection of its own without faults. It needs Playwright and a Chromium.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from committed_records import commit_offsets, make_topic
from eventually import SECONDS_MAX, eventually
from semel.chaos.plan import Fault, FaultPlan
from semel.chaos.proxy import ChaosProxy
from semel_command import serving

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

PARTITIONS: Final = 3
# What happens to every hundredth message or so, in both directions.
ODDS: Final = {Fault.DROP_ACK: 0.05, Fault.CUT: 0.01, Fault.RESET: 0.01, Fault.TRUNCATE: 0.01, Fault.DRIBBLE: 0.02}


@pytest.fixture
def network(bootstrap: str) -> Iterator[ChaosProxy]:
    with ChaosProxy(bootstrap, FaultPlan(ODDS, seed=7)) as network:
        yield network


@pytest.fixture
def page(chromium: Browser, network: ChaosProxy) -> Iterator[Page]:
    """A page of a console that reaches the cluster through the faulty network; errors of its scripts fail the test."""
    errors: list[str] = []
    with serving("console", "--listen=127.0.0.1:0", f"--bootstrap={network.bootstrap}", "--allow-changes") as console:
        assert console.stdout is not None
        page = chromium.new_context().new_page()
        page.set_default_timeout(SECONDS_MAX * 1000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(console.stdout.readline().removeprefix("semel console on ").strip())
        page.get_by_role("heading", name="Overview").wait_for()
        yield page
        page.context.close()
    assert errors == []


def rows(page: Page, caption: str) -> list[list[str]]:
    """The cells of a table, each as a person reads it."""
    table = page.get_by_role("table").filter(has_text=caption).first
    found: list[list[str]] = table.evaluate(
        "table => [...table.tBodies[0].rows].map(row => [...row.cells].map(cell => cell.innerText.trim()))"
    )
    return found


def visit(page: Page, path: str) -> None:
    page.goto("/".join(page.url.split("/")[:3]) + path)
    page.get_by_role("heading", level=1).wait_for()


def is_previewed(page: Page) -> bool:
    with page.expect_response(lambda answer: "/plan/reset" in answer.url) as previewed:
        page.get_by_role("button", name="Show what it would do").click()
    return previewed.value.ok


def ends(bootstrap: str, topic: str, isolation: IsolationLevel) -> list[int]:
    places = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(PARTITIONS)}
    # Its answers come only as long as it lives.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    answers = admin.list_offsets(places, isolation_level=isolation)
    return [answers[one].result(60).offset for one in sorted(places, key=lambda one: one.partition)]


def sent_under_faults(bootstrap: str, network: ChaosProxy, topic: str) -> Producer:
    """Batches of an idempotent producer, a transaction that was aborted, one that is committed, and one that is open;
    answers the producer of the last one."""
    settings = {"bootstrap.servers": network.bootstrap, "log_level": 0, "retry.backoff.ms": 10}
    idempotent = Producer({**settings, "enable.idempotence": True, "linger.ms": 0, "reconnect.backoff.ms": 1})
    for number in range(60):
        idempotent.produce(topic, f"kept-{number}", key=f"k{number}", partition=number % PARTITIONS)
        if number % 10 == 0:
            assert idempotent.flush(120) == 0
    assert idempotent.flush(120) == 0
    direct = {"bootstrap.servers": bootstrap, "log_level": 0}
    ended = Producer({**direct, "transactional.id": f"ended-{topic}"})
    ended.init_transactions(60)
    for value, is_committed in (("void", False), ("whole", True)):
        ended.begin_transaction()
        ended.produce(topic, value, partition=0)
        assert ended.flush(60) == 0
        ended.commit_transaction(60) if is_committed else ended.abort_transaction(60)
    stuck = Producer({**direct, "transactional.id": f"stuck-{topic}", "transaction.timeout.ms": 600_000})
    stuck.init_transactions(60)
    stuck.begin_transaction()
    stuck.produce(topic, "open", partition=0)
    assert stuck.flush(60) == 0
    assert idempotent.flush(60) == 0
    idempotent.produce(topic, "waits", partition=0)
    assert idempotent.flush(120) == 0
    return stuck


def test_each_page_says_what_the_wire_says_while_the_network_fails(
    page: Page, bootstrap: str, network: ChaosProxy
) -> None:
    topic = f"walk-{uuid.uuid4()}"
    make_topic(bootstrap, topic, PARTITIONS)
    stuck = sent_under_faults(bootstrap, network, topic)
    end = ends(bootstrap, topic, IsolationLevel.READ_UNCOMMITTED)
    stable = ends(bootstrap, topic, IsolationLevel.READ_COMMITTED)
    assert sum(end) == 61 + 2 + 2 + 1, "each record once, and a marker for each end of a transaction"
    assert (end[0] - stable[0], end[1:]) == (2, stable[1:])

    # The list, the topic, its partitions.
    visit(page, f"/topics?find={topic}")
    assert eventually(lambda: [row[:3] for row in rows(page, "1 topic")] == [[topic, str(PARTITIONS), str(sum(end))]])
    page.get_by_role("link", name=topic).click()
    wanted = [[str(n), "0", str(stable[n]), str(end[n]), str(end[n] - stable[n])] for n in range(PARTITIONS)]
    assert eventually(lambda: [row[:5] for row in rows(page, "choose one to see its records")] == wanted)

    # The records: aborted ones struck out, with the marker; those behind an open transaction marked.
    visit(page, f"/records?topic={topic}&partition=0&from=20")
    page.get_by_text("waits").wait_for()
    shown = {row[4].splitlines()[0]: row[2] for row in rows(page, "Records of partition 0")}
    assert "aborted by the marker at offset 21" in " ".join(shown["void"].split())
    struck = page.get_by_text("void", exact=True).evaluate("one => getComputedStyle(one).textDecorationLine")
    assert "line-through" in struck
    assert [word for word, how in shown.items() if "held back" in how] == ["open", "waits"]
    visit(page, f"/records?topic={topic}&partition=0&from=earliest&find=k57&in=key")
    assert eventually(lambda: [row[3] for row in rows(page, "Records of partition 0")] == ["k57"])

    # A group, and what it lags behind.
    group = f"reads-{topic}"
    commit_offsets(bootstrap, group, *(TopicPartition(topic, n, n + 1) for n in range(PARTITIONS)))
    # In records: without the aborted one, and the two markers.
    lag = [str(stable[n] - n - 1 - (3 if n == 0 else 0)) for n in range(PARTITIONS)]
    visit(page, f"/group?group={group}")
    assert eventually(lambda: [row[4] for row in rows(page, "How far the group is")] == lag)
    page.get_by_label("To earliest, latest, an offset, or a time").fill("2")
    assert eventually(lambda: is_previewed(page)), "a person presses again when the page says that the network failed"
    page.get_by_role("dialog").get_by_text("stays").first.wait_for()
    assert [row[1:3] for row in rows(page, "What it would do")] == [["1", "2"], ["2", "2"], ["3", "2"]]
    page.get_by_role("button", name="Leave it as it is").click()

    # The producers, and the next number that each may send.
    visit(page, f"/producers?topic={topic}")
    partition_2 = eventually(lambda: [row for row in rows(page, "by partition") if row[2] == "2"])
    assert [row[5] for row in partition_2] == ["20"]
    page.get_by_text("The windows are told by a broker of semel alone").wait_for()

    # The open transaction: found, and ended from the page; the reader goes on.
    visit(page, f"/transactions?find=stuck-{topic}")
    page.get_by_text("Readers of committed records wait for it in 1 partition.").wait_for()
    (place,) = rows(page, "Partitions of stuck-")
    assert place[:5] == [f"{topic}-0", str(stable[0]), str(stable[0]), str(end[0]), "2 offsets"]
    network.plan.calm()
    page.get_by_role("button", name="Abort ...").click()
    page.get_by_role("button", name="Abort it").click()
    page.get_by_text("No transaction is open").wait_for()
    goes_on = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{group}-2", "isolation.level": "read_committed"})
    goes_on.assign([TopicPartition(topic, 0, stable[0])])
    message = goes_on.poll(SECONDS_MAX)
    assert message is not None
    assert message.value() == b"waits"
    goes_on.close()
    del stuck


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/decisions", "Apache Kafka tells them to nobody"),
        ("/standbys", "Apache Kafka has none of this"),
        ("/claims", "The console was given no database"),
        ("/audits", "The console was given no audits"),
        ("/chaos", "Faults are made only for a broker"),
        ("/pipelines", "No Spark query of semel"),
    ],
)
def test_a_page_that_has_nothing_to_show_says_what_it_takes(page: Page, path: str, said: str) -> None:
    visit(page, path)
    if path == "/pipelines" and page.get_by_role("article").count():
        pytest.skip("this cluster has sinks of other tests")
    page.get_by_text(said).first.wait_for()
