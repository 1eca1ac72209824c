"""`semel outbox` relays, says what is away, ends when it is told to; a user's mistake is one line."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from relaying import Relays, add, count_batches
from sqlalchemy import Engine

from committed_records import committed_values
from eventually import eventually
from semel.ui.cli import main

READY = "semel: shard 0 of 1: publishing"


def first_line(bootstrap: str, url: str) -> str:
    """What it talks to, without the user of the database."""
    return f"semel: publishes to {bootstrap}; database {re.sub('//[^/@]*@', '//', url)}"


SEMEL = str(Path(sys.executable).with_name("semel"))


def semel(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["outbox", *words])
    return int(str(ended.value.code))


@pytest.fixture
def running(url: str, bootstrap: str) -> Iterator[subprocess.Popen[str]]:
    command = [SEMEL, "outbox", "run", "--database", url, "--bootstrap", bootstrap]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_publishes_until_it_is_told_to_end(
    engine: Engine, topic: str, url: str, bootstrap: str, running: subprocess.Popen[str], number: int
) -> None:
    add(engine, topic, "first")
    assert eventually(lambda: count_batches(engine) == 1)
    add(engine, topic, "second")
    assert eventually(lambda: count_batches(engine) == 2)
    running.send_signal(number)
    assert running.wait(60) == 0
    assert running.communicate() == ("", f"{first_line(bootstrap, url)}\n{READY}\n")
    assert committed_values(bootstrap, topic) == [b"first", b"second"]


def test_who_is_taken_over_ends_with_one_line(
    engine: Engine, running: subprocess.Popen[str], relays: Relays, topic: str
) -> None:
    add(engine, topic, "first")
    assert eventually(lambda: count_batches(engine) == 1)
    relays.drain()
    assert running.wait(60) == 1
    _, ready, said = running.communicate()[1].splitlines()
    assert ready == READY
    assert said.startswith("semel: shard 0 of the outbox was taken over by another relay (process ")


@pytest.mark.parametrize("url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True)
def test_brokers_that_are_away_are_named_and_named_again_when_they_are_back(
    engine: Engine, topic: str, faulty: Any, url: str
) -> None:
    faulty.kill()
    command = [SEMEL, "outbox", "run", "--database", url, "--bootstrap", faulty.bootstrap]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == f"{first_line(faulty.bootstrap, url)}\n"
        assert process.stderr.readline().startswith("semel: waiting for the brokers: ")
        faulty.restart()
        assert process.stderr.readline() == "semel: the brokers: there again\n"
        process.terminate()


def test_what_waits_is_published_and_counted(
    engine: Engine, topic: str, url: str, bootstrap: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert semel("status", "--database", url) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no relay has begun yet"
    add(engine, topic, "first", "second")
    settings = tmp_path / "relay.properties"
    settings.write_text(f"bootstrap.servers={bootstrap}\nclient.id=relay\n")
    assert semel("run", "--drain", "--database", url, "--config", str(settings), "--shards", "2") == 0
    assert semel("status", "--database", url) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[:3] == [
        "2 messages published",
        "0 messages wait",
        "relayed as 'outbox'",
    ]
    assert told[3].split() == ["SHARD", "BATCHES", "AT", "HAND", "RELAY", "SINCE"]
    assert [line.split()[0] for line in told[4:]] == ["0", "1"]
    assert semel("status", "--json", "--database", url) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["waiting"], len(found["shards"])) == (0, 2)


def test_what_was_refused_is_shown_and_tried_again_and_dropped(
    engine: Engine, topic: str, url: str, relays: Relays, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--database", url)
    assert semel("quarantine", "list", *words) == 0
    add(engine, topic, "x" * 2_000_000, "behind", key="order-7")
    relays.drain()
    assert semel("quarantine", "list", *words) == 0
    assert semel("status", *words) == 0
    empty, head, line, *status = capsys.readouterr().out.splitlines()
    assert empty == "nothing is in the quarantine"
    assert head.split() == ["NUMBER", "TOPIC", "AGGREGATE", "BEHIND", "SINCE", "REASON"]
    number, shown_topic, aggregate, behind, _ = line.split()[:5]
    assert (shown_topic, aggregate, behind) == (topic, "order-7", "1")
    assert status[1] == "1 of them were put aside, and 1 wait for those"
    assert semel("quarantine", "retry", number, *words) == 0
    relays.drain()
    assert semel("quarantine", "list", "--json", *words) == 0
    again, shown = capsys.readouterr().out.splitlines()
    assert again == "1 wait to be tried again"
    fields = json.loads(shown)
    assert (fields["key"], fields["value"]) == ("order-7", "x" * 2_000_000)
    assert semel("quarantine", "drop", "--all", *words) == 0
    assert capsys.readouterr().out == "1 dropped\n"
    assert relays.drain() == 1


def test_an_outbox_is_renewed(
    engine: Engine, topic: str, url: str, relays: Relays, capsys: pytest.CaptureFixture[str]
) -> None:
    add(engine, topic, "first")
    relays.drain()
    assert semel("renew", "--database", url) == 0
    assert capsys.readouterr().out == "the next relay begins again\n"
    add(engine, topic, "second")
    assert relays.drain() == 1


def test_a_mistake_is_one_line(
    engine: Engine, url: str, bootstrap: str, relays: Relays, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    relays.drain()
    database = ("--database", url)
    (tmp_path / "no.toml").write_text("a b")
    (tmp_path / "bad.json").write_text('{"acks": 1}')
    for words, says in (
        (["quarantine", "drop", *database], "name the messages by their numbers, or pass --all"),
        (["quarantine", "retry", "99", *database], "there is no 99 in the quarantine"),
        (["run", *database, "--shards", "0"], "0 shards cannot be: there are 1 to 64"),
        (["run", *database, "--name", "other", "--bootstrap", bootstrap], "this outbox is relayed under the name"),
        (["run", *database, "--config", f"{tmp_path}/none.toml"], f"{tmp_path}/none.toml: No such file"),
        (["run", *database, "--config", f"{tmp_path}/no.toml"], f"{tmp_path}/no.toml: this is no TOML"),
        (["run", *database, "--config", f"{tmp_path}/bad.json"], "acks=1 cannot be set: a record that not all"),
        (["run", *database, "--config", "settings"], "settings: its name has to end with one of .properties"),
        (["status", "--database", "oracle://host/app"], "oracle is no database that semel knows"),
    ):
        assert semel(*words) == 1
        said = capsys.readouterr()
        assert (said.out, said.err.count("\n")) == ("", 1)
        assert said.err.startswith(f"semel: {says}")


def test_a_database_without_the_tables_is_one_line(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    if url.startswith("sqlite"):
        Path(url.removeprefix("sqlite:///")).touch()
    for words in (["status"], ["run", "--bootstrap", "127.0.0.1:1"], ["quarantine", "list"]):
        assert semel(*words, "--database", url) == 1
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "semel schema" in said
