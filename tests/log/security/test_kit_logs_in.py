"""The application kit and the audit log in to a broker with SASL_SSL and SCRAM, and show the password nowhere."""

import logging
import sqlite3
import threading
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from semel import outbox
from semel.audit import audit
from semel.database import engine_of
from semel.inbox import Inbox, metadata
from semel.outbox.shard import SAY_AGAIN_SECONDS, Patience
from semel.publish import LoginRefused, Publisher, Record
from semel.testing.broker import FaultyBroker
from semel.testing.clock import Clock
from semel_command import semel

pytestmark = pytest.mark.semel_broker(security="SASL_SSL")

Settings = dict[str, str]

SECRET, WRONG = "planted-5ecret", "planted-wr0ng"


@pytest.fixture
def login(semel_broker: FaultyBroker) -> Settings:
    """The settings of the user who may do everything, with a password that is easy to find."""
    semel_broker.add_user(str(semel_broker.login.user), SECRET)
    return {**semel_broker.client_settings, "sasl.password": SECRET}


def publish(login: Settings, directory: Path) -> None:
    client = {name: value for name, value in login.items() if name != "bootstrap.servers"}
    with Publisher(login["bootstrap.servers"], "orders", client=client, timeout_seconds=20) as publisher:
        publisher.publish(publisher.last() + 1, Record("orders", value=b"3 apples"))
        assert SECRET not in repr(publisher)


def relayed(login: Settings, directory: Path) -> outbox.Relay:
    """A relay with a message that waits for it."""
    engine = engine_of(f"sqlite:///{directory}/outbox.db")
    outbox.metadata.create_all(engine)
    with engine.begin() as connection:
        outbox.add(connection, "orders", key="o-1", value="3 apples")
    return outbox.Relay(engine, login, timeout_seconds=20)


def relay(login: Settings, directory: Path) -> None:
    relay = relayed(login, directory)
    assert relay.drain() == 1
    assert SECRET not in repr(relay)


def consume(login: Settings, directory: Path) -> None:
    engine = engine_of(f"sqlite:///{directory}/inbox.db")
    metadata.create_all(engine)
    inbox = Inbox(engine, consumer="billing", identity=lambda message: (message.value or b"").decode())

    def take(connection: sa.Connection, message: object) -> None:
        inbox.stop()

    inbox.run(take, {**login, "group.id": "billing"}, ["orders"])
    assert inbox.counts.first_time == 1
    assert SECRET not in repr(inbox)


def sink(directory: Path) -> str:
    with closing(sqlite3.connect(directory / "sink.db")) as connection, connection:
        connection.execute("CREATE TABLE orders (id TEXT)")
        connection.execute("INSERT INTO orders VALUES ('o-1')")
    return f"sqlite:{directory}/sink.db/orders?id=id"


def count(login: Settings, directory: Path) -> None:
    source = f"semel://{login['bootstrap.servers']}/orders?id=key"
    verdict = audit(source, sink(directory), client=login)
    assert verdict.is_clean, verdict
    assert SECRET not in repr(verdict)


@pytest.mark.parametrize("work", [publish, relay, consume, count])
def test_each_logs_in_and_shows_the_password_nowhere(
    work: Callable[[Settings, Path], None],
    login: Settings,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    if work in (consume, count):
        relay(login, tmp_path)
    work(login, tmp_path)
    assert SECRET not in caplog.text + "".join(capfd.readouterr())
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


@pytest.mark.parametrize("work", [publish, relay, count])
def test_each_ends_with_one_line_where_the_password_is_wrong(
    work: Callable[[Settings, Path], None],
    login: Settings,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A drain ends as well: nobody is there to change the password while it waits."""
    with pytest.raises(Exception, match=r"SASL authentication error|refused user") as raised:
        work({**login, "sasl.password": WRONG}, tmp_path)
    assert "\n" not in str(raised.value)
    shown = "".join(traceback.format_exception(raised.value)) + caplog.text + "".join(capfd.readouterr())
    assert WRONG not in shown


def test_a_publisher_tells_a_refused_login_from_brokers_that_are_away(login: Settings) -> None:
    client = {name: value for name, value in login.items() if name != "bootstrap.servers"}
    publisher = Publisher(login["bootstrap.servers"], "orders", client={**client, "sasl.password": WRONG})
    with pytest.raises(LoginRefused, match=r"look at sasl\.mechanism, sasl\.username and sasl\.password$"):
        publisher.open()


def test_a_login_that_takes_its_time_is_waited_for_after_one_was_refused(
    semel_broker: FaultyBroker, login: Settings
) -> None:
    """What former clients met says nothing of new ones."""
    client = {name: value for name, value in login.items() if name != "bootstrap.servers"}
    publisher = Publisher(login["bootstrap.servers"], "orders", client={**client, "sasl.password": WRONG})
    with pytest.raises(LoginRefused):
        publisher.open()
    semel_broker.add_user(str(semel_broker.login.user), WRONG)
    # Each login takes many times as long as the publisher waits before it looks whether it was refused. There may be
    # more logins than its own: those of the client that was refused.
    for _ in range(20):
        semel_broker.hang(0.5, api="SaslHandshake")
    with publisher:
        assert publisher.last() == -1


def test_a_relay_that_runs_goes_on_when_the_password_is_right_again(
    semel_broker: FaultyBroker, login: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A password is changed in two places, one after the other."""
    relay = relayed({**login, "sasl.password": WRONG}, tmp_path)
    said: list[str] = []

    class Mend(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())
            if said[-1].startswith("waiting for the brokers"):
                semel_broker.add_user(str(semel_broker.login.user), WRONG)
            elif said[-1].startswith("the brokers: there again"):
                relay.stop()

    logger, handler = logging.getLogger("semel.outbox"), Mend()
    logger.addHandler(handler)
    try:
        running = threading.Thread(target=relay.run)
        running.start()
        running.join()
    finally:
        logger.removeHandler(handler)
    assert len([line for line in said if "look at sasl.mechanism" in line]) == 1
    assert WRONG not in caplog.text


def test_a_relay_says_once_a_minute_what_it_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    class NeverStopped(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            return False

    clock = Clock()
    patience = Patience(NeverStopped(), clock=clock.monotonic)
    for _ in range(3):
        patience.wait_for("the brokers", "the login was refused")
    clock.sleep(SAY_AGAIN_SECONDS)
    patience.wait_for("the brokers", "the login was refused")
    told = [record.getMessage() for record in caplog.records if record.name == "semel.outbox"]
    assert told == 2 * ["waiting for the brokers: the login was refused"]


# `count` above holds the same without a process of its own.
@pytest.mark.slow
def test_the_audit_command_reads_a_topic_with_the_settings_of_a_file(login: Settings, tmp_path: Path) -> None:
    relay(login, tmp_path)
    stored = sink(tmp_path)
    words = ("audit", f"--source=semel://{login['bootstrap.servers']}/orders?id=key", f"--sink={stored}")
    for name, password, code in (("right", SECRET, 0), ("wrong", WRONG, 2)):
        file = tmp_path / name
        named = {**login, "sasl.password": password}
        file.write_text("\n".join(f"{setting}={value}" for setting, value in named.items()))
        ran = semel(*words, f"--command-config={file}")
        assert ran.returncode == code, ran.stderr
        assert password not in ran.stdout + ran.stderr
    assert ran.stderr.count("\n") == 1
    assert "refused user" in ran.stderr
    missing = semel(*words, "--command-config=/nowhere")
    assert (missing.returncode, missing.stderr) == (2, "semel: /nowhere: No such file or directory\n")
