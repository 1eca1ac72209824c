"""What the guide to operating shows of groups and transactions is what the commands print, but for times and ids."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

import semel

GUIDE = (Path(__file__).parent.parent.parent / "docs/how-to/operate.md").read_text()
SHOWN = re.findall(r"^```text\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


def without_chance(printed: str) -> str:
    """But for times, how long something has been open, and what makes the id of a member its own."""
    printed = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z, for \d+ s", "TIME", printed)
    return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UUID", printed)


def printed(session: str, bootstrap: str) -> str:
    """The commands of a session, each with what it prints, and an empty line between them."""
    semel_command = shlex.quote(str(Path(sys.executable).with_name("semel")))
    parts = []
    for command in re.findall(r"^\$ (.*)$", session, re.MULTILINE):
        line = f"{command} --bootstrap {bootstrap}".replace("semel", semel_command, 1)
        result = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=60)
        parts.append(f"$ {command}\n{result.stdout}{result.stderr}")
    return "\n".join(parts)


def test_the_guide_shows_a_group_and_a_transaction_as_they_are() -> None:
    of_groups, of_transactions = (shown for shown in SHOWN if re.match(r"\$ semel (groups|transactions) ", shown))
    with semel.broker() as broker:
        orders = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(11):
            orders.produce("orders", b"order %d" % number)
        assert orders.flush(30) == 0
        billing = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "billing",
                "group.instance.id": "billing-1",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        billing.subscribe(["orders"])
        assert len(billing.consume(1, timeout=30)) == 1
        billing.commit(offsets=[TopicPartition("orders", 0, 10)], asynchronous=False)
        assert without_chance(printed(of_groups, broker.bootstrap)) == without_chance(of_groups)

        invoices = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "billing-1"})
        invoices.init_transactions(30)
        invoices.begin_transaction()
        invoices.produce("invoices", b"an invoice")
        assert invoices.flush(30) == 0
        assert without_chance(printed(of_transactions, broker.bootstrap)) == without_chance(of_transactions)
        billing.close()
