"""The relay as a command: whoever starts it hears when it publishes, and who took over from it."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from forked import SECONDS_MAX
from semel import schema
from semel.database import engine_of
from semel.testing.broker import FaultyBroker
from semel_command import semel_failure, semel_lines, started


@contextlib.contextmanager
def publishing(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A relay that has said what it talks to, and that it publishes."""
    with started("outbox", "run", *words) as relay:
        try:
            assert relay.stderr is not None
            assert relay.stderr.readline().startswith("semel: publishes to 127.0.0.1:")
            assert relay.stderr.readline() == "semel: shard 0 of 1: publishing\n"
            yield relay
        finally:
            relay.kill()


def test_a_relay_says_when_it_publishes_and_who_took_over_from_it(semel_broker: FaultyBroker, tmp_path: Path) -> None:
    """A drain takes over at once; a relay that runs as a service would stand by."""
    url = f"sqlite:///{tmp_path}/app.db"
    schema.make(engine_of(url), "outbox")
    words = ("--database", url, "--bootstrap", semel_broker.bootstrap)
    with publishing(*words) as first:
        assert semel_lines("outbox", "run", "--drain", *words) == ["0 messages published"]
        _, said = first.communicate(timeout=SECONDS_MAX)
    assert first.returncode == 1
    assert said.startswith("semel: shard 0 of the outbox was taken over by another relay (process ")
    assert said.count("\n") == 1


def test_settings_for_a_consumer_only_are_no_settings_of_a_relay(tmp_path: Path) -> None:
    """The address counts for the consumer as well. Without it the messages would go to another cluster."""
    url = f"sqlite:///{tmp_path}/app.db"
    schema.make(engine_of(url), "outbox")
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=log.example.org:9092\nconsumer.group.id=billing\n")
    told = semel_failure("outbox", "run", "--drain", "--wait=0", "--database", url, "--config", str(file))
    assert told == f"{file}: its settings are for a consumer only, and this command is a producer"


@pytest.mark.parametrize("rows", [0, 1 << 70])
def test_a_batch_of_a_size_that_cannot_be_is_one_line(tmp_path: Path, rows: int) -> None:
    url = f"sqlite:///{tmp_path}/app.db"
    schema.make(engine_of(url), "outbox")
    told = semel_failure("outbox", "run", "--drain", f"--batch={rows}", "--database", url)
    assert told == f"batches of {rows} messages cannot be: they have 1 to 1000000"


@pytest.mark.parametrize("number", ["1", str(1 << 70)])
def test_a_number_that_is_not_in_the_quarantine_is_one_line(tmp_path: Path, number: str) -> None:
    url = f"sqlite:///{tmp_path}/app.db"
    schema.make(engine_of(url), "outbox")
    told = semel_failure("outbox", "quarantine", "retry", number, "--database", url)
    assert told == f"there is no {number} in the quarantine: semel outbox quarantine list shows all"
