"""What `semel quotas` promises: quotas are set, listed and removed by the same words."""

from collections.abc import Iterator

import pytest

from semel.testing.broker import FaultyBroker
from semel_command import semel_failure, semel_lines


@pytest.fixture(scope="module")
def broker() -> Iterator[FaultyBroker]:
    with FaultyBroker() as broker:
        yield broker


def quotas(broker: FaultyBroker, *words: str) -> list[str]:
    return semel_lines("quotas", *words, "--bootstrap", broker.bootstrap)


def test_quotas_are_set_listed_and_removed_by_the_same_words(broker: FaultyBroker) -> None:
    first = ["producer_byte_rate=1048576", "request_percentage=12.5"]
    assert quotas(broker, "set", "user:app", "client-id", *first) == [f"user:app client-id has {', '.join(first)}"]
    assert quotas(broker, "set", "ip", "connection_creation_rate=20") == ["ip has connection_creation_rate=20"]
    assert [line.split() for line in quotas(broker, "list")] == [
        ["ENTITY", "QUOTA", "PER", "SECOND"],
        ["ip", "connection_creation_rate", "20"],
        ["user:app", "client-id", "producer_byte_rate", "1048576"],
        ["user:app", "client-id", "request_percentage", "12.5"],
    ]
    removed = quotas(broker, "remove", "client-id", "user:app", "producer_byte_rate")
    assert removed == ["removed: user:app client-id producer_byte_rate"]
    assert quotas(broker, "remove", "user:app", "client-id") == ["removed: user:app client-id request_percentage"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("set", "producer_byte_rate=1"), "say for whom"),
        (("set", "user:app", "user:me", "producer_byte_rate=1"), "each of user, client-id, ip once"),
        (("set", "user:app", "producer_byte_rate=much"), "with a number"),
        (("set", "user:app", "producer_byte_rat=1"), "Invalid configuration key producer_byte_rat"),
        (("remove", "user:nobody"), "user:nobody has no quota"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words: tuple[str, ...], told: str, broker: FaultyBroker) -> None:
    assert told in semel_failure("quotas", *words, "--bootstrap", broker.bootstrap)
