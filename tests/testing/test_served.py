"""Holds what `ServedBroker` promises to whoever needs a broker that is a process."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from eventually import SECONDS_MAX, eventually
from left_behind import processes_about
from producing import deliver, idempotent_producer
from semel.testing.served import ServedBroker, ServeFailed


def pay(broker: ServedBroker) -> list[int]:
    return deliver(idempotent_producer(broker), "payments", [b"100 EUR"])


@pytest.mark.parametrize("end", [ServedBroker.stop, ServedBroker.kill], ids=["stopped", "killed"])
def test_a_broker_that_comes_back_has_its_address_and_its_data(
    tmp_path: Path, end: Callable[[ServedBroker], None]
) -> None:
    with ServedBroker(tmp_path / "data") as broker:
        assert pay(broker) == [0]
        before = (broker.bootstrap, broker.process_id)
        end(broker)
        assert broker.exit_code == (0 if end is ServedBroker.stop else -signal.SIGKILL)
        broker.start()
        assert (broker.bootstrap, broker.process_id != before[1]) == (before[0], True)
        assert pay(broker) == [1]
    assert processes_about(tmp_path) == []


def test_a_restart_is_a_stop_and_a_start(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data", metrics=True) as broker:
        pay(broker)
        assert broker.metrics()['semel_batches_total{outcome="accepted"}'] == 1
        broker.restart()
        assert broker.metrics()['semel_batches_total{outcome="accepted"}'] == 0


def test_a_broker_that_ends_before_it_is_ready_says_why_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no directory")
    broker = ServedBroker(tmp_path / "data")
    with pytest.raises(ServeFailed, match=rf"^semel serve did not start: {tmp_path}/data: .*\Z"):
        broker.start()
    assert (broker.exit_code, broker.output.count("\n")) == (1, 1)


def test_a_broker_that_takes_too_long_to_start_is_ended(tmp_path: Path) -> None:
    broker = ServedBroker(tmp_path / "data", ready_seconds_max=0)
    with pytest.raises(ServeFailed, match="was not ready after 0 s"):
        broker.start()
    assert processes_about(tmp_path) == []


def test_an_interrupt_that_comes_during_a_start_leaves_no_process_behind(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    # Python waits here until somebody has written to the gate, which nobody does.
    (tmp_path / "sitecustomize.py").write_text(f"open({str(gate)!r}).read()\n")
    broker = ServedBroker(tmp_path / "data", environment={"PYTHONPATH": str(tmp_path)})

    def interrupt() -> None:
        # Opening it takes until the process reads.
        with gate.open("w"):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            ended.wait()

    ended = threading.Event()
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            broker.start()
    finally:
        ended.set()
        signal.signal(signal.SIGINT, usual)
    assert processes_about(tmp_path / "data") == []


_KILLED = """
import os, signal, sys
from semel.testing.served import ServedBroker
ServedBroker(sys.argv[1]).start()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_broker_ends_when_whoever_has_started_it_is_killed(tmp_path: Path) -> None:
    """As the broker of `semel console --trial` does."""
    data = tmp_path / "data"
    done = subprocess.run([sys.executable, "-c", _KILLED, data], timeout=SECONDS_MAX, check=False)
    assert done.returncode == -signal.SIGKILL
    assert eventually(lambda: not processes_about(data)), "the broker is left behind"


def test_what_it_logs_is_kept_when_it_has_ended(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data", "--log-level=info") as broker:
        while_it_ran = broker.output
        assert "level=INFO" in while_it_ran
    assert broker.output.startswith(while_it_ran)


def test_its_environment_is_ours_and_what_is_added(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data", environment={"BRANCH": "Berlin"}) as broker:
        environment = Path(f"/proc/{broker.process_id}/environ").read_bytes().split(b"\0")
    assert b"BRANCH=Berlin" in environment
    assert f"PATH={os.environ['PATH']}".encode() in environment


def test_a_broker_that_runs_is_not_started_twice(tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "data") as broker:
        with pytest.raises(ServeFailed, match="has been started already"):
            broker.start()
        assert pay(broker) == [0]
