"""Runs what the README and the guides show, against a real broker: what a reader copies has to work as it stands.

Each block is taken from the text. What a line prints stands behind it as a comment, and has to be what it prints.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer

import semel

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
TEST_YOUR_CODE = (ROOT / "docs/how-to/test-your-code.md").read_text()
EXACTLY_ONCE = (ROOT / "docs/how-to/exactly-once.md").read_text()
AUDIT = (ROOT / "docs/how-to/audit.md").read_text()
SETTINGS = (ROOT / "docs/how-to/settings.md").read_text()
HTTP = (ROOT / "docs/how-to/http.md").read_text()
OUTBOX = (ROOT / "docs/how-to/outbox.md").read_text()
INBOX = (ROOT / "docs/how-to/inbox.md").read_text()
ADDRESS = "127.0.0.1:9092"
pytest_plugins = ["pytester"]

# What the reader's own code would be in the example of the fixture: it has to be idempotent for the test to pass.
BOOK = """
from confluent_kafka import Producer

def book(bootstrap, order):
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "request.timeout.ms": 1000})
    producer.produce("bookings", order)
    assert producer.flush(20) == 0

"""


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def python_block(word: str) -> str:
    [found] = [block for block in blocks("python") if word in block]
    return found


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with semel.broker() as broker:
        yield broker.bootstrap


@pytest.mark.parametrize("client", ['"enable.idempotence": True', "from aiokafka", "from kafka"])
def test_the_example_of_each_client_prints_what_it_says(client: str, bootstrap: str) -> None:
    block = python_block(client)
    assert ADDRESS in block
    promised = re.findall(r"print\(.*\)  # (.*)", block)
    ran = subprocess.run(
        [sys.executable, "-c", block.replace(ADDRESS, bootstrap)], capture_output=True, text=True, timeout=60
    )
    assert (ran.stdout.splitlines(), ran.returncode) == (promised, 0), ran.stderr
    # librdkafka may say that it tries again, on a machine that is busy; the others have nothing to say.
    assert ran.stderr == "" or "confluent_kafka" in block


def test_the_example_of_the_inbox_prints_what_it_says(tmp_path: Path) -> None:
    block = python_block("inbox.once")
    ran = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (ran.stdout.splitlines(), ran.stderr) == (re.findall(r"print\(.*\)  # (.*)", block), "")


def next_record(reader: Consumer) -> Message:
    """A consumer also hands out errors, such as that the topic is not there yet."""
    while True:
        message = reader.poll(60)
        assert message is not None
        if message.error() is None:
            return message


def test_the_loop_turns_each_order_into_one_invoice_whichever_run_of_it_is_killed(bootstrap: str) -> None:
    block = python_block('"transactional.id"').replace(ADDRESS, bootstrap)
    producer = Producer({"bootstrap.servers": bootstrap})
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "allow.auto.create.topics": True,
        }
    )
    reader.subscribe(["invoices"])
    for order in (b"3 apples", b"3 pears"):
        producer.produce("orders", order)
        assert producer.flush(10) == 0
        worker = subprocess.Popen([sys.executable, "-c", block])
        try:
            invoice = next_record(reader)
        finally:
            worker.kill()
            worker.wait()
        assert invoice.value() == b"invoice for " + order
    reader.close()


SESSIONS = {
    f"{path.name}-{number}": session
    for path in (ROOT / "README.md", *sorted((ROOT / "docs/explanation").glob("*.md")))
    for number, session in enumerate(blocks("console", path.read_text()), start=1)
}


@pytest.mark.parametrize("session", SESSIONS.values(), ids=SESSIONS)
def test_the_lab_answers_what_is_shown(session: str) -> None:
    command, *lines = session.splitlines()
    assert command == "$ semel lab"
    asked, answered = lines[::2], lines[1::2]
    ran = subprocess.run(
        [Path(sys.executable).with_name("semel"), "lab"],
        input="\n".join(asked) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.stdout.splitlines(), ran.returncode) == (answered, 0), ran.stderr


def test_the_commands_print_what_is_shown() -> None:
    [shown] = blocks("text")
    semel_command = shlex.quote(str(Path(sys.executable).with_name("semel")))
    printed = ""
    with semel.broker() as broker:
        for command in re.findall(r"^\$ (.*)$", shown, re.MULTILINE):
            line = f"{command} --bootstrap {broker.bootstrap}".replace("semel", semel_command, 1)
            ran = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=60)
            printed += f"$ {command}\n{ran.stdout}{ran.stderr}"
    time = r"\d{4}-\d\d-\d\dT[\d:.]+Z"
    assert re.sub(time, "TIME", printed) == re.sub(time, "TIME", shown)


def test_the_fixture_does_what_is_shown(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(BOOK + python_block("semel_broker"))
    pytester.runpytest_subprocess("-p", "no:faker").assert_outcomes(passed=1)


def test_a_program_embeds_the_broker_as_shown() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", python_block("import semel")], capture_output=True, text=True, timeout=60
    )
    assert re.fullmatch(r"127\.0\.0\.1:\d+\n", ran.stdout), ran.stderr


GUIDES = {
    "test-your-code": TEST_YOUR_CODE,
    "exactly-once": EXACTLY_ONCE,
    "settings": SETTINGS,
    "audit": AUDIT,
    "http": HTTP,
    "outbox": OUTBOX,
    "inbox": INBOX,
}


@pytest.mark.parametrize("guide", GUIDES.values(), ids=GUIDES)
def test_the_guide_shows_tests_that_pass(guide: str, pytester: pytest.Pytester) -> None:
    """A block whose first line names a file is that file; every other one is a file of tests."""
    shown = 0
    for number, block in enumerate(blocks("python", guide)):
        name = re.match(r"# (\w+)\.py$", block, re.MULTILINE)
        pytester.makepyfile(**{name[1] if name else f"test_{number}": block})
        shown += block.count("def test_")
    assert shown
    pytester.runpytest_subprocess("-p", "no:faker").assert_outcomes(passed=shown)
