"""What `semel topics` promises: what was asked for is there, nothing goes unasked, and every error is one line."""

import socket
import threading

import pytest

from asking import Asker
from semel.ui.cli.display import time_shown
from semel_command import semel, semel_failure, semel_lines
from transacting import TransactionalProducer


def test_a_created_topic_is_listed_and_described_as_it_was_asked_for(bootstrap: str) -> None:
    configs = ("--config", "retention.ms=60000", "segment.bytes=1048576")
    assert semel_lines("topics", "create", "asked", "--partitions", "2", *configs, bootstrap) == [
        "created asked with 2 partitions"
    ]
    semel_lines("produce", "asked", "--partition", "1", bootstrap, stdin="one\ntwo\n")
    assert ["asked", "2", "2", "0"] in [line.split() for line in semel_lines("topics", "list", bootstrap)]
    title, *described = semel_lines("topics", "describe", "asked", bootstrap)
    assert title.startswith("topic asked  id ")
    assert described[:4] == [
        "  retention.ms=60000",
        "  segment.bytes=1048576",
        "partition 0  offsets 0 to 0",
        "partition 1  offsets 0 to 2",
    ]
    assert "epoch 0  last sequence 1 " in described[4]


def test_a_topic_has_as_many_offsets_as_its_groups_see_and_says_which_are_held_back(bootstrap: str) -> None:
    semel_lines("produce", "held", bootstrap, stdin="one\ntwo\n")
    with Asker(bootstrap.removeprefix("--bootstrap=")) as asker:
        producer = TransactionalProducer(asker, "holds")
        producer.claim()
        producer.add("held")
        producer.send("held", "open")
        semel_lines("produce", "held", bootstrap, stdin="waits\n")
        assert ["held", "1", "4", "2"] in [line.split() for line in semel_lines("topics", "list", bootstrap)]
        assert "partition 0  offsets 0 to 4, stable to 2" in semel_lines("topics", "describe", "held", bootstrap)
        producer.end()


def test_a_topic_is_deleted_only_by_those_who_are_sure(bootstrap: str) -> None:
    semel_lines("topics", "create", "kept", bootstrap)
    assert "--yes" in semel_failure("topics", "delete", "kept", bootstrap)
    assert any(line.startswith("kept ") for line in semel_lines("topics", "list", bootstrap))
    assert semel_lines("topics", "delete", "kept", "--yes", bootstrap) == ["deleted kept"]
    assert not any(line.startswith("kept ") for line in semel_lines("topics", "list", bootstrap))


def test_what_the_broker_refuses_is_one_line_with_its_reason(bootstrap: str) -> None:
    assert semel_failure("topics", "describe", "nowhere", bootstrap) == "there is no topic 'nowhere'"
    semel_lines("topics", "create", "misspelled", bootstrap)
    told = semel_failure("topics", "describe", "mispelled", bootstrap)
    assert told == "there is no topic 'mispelled'; was 'misspelled' meant?"
    assert "INVALID_CONFIG" in semel_failure("topics", "create", "odd", "--config", "no.such=1", bootstrap)
    assert "INVALID_TOPIC_EXCEPTION" in semel_failure("topics", "create", "no/slashes", bootstrap)
    assert "is not a setting" in semel_failure("topics", "create", "odd", "--config", "retention.ms", bootstrap)


def test_a_refusal_names_what_it_is_about_once(bootstrap: str) -> None:
    semel_lines("topics", "create", "there", bootstrap)
    told = semel_failure("topics", "create", "there", bootstrap)
    assert told == "topic 'there' exists already (TOPIC_ALREADY_EXISTS)"


@pytest.mark.parametrize("count", ["-1", "0", "two"])
def test_a_number_of_partitions_that_is_none_makes_no_topic(bootstrap: str, count: str) -> None:
    done = semel("topics", "create", "odd", f"--partitions={count}", bootstrap)
    assert done.returncode == 2
    assert f"{count!r} is not a whole number from 1 on" in done.stderr
    assert semel_failure("topics", "describe", "odd", bootstrap) == "there is no topic 'odd'"


def test_a_number_that_the_protocol_cannot_hold_is_one_line(bootstrap: str) -> None:
    told = semel_failure("topics", "create", "odd", f"--partitions={1 << 31}", bootstrap)
    assert told.startswith("a request of API 19 has a value that the protocol cannot hold: ")


@pytest.mark.parametrize("at_ms", [1 << 62, -(1 << 62)])
def test_a_time_that_no_calendar_has_is_shown_as_it_is(at_ms: int) -> None:
    """On Apache Kafka `describe` shows when a producer was last heard by the times that it wrote itself."""
    assert time_shown(at_ms) == f"{at_ms} ms"


def test_a_command_that_is_called_wrongly_says_how_it_is_called(bootstrap: str) -> None:
    done = semel("topics", "create", bootstrap)
    assert done.returncode == 2
    assert "usage: semel topics create" in done.stderr


def test_nobody_at_the_address_is_one_line() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        assert semel_failure("topics", "list", "--bootstrap", address).startswith(f"cannot connect to {address}: ")
    assert "is not an address" in semel_failure("topics", "list", "--bootstrap", "localhost")


def test_somebody_who_speaks_another_protocol_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        failure = semel_failure("topics", "list", "--bootstrap", f"127.0.0.1:{server.getsockname()[1]}")
    assert "does not speak the Kafka protocol" in failure
