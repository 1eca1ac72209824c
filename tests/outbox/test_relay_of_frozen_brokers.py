"""A broker that hangs (SIGSTOP) keeps its connections and answers nothing: a relay says so, idle or not."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from relaying import Relays, add, count_waiting
from sqlalchemy import Engine

from committed_records import make_topic
from eventually import eventually
from semel.testing.served import ServedBroker


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("is_idle", [True, False], ids=["idle", "with messages"])
def test_a_relay_is_not_ready_while_its_broker_hangs(
    engine: Engine, tmp_path: Path, url: str, *, is_idle: bool
) -> None:
    with ServedBroker(tmp_path / "log") as broker:
        make_topic(broker.bootstrap, "orders")
        relays = Relays(engine, broker.bootstrap)
        # A call to the brokers would not give up before the test is over.
        relay = relays.run(timeout_seconds=600).relay
        try:
            add(engine, "orders", "first")
            assert eventually(lambda: relay.why_not_ready(60) == "" and count_waiting(engine) == 0)
            os.kill(broker.process_id, signal.SIGSTOP)
            if not is_idle:
                add(engine, "orders", "second")
            # A probe that comes before the relay's own call asks by itself, and one that comes later does not: the
            # last of three tells of the state that is meant.
            told = ["waiting for the brokers: they do not answer"] * 3
            assert eventually(lambda: [relay.why_not_ready(60) for _ in told] == told)
            os.kill(broker.process_id, signal.SIGCONT)
            assert eventually(lambda: relay.why_not_ready(60) == "")
        finally:
            os.kill(broker.process_id, signal.SIGCONT)
            relays.stop()
