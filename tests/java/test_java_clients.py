"""The Java clients of Apache Kafka 4.3 get from the broker what they get from their own: the programs in src/main/java
tell what they found, one finding a line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., str]


def findings(printed: str) -> dict[str, str]:
    return {name: value for name, _, value in (line.partition(": ") for line in printed.splitlines())}


def test_transactions_of_the_second_version(run_java: Run, bootstrap: str, topic: str) -> None:
    found = findings(run_java("semel.Transactions", bootstrap, topic))
    committed = [f"{of} {partition}" for of in ("again", "committed") for partition in range(3)]
    committed += ["idempotent 0", "idempotent 1", "of the successor 0", "open 0", "with offsets 0"]
    assert found == {
        "ended": "true",
        "epochs after a commit": "1",
        "aborted": "true",
        "epochs after an abort": "2",
        "state": "Ongoing",
        "partitions": f"[{topic}-0]",
        "listed": "true",
        "producers with an open transaction": "1",
        "held back": "1",
        "held back after the end": "true",
        "input": "true",
        "offset after an abort": "null",
        "offset after a commit": "1",
        "zombie": "fenced",
        "committed": str(committed).replace("'", ""),
        "uncommitted": "15",
    }


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_of_a_group_come_and_go(run_java: Run, bootstrap: str, topic: str, protocol: str) -> None:
    assert findings(run_java("semel.Groups", bootstrap, topic, protocol)) == {
        "two members": "true",
        "read by two": "true",
        "three members": "true",
        "read by three": "true",
        "type": protocol.capitalize(),
        "state": "Stable",
        "members": "3",
        "one member": "true",
        "read by one": "true",
        "offsets": "18",
        "deleted": "true",
    }


def test_kafka_streams_counts_every_word_once_though_it_is_killed(
    run_java: Run, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    for words_until_halt in ("500", "400"):
        halted = findings(run_java("semel.WordCount", bootstrap, topic, str(tmp_path), words_until_halt))
        assert halted == {"halted": words_until_halt}
    assert findings(run_java("semel.WordCount", bootstrap, topic, str(tmp_path), "0")) == {
        "counted": "true",
        "word-repartition": "delete",
        "count-changelog": "compact",
    }


def test_each_record_of_a_queue_is_accepted_once_and_what_is_released_comes_again(
    run_java: Run, bootstrap: str, topic: str
) -> None:
    assert findings(run_java("semel.Shares", bootstrap, topic)) == {
        "all": "true",
        "state": "Stable",
        "members": "2",
        "each once": "true",
        "rejected": "20",
        "deliveries": "[1, 2]",
        "offsets": "200",
        "lag": "0",
        "deleted": "true",
    }
