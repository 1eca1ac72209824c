"""What is shown of transactional ids and their transactions, and to whom."""

from typing import Any

import pytest

from asking import Asker
from semel.wire.errors import ErrorCode
from semel.wire.versions import DESCRIBE_PRODUCERS, LIST_TRANSACTIONS
from transacting import TransactionalProducer, described


def listed(ask: Asker, **filters: object) -> Any:
    return ask(LIST_TRANSACTIONS, **{"state_filters": [], "producer_id_filters": [], **filters})


def test_a_transactional_id_is_described_with_what_takes_part(ask: Asker, producer: TransactionalProducer) -> None:
    ask.create("orders", partitions=2)
    state = described(ask)
    assert (state.error_code, state.transaction_state, state.topics) == (0, "Empty", ())
    assert (state.producer_id, state.producer_epoch) == producer.identity
    assert state.transaction_timeout_ms == 60_000
    producer.add("orders", partition=1)
    state = described(ask)
    assert state.transaction_state == "Ongoing"
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [("orders", (1,))]
    assert state.transaction_start_time_ms > 0


@pytest.mark.parametrize(
    ("name", "error"), [("nobody", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND), ("", ErrorCode.INVALID_REQUEST)]
)
def test_an_id_that_there_is_not_is_described_as_that(ask: Asker, name: str, error: int) -> None:
    state = described(ask, name)
    assert (state.error_code, state.producer_id, state.transaction_state) == (error, -1, "")


def test_transactional_ids_are_listed_as_far_as_they_meet_every_filter(ask: Asker) -> None:
    ask.create("orders")
    producers = {name: TransactionalProducer(ask, name) for name in ("a-1", "a-2", "b:1")}
    for producer in producers.values():
        producer.claim()
    producers["a-2"].add("orders")
    id_of = {name: producer.identity[0] for name, producer in producers.items()}

    def names(**filters: object) -> set[str]:
        return {state.transactional_id for state in listed(ask, **filters).transaction_states}

    assert names() == set(producers)
    assert names(state_filters=["Ongoing"]) == {"a-2"}
    assert names(state_filters=["Ongoing", "Empty"]) == set(producers)
    assert names(state_filters=["Dead"]) == set()
    assert names(producer_id_filters=[id_of["a-1"], -5]) == {"a-1"}
    assert names(state_filters=["Empty"], producer_id_filters=[id_of["a-2"]]) == set()
    assert names(duration_filter=3_600_000) == set()
    assert names(transactional_id_pattern="a-.*") == {"a-1", "a-2"}
    assert names(transactional_id_pattern="") == set(producers)
    assert names(transactional_id_pattern="a") == set()
    assert names(transactional_id_pattern=".*:1") == {"b:1"}
    (one,) = listed(ask, producer_id_filters=[id_of["a-2"]]).transaction_states
    assert (one.producer_id, one.transaction_state) == (id_of["a-2"], "Ongoing")


def test_a_state_that_there_is_not_is_named_in_the_answer(ask: Asker, producer: TransactionalProducer) -> None:
    answer = listed(ask, state_filters=["Ongoing", "Sleeping", "Sleeping", "PrepareCommit"])
    assert answer.unknown_state_filters == ("Sleeping",)
    assert answer.transaction_states == ()


def test_a_pattern_that_is_none_is_refused(ask: Asker) -> None:
    assert listed(ask, transactional_id_pattern="(").error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_who_writes_a_partition_is_shown_with_where_its_open_transaction_begins(
    ask: Asker, producer: TransactionalProducer
) -> None:
    ask.create("orders")

    def active() -> Any:
        (topic,) = ask(DESCRIBE_PRODUCERS, topics=[{"name": "orders", "partition_indexes": [0]}]).topics
        (one,) = topic.partitions[0].active_producers
        return one.producer_id, one.producer_epoch, one.current_txn_start_offset

    producer.send("orders", "one", version=12)
    producer_id, epoch = producer.identity
    assert active() == (producer_id, epoch, 0)
    producer.end(version=5)
    assert active() == (producer_id, epoch + 1, -1)
