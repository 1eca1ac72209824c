"""The page about clients says of each run either which command repeats it, or when it was done by hand."""

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent
PAGE: Final = (ROOT / "docs/COMPATIBILITY.md").read_text()
LOCKED: Final = dict(re.findall(r"^([a-z0-9-]+)==([^ ;\\]+)", (ROOT / "locks/dev.txt").read_text(), re.MULTILINE))


def rows(heading: str) -> list[list[str]]:
    """The first table below a heading, without its head."""
    table = re.findall(r"^\| (.*) \|$", PAGE.split(f"\n{heading}\n")[1].split("\n#")[0], re.MULTILINE)
    return [row.split(" | ") for row in table[1:]]


def test_what_make_runs_names_its_target_and_runs_the_clients_of_the_lock() -> None:
    runs = rows("## What `make` runs")
    assert [client for client, _, command, _ in runs if not re.search(r"`make [a-z-]+", command)] == []
    versions = {client.split()[0]: version for client, version, _, _ in runs}
    clients = ("confluent-kafka", "aiokafka", "kafka-python")
    assert {name: versions[name] for name in clients} == {name: LOCKED[name] for name in clients}


def test_what_was_run_by_hand_says_when_and_with_which_commit() -> None:
    runs = rows("## What was run once by hand")
    assert runs
    assert [client for client, _, when, *_ in runs if not re.fullmatch(r"\d{4}-\d\d-\d\d, [0-9a-f]{7,}", when)] == []
