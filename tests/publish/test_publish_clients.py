"""What a publisher says that has waited in vain: what its client met, and what to look at."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from semel.chaos.plan import Fault, FaultPlan
from semel.chaos.proxy import ChaosProxy
from semel.publish import Publisher, PublishFailed
from semel.publish.clients import NO_COORDINATOR, ClientEvents, lacking
from semel.publish.transaction import Interrupted
from semel.testing.broker import FaultyBroker

INIT_PRODUCER_ID = 22
SECONDS = 2.0


def reason_of(bootstrap: str, **client: object) -> str:
    settings = {name.replace("_", "."): value for name, value in client.items()}
    publisher = Publisher(bootstrap, name="orders", client=settings, timeout_seconds=SECONDS)
    with pytest.raises(PublishFailed) as failed:
        publisher.open()
    assert "\n" not in str(failed.value)
    return str(failed.value)


def test_a_login_that_is_refused_is_named_and_not_a_broker_that_is_silent(faulty: FaultyBroker) -> None:
    login = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "x",
        "sasl_password": "y",
    }
    reason = reason_of(faulty.bootstrap, **login)
    assert "SASL" in reason
    assert reason.endswith("look at sasl.mechanism, sasl.username and sasl.password")


def test_an_address_where_nobody_listens_is_named() -> None:
    reason = reason_of("127.0.0.1:1")
    assert "Connection refused" in reason
    assert reason.endswith("look at bootstrap.servers and security.protocol, and whether a broker runs there")


def test_a_coordinator_that_is_not_there_is_named_with_what_to_look_at(faulty: FaultyBroker) -> None:
    with ChaosProxy(faulty.bootstrap, FaultPlan(hang_ms=60_000)) as proxy:
        Publisher(proxy.bootstrap, name="orders").open()
        proxy.plan.arm(Fault.HANG, 1, INIT_PRODUCER_ID)
        assert reason_of(proxy.bootstrap).endswith(NO_COORDINATOR)


def test_what_was_met_before_an_answer_is_over_and_the_users_own_callback_hears_of_it() -> None:
    told: list[KafkaError] = []
    events = ClientEvents()
    listen = events.listener(told.append)
    refused, all_down = KafkaError(KafkaError._TRANSPORT, "refused"), KafkaError(KafkaError._ALL_BROKERS_DOWN)
    listen(refused)
    listen(all_down)
    assert told == [refused, all_down]
    assert events.why("timed out").startswith("refused: look at")
    events.forget()
    assert events.why("timed out") == "timed out"
    assert events.why("timed out", "look there") == "timed out: look there"


@pytest.mark.parametrize(
    ("code", "named"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "; this user needs the right Write on topic 'orders'"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "; this user needs the right Write on group 'orders'"),
        (
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "; this user needs the right Write on transactional id 'orders'",
        ),
        (KafkaError._TRANSPORT, ""),
    ],
)
def test_a_right_that_is_missing_is_named_and_no_other_error_is_said_to_be_for_want_of_one(
    code: int, named: str
) -> None:
    assert lacking(KafkaError(code), "Write", "orders") == named


def test_a_transaction_that_was_refused_a_partition_says_what_it_most_often_lacks() -> None:
    """As Apache Kafka refuses it: the client purges the records, and tells nobody of the refusal."""
    assert str(Interrupted(KafkaError(KafkaError._PURGE_QUEUE))).endswith("the right Write on one of its topics")
    assert "Write" not in str(Interrupted(KafkaError(KafkaError._TRANSPORT)))
