"""`semel chaos --upstream`: real clients meet the faults that were asked for and go on, and all is counted."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from forked import SECONDS_MAX
from semel.testing.broker import FaultyBroker
from semel_command import semel_failure, started

RECORDS = 300


class Proxy:
    """The command, once it is ready."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        words = process.stdout.readline().split()
        assert words[:4] == ["semel", "chaos", "ready", "on"], process.communicate()
        self.process = process
        self.bootstrap = words[4].rstrip(",")

    def counted(self, ended_by: signal.Signals | None = signal.SIGTERM) -> dict[str, int]:
        """What it counts when it is told to end, or ends by itself."""
        if ended_by is not None:
            self.process.send_signal(ended_by)
        output, errors = self.process.communicate(timeout=SECONDS_MAX)
        assert (self.process.returncode, errors) == (0, "")
        rows = [line.rsplit(maxsplit=1) for line in output.splitlines()]
        return {what: int(count.replace(",", "")) for what, count in rows}


@contextlib.contextmanager
def proxy_before(broker: FaultyBroker, *options: str) -> Iterator[Proxy]:
    process = started("chaos", "--upstream", broker.bootstrap, *options)
    try:
        yield Proxy(process)
    finally:
        process.kill()
        process.communicate()


def produced(bootstrap: str) -> list[bytes]:
    """What an idempotent producer has had acknowledged, one batch for each record."""
    settings = {"enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 1, "log_level": 0}
    quick = {"retry.backoff.ms": 10, "reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 10}
    producer = Producer({"bootstrap.servers": bootstrap, **settings, **quick})
    values = [f"payment {number}".encode() for number in range(RECORDS)]
    for value in values:
        producer.produce("payments", value)
    assert producer.flush(SECONDS_MAX) == 0
    return values


def consumed(bootstrap: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe(["payments"])
    try:
        values: list[bytes] = []
        while len(values) < count:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None
            values.append(message.value() or b"")
        return values
    finally:
        consumer.close()


def test_faults_strike_real_clients_that_go_on_and_are_counted(semel_broker: FaultyBroker) -> None:
    odds = ("--drop-ack", "0.05", "--cut", "0.02", "--delay", "5:0.1", "--hang", "50:0.02", "--seed", "7")
    with proxy_before(semel_broker, *odds) as proxy:
        values = produced(proxy.bootstrap)
        assert [record.value for record in semel_broker.log("payments")] == values
        assert consumed(proxy.bootstrap, RECORDS) == values
        counted = proxy.counted()
    assert list(counted) == [
        *("connections", "requests", "drop ack", "delay", "truncate", "cut", "reset", "dribble", "hang"),
    ]
    assert counted["requests"] > RECORDS
    assert min(counted[struck] for struck in ("connections", "drop ack", "delay", "cut", "hang")) >= 1
    assert [counted[asked_for_by_nobody] for asked_for_by_nobody in ("truncate", "reset", "dribble")] == [0, 0, 0]


def test_a_plan_says_what_strikes_when(semel_broker: FaultyBroker, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(
        """
        [[fault]]
        fault = "drop_ack"
        api = "produce"
        at_request = 20
        times = 3

        [[fault]]
        fault = "reset"
        after_seconds = 0
        """
    )
    with proxy_before(semel_broker, "--plan", str(tmp_path / "plan.toml")) as proxy:
        values = produced(proxy.bootstrap)
        counted = proxy.counted(signal.SIGINT)
    assert [record.value for record in semel_broker.log("payments")] == values
    assert {what: count for what, count in counted.items() if count and what not in ("connections", "requests")} == {
        "drop ack": 3,
        "reset": 1,
    }


def test_the_proxy_ends_by_itself_when_its_time_is_up(semel_broker: FaultyBroker) -> None:
    with proxy_before(semel_broker, "--seconds", "0.1") as proxy:
        assert proxy.counted(ended_by=None)["connections"] == 0


def test_clients_are_told_the_name_by_which_they_reach_the_proxy(semel_broker: FaultyBroker) -> None:
    with proxy_before(semel_broker, "--listen", "0.0.0.0:0", "--advertise", "localhost") as proxy:
        assert proxy.bootstrap.startswith("localhost:")
        assert produced(proxy.bootstrap)
        assert proxy.counted()["requests"] > RECORDS


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--cut", "0.1"), "--cut is for a proxy in front of your own broker, which --upstream names"),
        (("--upstream", "h"), "'h' is not an address: write HOST:PORT, such as 127.0.0.1:9092"),
        (("--upstream", "h:1", "--listen", "h:65536"), "'h:65536' is not an address"),
        (("--upstream", "h:1", "copy"), "copy has a broker of its own, and takes no --upstream"),
        (("--upstream", "h:1", "--listen", "0.0.0.0:0"), "say with --advertise how they reach the proxy"),
        (("--upstream", "h:1", "--plan", "/not/there.toml"), "/not/there.toml: No such file or directory"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(words: tuple[str, ...], complaint: str) -> None:
    assert complaint in semel_failure("chaos", *words)


def test_an_address_that_is_taken_is_one_line(semel_broker: FaultyBroker) -> None:
    failure = semel_failure("chaos", "--upstream", "h:1", "--listen", semel_broker.bootstrap)
    assert failure.startswith(f"cannot listen on {semel_broker.bootstrap}: ")
