"""What runs beside an application: it says what it talks to, answers probes truly, finishes what it holds when it is
told to end, and another copy goes on when it is killed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from committed_records import committed_values, make_topic
from eventually import eventually
from semel import outbox, schema
from semel.database import engine_of
from semel.service.options import options_of
from semel.steps import Workflow, start
from semel.ui.cli import main
from semel_command import started

# The handler and the workflow say that they have begun, and wait until a test lets them go on.
SHOP = """
from sqlalchemy import text
from sqlalchemy.orm import sessionmaker
from semel.steps import workflow

sessions = sessionmaker(info={"made_by": "the shop"})

def held():
    with open("begun", "w") as begun:
        begun.write("x")
    open("go").read()

def book(connection, message):
    connection.execute(text("INSERT INTO booked (what) VALUES (:what)"), {"what": message.value.decode()})
    held()

def book_in_session(session, message):
    made_by = session.info["made_by"]
    session.execute(text("INSERT INTO booked (what) VALUES (:what)"), {"what": f"by a session of {made_by}"})

@workflow(name="ship")
def ship(run, what):
    with run.step("book") as step:
        if step.first:
            step.connection().execute(text("INSERT INTO booked (what) VALUES (:what)"), {"what": what})
            held()
"""
SHIP = Workflow(lambda run, what: None, "ship", 1)


@pytest.fixture
def place(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/app.db"


@pytest.fixture
def engine(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(SHOP)
    for name in ("begun", "go"):
        os.mkfifo(name)
    made = engine_of(place)
    schema.make(made)
    with made.begin() as connection:
        connection.execute(text("CREATE TABLE booked (what TEXT)"))
    yield made
    made.dispose()


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"services-{uuid.uuid4().hex[:12]}"
    make_topic(bootstrap, name)
    return name


def booked(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return list(connection.scalars(text("SELECT what FROM booked")))


class Running:
    """A service in a process of its own, with its log in JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stderr is not None
        self.first = json.loads(process.stderr.readline())
        self.port = int(str(self.first["message"]).rpartition(":")[2])

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    def becomes(self, status: int, body: str) -> bool:
        return eventually(lambda: self.get("/ready")[0] == status and re.match(body, self.get("/ready")[1]) is not None)

    def ends(self) -> tuple[int, list[dict[str, object]]]:
        _, told = self.process.communicate(timeout=120)
        return self.process.returncode, [json.loads(line) for line in told.splitlines()]


@contextlib.contextmanager
def running(*words: str) -> Iterator[Running]:
    process = started(*words, "--metrics", "127.0.0.1:0", "--log-format", "json")
    try:
        yield Running(process)
    finally:
        process.kill()
        process.communicate()


def consuming(place: str, bootstrap: str, topic: str, handler: str = "shop:book") -> tuple[str, ...]:
    where = ("--database", place, "--bootstrap", bootstrap)
    return ("inbox", "run", handler, "--consumer", "billing", "--topic", topic, *where)


def published(engine: Engine, bootstrap: str, topic: str, value: str) -> None:
    with engine.begin() as connection:
        outbox.add(connection, topic, value=value, headers={"id": f"id of {value}"})
    outbox.Relay(engine, bootstrap).drain()


@pytest.mark.parametrize("kind", ["outbox", "inbox", "steps", "reaper"])
def test_each_says_what_it_talks_to_and_is_ready_and_ends_in_order(
    engine: Engine, place: str, bootstrap: str, topic: str, kind: str
) -> None:
    words = {
        "outbox": ("outbox", "run", "--database", place, "--bootstrap", bootstrap),
        "inbox": consuming(place, bootstrap, topic),
        "steps": ("steps", "run", "shop", "--database", place),
        "reaper": ("http", "reap", "--every", "3600", "--database", place),
    }[kind]
    with running(*words) as service:
        assert service.first["logger"] == f"semel.{kind}"
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(service.first["at"]))
        assert f"; database {place}; metrics on 127.0.0.1:" in str(service.first["message"])
        assert service.becomes(200, "active\n")
        assert service.get("/live") == (200, "live\n")
        shown = service.get("/metrics")[1]
        assert f'semel_service_ready{{service="{kind}"}} 1.0' in shown
        assert "semel_outbox_waiting 0.0" in shown
        service.process.terminate()
        assert service.ends()[0] == 0


def test_a_consumer_finishes_the_event_that_it_holds(engine: Engine, place: str, bootstrap: str, topic: str) -> None:
    published(engine, bootstrap, topic, "first")
    with running(*consuming(place, bootstrap, topic), "--behind", "0") as service:
        assert Path("begun").read_text() == "x"
        assert service.becomes(503, r"behind: the present record is \d+ s old\n")
        service.process.terminate()
        Path("go").write_text("on")
        assert service.ends()[0] == 0
    assert booked(engine) == ["first"]


def test_a_consumer_hands_its_handler_a_session_of_the_application(
    engine: Engine, place: str, bootstrap: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    published(engine, bootstrap, topic, "first")
    words = consuming(place, bootstrap, topic, "shop:book_in_session")
    with running(*words, "--sessions", "shop:sessions"):
        assert eventually(lambda: booked(engine) == ["by a session of the shop"])
    with pytest.raises(SystemExit):
        main([*words, "--sessions", "shop"])
    assert "--sessions shop: that is no sessionmaker; name one as MODULE:NAME" in capsys.readouterr().err


def test_a_worker_finishes_the_workflow_that_it_runs(engine: Engine, place: str) -> None:
    with engine.begin() as connection:
        start(connection, SHIP, "a pen", id="order-7")
    with running("steps", "run", "shop", "--database", place) as service:
        assert Path("begun").read_text() == "x"
        service.process.terminate()
        Path("go").write_text("on")
        assert service.ends()[0] == 0
    assert booked(engine) == ["a pen"]


def test_what_does_not_finish_in_its_grace_time_is_rolled_back_and_done_by_the_next_one(
    engine: Engine, place: str, bootstrap: str, topic: str
) -> None:
    published(engine, bootstrap, topic, "first")
    with running(*consuming(place, bootstrap, topic), "--grace", "0") as service:
        assert Path("begun").read_text() == "x"
        service.process.terminate()
        code, told = service.ends()
    assert code == 1
    assert "did not finish within 0 s" in str(told[-1]["message"])
    assert booked(engine) == []
    with running(*consuming(place, bootstrap, topic)) as service:
        assert Path("begun").read_text() == "x"
        Path("go").write_text("on")
        assert eventually(lambda: booked(engine) == ["first"])


RELAY = """
import sys
from semel.database import engine_of
from semel.outbox import Relay
Relay(engine_of(sys.argv[1]), sys.argv[2], lease_ms=2000).run(stands_by=True)
"""


def test_a_relay_that_stands_by_goes_on_when_the_other_one_is_killed(
    engine: Engine, place: str, bootstrap: str, topic: str
) -> None:
    with subprocess.Popen([sys.executable, "-c", RELAY, place, bootstrap]) as first:
        try:
            with engine.begin() as connection:
                outbox.add(connection, topic, value="first")
            assert eventually(lambda: committed_values(bootstrap, topic) == [b"first"])
            with running("outbox", "run", "--database", place, "--bootstrap", bootstrap) as second:
                assert second.becomes(200, "standby\n")
                first.kill()
                with engine.begin() as connection:
                    outbox.add(connection, topic, value="second")
                assert second.becomes(200, "active\n")
                assert eventually(lambda: committed_values(bootstrap, topic) == [b"first", b"second"])
        finally:
            first.kill()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--metrics", "nowhere"), "'nowhere' is not an address"),
        (("--metrics", "a..b:9464"), "cannot listen on a..b:9464: "),
        (("--grace", "-1"), "--grace takes a number of seconds"),
    ],
)
def test_a_mistake_in_the_options_is_one_line(
    engine: Engine, place: str, words: tuple[str, str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["http", "reap", "--every", "1", "--database", place, *words])
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith(f"semel: {says}")


def test_figures_without_a_host_are_for_this_machine_only() -> None:
    words = {"metrics": ":9464", "log_format": "text", "grace": 1.0, "behind": 1.0}
    assert options_of(words).metrics == ("127.0.0.1", 9464)
