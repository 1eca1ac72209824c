"""What a check promises: it refuses what the clients refuse, and names what else a configuration would cost."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_clients import is_refused

from semel.settings import Client, Conflict, Cost, Role, Semantics, UnknownSettings, check, exactly_once

SPELLED_LIKE_JAVA = {Client.CONFLUENT, Client.JAVA}
MAKEABLE = [Client.CONFLUENT, Client.AIOKAFKA, Client.KAFKA_PYTHON]


def spelled(client: Client, config: dict[str, Any]) -> dict[str, Any]:
    """A configuration in Java's names, as a client writes it."""
    return config if client in SPELLED_LIKE_JAVA else {name.replace(".", "_"): config[name] for name in config}


def costs(conflicts: list[Conflict]) -> list[Cost]:
    return [conflict.cost for conflict in conflicts]


PRODUCERS = st.fixed_dictionaries(
    {},
    optional={
        "enable.idempotence": st.booleans(),
        "acks": st.sampled_from([0, 1, -1, "all"]),
        "retries": st.sampled_from([0, 1, 2_147_483_647]),
        "max.in.flight.requests.per.connection": st.sampled_from([1, 5, 6]),
        "linger.ms": st.sampled_from([0, 100]),
        "delivery.timeout.ms": st.sampled_from([50, 100, 20_000, 60_000, 120_000]),
        "transactional.id": st.just("billing-1"),
        "transaction.timeout.ms": st.sampled_from([20_000, 60_000, 120_000]),
    },
)
CONSUMERS = st.fixed_dictionaries(
    {},
    optional={
        "isolation.level": st.sampled_from(["read_committed", "read_uncommitted"]),
        "enable.auto.commit": st.booleans(),
        "auto.offset.reset": st.sampled_from(["earliest", "latest"]),
        "session.timeout.ms": st.sampled_from([6_000, 45_000]),
        "heartbeat.interval.ms": st.sampled_from([3_000, 6_000, 50_000]),
        "max.poll.interval.ms": st.sampled_from([7_000, 300_000]),
    },
)


@pytest.mark.parametrize("client", MAKEABLE)
@settings(max_examples=150)
@given(config=PRODUCERS, semantics=st.sampled_from(list(Semantics)))
def test_it_calls_refused_what_the_producer_refuses(
    client: Client, config: dict[str, Any], semantics: Semantics
) -> None:
    written = spelled(client, config)
    found = check(written, client=client, role=Role.PRODUCER, semantics=semantics)
    assert (Cost.REFUSED in costs(found)) == is_refused(client, Role.PRODUCER, written), found


@pytest.mark.parametrize("client", MAKEABLE)
@settings(max_examples=50)
@given(config=CONSUMERS, semantics=st.sampled_from(list(Semantics)))
def test_it_calls_refused_what_the_consumer_refuses(
    client: Client, config: dict[str, Any], semantics: Semantics
) -> None:
    written = spelled(client, config)
    found = check(written, client=client, role=Role.CONSUMER, semantics=semantics)
    assert (Cost.REFUSED in costs(found)) == is_refused(client, Role.CONSUMER, written), found


# What Java 4.3 was seen to do; tests/java asks it again, where there is a Java.
OF_JAVA: list[tuple[dict[str, str], bool]] = [
    ({"acks": "1"}, False),
    ({"acks": "1", "enable.idempotence": "true"}, True),
    ({"retries": "0"}, False),
    ({"retries": "0", "enable.idempotence": "true"}, True),
    ({"max.in.flight.requests.per.connection": "6"}, True),
    ({"max.in.flight.requests.per.connection": "6", "acks": "1"}, True),
    ({"transactional.id": "x", "acks": "1"}, True),
    ({"transactional.id": "x", "enable.idempotence": "false"}, True),
    ({"transactional.id": "x", "delivery.timeout.ms": "120000", "transaction.timeout.ms": "60000"}, False),
    ({"transactional.id": ""}, True),
    ({"delivery.timeout.ms": "30004", "linger.ms": "5"}, True),
    ({"delivery.timeout.ms": "30005", "linger.ms": "5"}, False),
    ({"delivery.timeout.ms": "30004", "retries": "0"}, True),
    ({"enable.idempotence": "yes"}, True),
    ({"acks": "2"}, True),
]


@pytest.mark.parametrize(("config", "refused"), OF_JAVA)
def test_it_calls_refused_what_java_refuses(config: dict[str, str], refused: bool) -> None:
    found = check(config, client=Client.JAVA, role=Role.PRODUCER)
    assert (Cost.REFUSED in costs(found)) == refused


COSTS: list[tuple[Semantics, Client, dict[str, Any], list[tuple[tuple[str, ...], Cost]]]] = [
    # Java and kafka-python drop idempotence for the sake of a weaker setting, and hardly say so.
    (Semantics.EXACTLY_ONCE, Client.JAVA, {"acks": "1"}, [
        (("acks=1",), Cost.DOUBLED),
        (("acks=1",), Cost.LOST),
        (("max.in.flight.requests.per.connection=5",), Cost.OUT_OF_ORDER),
    ]),
    (Semantics.EXACTLY_ONCE, Client.KAFKA_PYTHON, {"linger_ms": 0, "max_in_flight_requests_per_connection": 6}, [
        (("max_in_flight_requests_per_connection=6",), Cost.DOUBLED),
        (("max_in_flight_requests_per_connection=6",), Cost.OUT_OF_ORDER),
    ]),
    (Semantics.EXACTLY_ONCE, Client.AIOKAFKA, {"acks": "all"}, [(("enable_idempotence=false",), Cost.DOUBLED)]),
    (Semantics.AT_LEAST_ONCE, Client.CONFLUENT, {"acks": 1, "max.in.flight": 1}, [(("acks=1",), Cost.LOST)]),
    (Semantics.AT_LEAST_ONCE, Client.CONFLUENT, {"retries": 0}, [(("retries=0",), Cost.LOST)]),
    (Semantics.AT_LEAST_ONCE, Client.JAVA, {"enable.idempotence": "false"}, [
        (("max.in.flight.requests.per.connection=5",), Cost.OUT_OF_ORDER),
    ]),
    (Semantics.AT_MOST_ONCE, Client.JAVA, {"enable.idempotence": "false", "acks": "1"}, [
        ((f"retries={2**31 - 1}",), Cost.DOUBLED),
    ]),
    # Seen: librdkafka 2.16 doubled records with retries=0, where its only broker was lost for a moment.
    (Semantics.AT_MOST_ONCE, Client.CONFLUENT, {"acks": 1, "retries": 0}, [
        (("metadata.recovery.strategy=rebootstrap", "retries=0"), Cost.DOUBLED),
    ]),
    # Seen: it then hung in send_offsets_to_transaction, where its only broker was killed and came back.
    (Semantics.EXACTLY_ONCE, Client.CONFLUENT, {"transactional.id": "x", "linger.ms": 5}, [
        (("metadata.recovery.strategy=rebootstrap", "transactional.id"), Cost.STUCK),
    ]),
    (Semantics.EXACTLY_ONCE, Client.CONFLUENT,
     {"transactional.id": "x", "metadata.recovery.strategy": "none"}, []),
    (Semantics.AT_MOST_ONCE, Client.AIOKAFKA, {"acks": 1}, [(("acks=1",), Cost.DOUBLED)]),
    (Semantics.EXACTLY_ONCE, Client.CONFLUENT, {"enable.idempotence": True, "message.timeout.ms": 5000}, [
        (("message.timeout.ms=5000", "socket.timeout.ms=60000"), Cost.LOST),
    ]),
    (Semantics.EXACTLY_ONCE, Client.JAVA, {"transactional.id": "x", "transaction.timeout.ms": "30000",
                                           "delivery.timeout.ms": "60000"}, [
        (("delivery.timeout.ms=60000", "transaction.timeout.ms=30000"), Cost.STUCK),
    ]),
    (Semantics.EXACTLY_ONCE, Client.JAVA, {"transactional.id": "x", "transaction.timeout.ms": "900001"}, [
        (("transaction.timeout.ms=900001",), Cost.REFUSED),
    ]),
    (Semantics.EXACTLY_ONCE, Client.JAVA, {"transaction.timeout.ms": "60000"}, [
        (("transaction.timeout.ms=60000",), Cost.IGNORED),
    ]),
    (Semantics.EXACTLY_ONCE, Client.JAVA, {"enable.auto.commit": "false"}, [
        (("isolation.level=read_uncommitted",), Cost.DOUBLED),
        (("auto.offset.reset=latest",), Cost.LOST),
    ]),
    (Semantics.AT_LEAST_ONCE, Client.CONFLUENT, {"auto.offset.reset": "earliest"}, [
        (("enable.auto.commit=true",), Cost.LOST),
    ]),
    (Semantics.AT_LEAST_ONCE, Client.CONFLUENT,
     {"auto.offset.reset": "smallest", "enable.auto.offset.store": False}, []),
    (Semantics.AT_MOST_ONCE, Client.CONFLUENT, {"enable.auto.commit": True}, [
        (("enable.auto.commit=true",), Cost.DOUBLED),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("semantics", "client", "config", "expected"), COSTS)
def test_it_names_the_settings_and_the_cost(
    semantics: Semantics, client: Client, config: dict[str, Any], expected: list[tuple[tuple[str, ...], Cost]]
) -> None:
    found = check(config, semantics=semantics, client=client)
    assert [(conflict.settings, conflict.cost) for conflict in found] == expected


def test_a_setting_in_the_spelling_of_another_client_is_named_with_its_own() -> None:
    found = check({"enable_idempotence": True, "acks": "all", "retries": 3}, client=Client.CONFLUENT)
    assert found[0].settings == ("enable_idempotence",)
    assert found[0].remedy == "it is called enable.idempotence"
    assert [conflict.cost for conflict in check({"acks": "all", "retries": 3}, client=Client.AIOKAFKA)] == [
        Cost.REFUSED,
        Cost.DOUBLED,
    ]
    assert costs(check({"enable.idempotence": "true", "message.timeout.ms": "9"}, client=Client.JAVA)) == [Cost.IGNORED]


def test_the_client_is_told_by_the_names() -> None:
    assert check({"enable.idempotence": True, "queue.buffering.max.ms": 5}) == []
    assert check({"retries": 5, "delivery_timeout_ms": 120_000}) == []
    assert check({"enable_idempotence": True, "max_batch_size": 5}) == []


def test_what_the_names_do_not_tell_is_asked_for() -> None:
    with pytest.raises(UnknownSettings, match="whose settings"):
        check({"enable_idempotence": True})
    with pytest.raises(UnknownSettings, match="a producer or a consumer"):
        check({"bootstrap.servers": "127.0.0.1:9092"})


@pytest.mark.parametrize("client", list(Client))
def test_strict_order_is_looked_for_where_it_is_asked_for(client: Client) -> None:
    """Idempotence alone has five requests under way; aiokafka one. A conflict is named once."""
    producer = exactly_once(client).producer
    found = check(producer, client=client, strict_order=True)
    assert costs(found) == ([] if client is Client.AIOKAFKA else [Cost.OUT_OF_ORDER])
    assert check(exactly_once(client, strict_order=True).producer, client=client, strict_order=True) == []
    assert check(exactly_once(client).consumer, client=client, role="consumer", strict_order=True) == []


def test_a_conflict_over_order_is_named_once() -> None:
    config = {"enable.idempotence": False, "acks": "all", "retries": 9, "max.in.flight": 4}
    found = check(config, client=Client.CONFLUENT, semantics=Semantics.AT_LEAST_ONCE, strict_order=True)
    assert costs(found) == [Cost.OUT_OF_ORDER]


def test_the_largest_number_may_have_javas_name_for_it() -> None:
    assert check({"enable.idempotence": "true", "retries": "Integer.MAX_VALUE"}, client=Client.JAVA) == []
