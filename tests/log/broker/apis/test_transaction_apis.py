"""The APIs of transactions over the wire: who owns an id, what takes part, how it ends, and every refusal."""

from collections.abc import Iterator

import pytest

from asking import Asker, ConnectionEnded
from semel.log.broker.apis import APIS
from semel.log.broker.limits import Limits
from semel.log.embedded import EmbeddedBroker
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode
from semel.wire.versions import (
    ADD_PARTITIONS_TO_TXN,
    DELETE_TOPICS,
    END_TXN,
    INIT_PRODUCER_ID,
)
from transacting import TransactionalProducer, committed, described

FENCED, OLD_EPOCH = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
UNMAPPED, WRONG_STATE = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE
EPOCH_GIVEN_MAX = 2**15 - 2


def versions(api_key: int, begin: int = 0) -> range:
    return range(begin, APIS[api_key].served.stop)


@pytest.fixture
def other(semel_broker: FaultyBroker) -> Iterator[Asker]:
    """A connection that is newer than `ask`."""
    asker = Asker(semel_broker.bootstrap)
    yield asker
    asker.close()


# -- claiming ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(INIT_PRODUCER_ID))
def test_an_id_keeps_its_producer_id_and_every_claim_gets_the_next_epoch(ask: Asker, version: int) -> None:
    producer = TransactionalProducer(ask)
    assert producer.claim(version=version) == 0
    producer_id, epoch = producer.identity
    assert epoch == 0
    assert producer.claim(version=version) == 0
    assert producer.identity == (producer_id, 1)


@pytest.mark.parametrize(
    ("name", "timeout_ms", "error"),
    [
        ("", 1_000, ErrorCode.INVALID_REQUEST),
        ("x" * 1_025, 1_000, ErrorCode.INVALID_REQUEST),
        ("payments", 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("payments", -1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("payments", 900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_a_claim_that_cannot_be_is_refused(ask: Asker, name: str, timeout_ms: int, error: int) -> None:
    answer = ask(
        INIT_PRODUCER_ID, transactional_id=name, transaction_timeout_ms=timeout_ms, producer_id=-1, producer_epoch=-1
    )
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (error, -1, -1)


@pytest.mark.parametrize("half", [(5, -1), (-1, 5)])
def test_half_an_identity_is_refused(ask: Asker, half: tuple[int, int]) -> None:
    assert TransactionalProducer(ask).claim(supplied=half) == ErrorCode.INVALID_REQUEST


def test_a_retry_of_a_claim_gets_the_same_answer(ask: Asker, producer: TransactionalProducer) -> None:
    before = producer.identity
    producer.claim(supplied=before)
    after = producer.identity
    assert after == (before[0], 1)
    assert producer.claim(supplied=before) == 0
    assert producer.identity == after


@pytest.mark.parametrize(("version", "error"), [(3, OLD_EPOCH), (4, FENCED), (5, FENCED)])
def test_a_zombie_cannot_claim_its_id_back(
    ask: Asker, producer: TransactionalProducer, version: int, error: int
) -> None:
    zombie = producer.identity
    producer.claim()
    assert producer.claim(supplied=zombie, version=version) == error


def test_what_a_zombie_left_open_is_aborted_when_its_successor_hears_of_its_claim(
    ask: Asker, producer: TransactionalProducer
) -> None:
    ask.create("orders")
    producer.add("orders")
    producer.send("orders", "lost")
    zombie = producer.identity
    producer.claim()
    producer.add("orders")
    producer.send("orders", "kept")
    assert producer.add("orders", identity=zombie) == [FENCED]
    assert producer.send("orders", "late", identity=zombie) == OLD_EPOCH
    assert producer.end(identity=zombie) == FENCED
    assert producer.end() == 0
    assert committed(ask, "orders") == ["kept"]


# -- announcing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(ADD_PARTITIONS_TO_TXN))
def test_what_was_announced_takes_part_and_announcing_it_again_is_no_error(
    ask: Asker, producer: TransactionalProducer, version: int
) -> None:
    ask.create("orders", partitions=2)
    for _ in range(2):
        topics = [{"name": "orders", "partitions": [1, 0]}]
        fields = {f"v3_and_below_{name}": value for name, value in producer.owner().items()}
        transaction = {**producer.owner(), "verify_only": False, "topics": topics}
        answer = ask(ADD_PARTITIONS_TO_TXN, version, **fields, v3_and_below_topics=topics, transactions=[transaction])
        results = (
            answer.results_by_topic_v3_and_below if version < 4 else answer.results_by_transaction[0].topic_results
        )
        (topic,) = results
        assert [(result.partition_index, result.partition_error_code) for result in topic.results_by_partition] == [
            (1, 0),
            (0, 0),
        ]
    (taking_part,) = described(ask).topics
    assert (taking_part.topic, taking_part.partitions) == ("orders", (1, 0))


def test_where_one_partition_does_not_exist_none_is_added(ask: Asker, producer: TransactionalProducer) -> None:
    ask.create("orders")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.add("orders", "nowhere") == [ErrorCode.OPERATION_NOT_ATTEMPTED, unknown]
    assert producer.add("orders", partition=1) == [unknown]
    assert described(ask).transaction_state == "Empty"


@pytest.mark.parametrize(("version", "fenced"), [(0, OLD_EPOCH), (1, OLD_EPOCH), (2, FENCED), (3, FENCED)])
def test_who_does_not_own_an_id_can_announce_nothing(
    ask: Asker, producer: TransactionalProducer, version: int, fenced: int
) -> None:
    ask.create("orders")
    producer_id, epoch = producer.identity
    for identity, error in (
        ((producer_id, epoch + 1), fenced),
        ((producer_id + 1, epoch), UNMAPPED),
    ):
        assert producer.add("orders", version=version, identity=identity) == [error]
        assert producer.add_group("readers", version=version, identity=identity) == error
    stranger = TransactionalProducer(ask, "nobody")
    assert stranger.add("orders", version=version, identity=producer.identity) == [UNMAPPED]


def test_several_transactions_are_seen_to_at_once_and_each_for_itself(
    ask: Asker, producer: TransactionalProducer
) -> None:
    ask.create("orders")
    fence = {**producer.owner(), "producer_epoch": 7}
    topics = [{"name": "orders", "partitions": [0]}]
    asked = [
        {**producer.owner(), "verify_only": True, "topics": topics},
        {**producer.owner(), "verify_only": False, "topics": topics},
        {**producer.owner(), "verify_only": True, "topics": topics},
        {**fence, "verify_only": True, "topics": topics},
    ]
    answer = ask(ADD_PARTITIONS_TO_TXN, 5, transactions=asked)
    assert answer.error_code == 0
    assert [
        result.partition_error_code
        for transaction in answer.results_by_transaction
        for topic in transaction.topic_results
        for result in topic.results_by_partition
    ] == [ErrorCode.TRANSACTION_ABORTABLE, 0, 0, FENCED]


@pytest.mark.parametrize(("version", "error"), [(10, WRONG_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)])
def test_a_batch_that_was_not_announced_is_refused_in_words_that_its_version_knows(
    ask: Asker, producer: TransactionalProducer, version: int, error: int
) -> None:
    ask.create("orders")
    assert producer.send("orders", "early", version=version) == error
    producer.add("orders")
    assert producer.send("orders", "in time", version=version) == 0
    assert producer.end() == 0
    assert producer.send("orders", "late", version=version) == error
    assert committed(ask, "orders") == ["in time"]


def test_from_version_12_on_a_batch_announces_itself(ask: Asker, producer: TransactionalProducer) -> None:
    ask.create("orders")
    assert producer.send("orders", "first", version=12) == 0
    assert described(ask).transaction_state == "Ongoing"
    assert committed(ask, "orders") == []
    assert producer.end(version=5) == 0
    assert committed(ask, "orders") == ["first"]


# -- ending -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(END_TXN))
@pytest.mark.parametrize("commits", [False, True])
def test_a_transaction_ends_in_all_its_partitions_and_groups_at_once(
    ask: Asker, producer: TransactionalProducer, version: int, commits: bool
) -> None:
    for topic in ("orders", "payments"):
        ask.create(topic)
        producer.add(topic)
        producer.send(topic, "one")
        producer.send(topic, "two")
    producer.add_group("readers")
    producer.commit_offset("readers", "orders", 2)
    assert [committed(ask, topic) for topic in ("orders", "payments")] == [[], []]
    assert producer.end(committed=commits, version=version) == 0
    expected = ["one", "two"] if commits else []
    assert [committed(ask, topic) for topic in ("orders", "payments")] == [expected, expected]
    assert described(ask).transaction_state == ("CompleteCommit" if commits else "CompleteAbort")


def test_a_repeated_end_of_version_1_is_recognised_by_how_it_went(ask: Asker, producer: TransactionalProducer) -> None:
    ask.create("orders")
    assert producer.end() == WRONG_STATE
    assert producer.end(committed=False) == WRONG_STATE
    producer.add("orders")
    assert producer.end() == 0
    assert producer.end() == 0
    assert producer.end(committed=False) == WRONG_STATE
    producer.add("orders")
    assert producer.end(committed=False) == 0
    assert producer.end(committed=False) == 0
    assert producer.end() == WRONG_STATE


def test_a_repeated_end_of_version_2_is_recognised_by_its_epoch_and_answered_the_same(
    ask: Asker, producer: TransactionalProducer
) -> None:
    ask.create("orders")
    before = producer.identity
    producer.send("orders", "one", version=12)
    assert producer.end(version=5) == 0
    after = producer.identity
    assert after == (before[0], before[1] + 1)
    assert producer.end(version=5, identity=before) == 0
    assert producer.identity == after
    assert producer.end(version=5, identity=before, committed=False) == WRONG_STATE
    assert committed(ask, "orders") == ["one"]


def test_an_abort_of_nothing_raises_the_epoch_in_version_2(ask: Asker, producer: TransactionalProducer) -> None:
    before = producer.identity
    assert producer.end(version=5) == WRONG_STATE
    assert producer.end(version=5, committed=False) == 0
    assert producer.identity == (before[0], before[1] + 1)


def test_in_version_2_a_batch_that_arrives_after_its_transaction_is_refused(
    ask: Asker, producer: TransactionalProducer
) -> None:
    ask.create("orders")
    before = producer.identity
    producer.send("orders", "one", version=12)
    producer.end(version=5)
    assert producer.send("orders", "late", version=12, identity=before) == OLD_EPOCH
    assert described(ask).transaction_state == "CompleteCommit"


@pytest.mark.parametrize(("version", "error"), [(0, OLD_EPOCH), (1, OLD_EPOCH), (2, FENCED), (4, FENCED), (5, FENCED)])
def test_who_does_not_own_an_id_can_end_nothing(
    ask: Asker, producer: TransactionalProducer, version: int, error: int
) -> None:
    ask.create("orders")
    producer.add("orders")
    producer_id, epoch = producer.identity
    assert producer.end(version=version, identity=(producer_id, epoch + 1)) == error
    assert producer.end(version=version, identity=(producer_id + 1, epoch)) == UNMAPPED
    assert described(ask).transaction_state == "Ongoing"


def test_a_delayed_end_of_version_2_never_ends_a_later_transaction(ask: Asker, producer: TransactionalProducer) -> None:
    ask.create("orders")
    before = producer.identity
    producer.send("orders", "first", version=12)
    producer.end(version=5)
    producer.send("orders", "second", version=12)
    for commits in (True, False):
        assert producer.end(version=5, identity=before, committed=commits) == FENCED
    assert described(ask).transaction_state == "Ongoing"
    assert committed(ask, "orders") == ["first"]


@pytest.mark.parametrize("commits", [False, True])
def test_a_delayed_end_of_version_1_never_ends_a_later_transaction(
    ask: Asker, other: Asker, producer: TransactionalProducer, commits: bool
) -> None:
    """The client gave up the connection on which its EndTxn was delayed, ended over another, and began anew there."""
    ask.create("orders")
    producer.add("orders")
    producer.send("orders", "first")
    straggler, producer.ask = producer.ask, other
    assert producer.end() == 0
    producer.add("orders")
    producer.send("orders", "half of the second")
    producer.ask = straggler
    with pytest.raises(ConnectionEnded):
        producer.end(committed=commits)
    assert described(other).transaction_state == "Ongoing"
    assert committed(other, "orders") == ["first"]
    producer.ask = other
    producer.send("orders", "the other half")
    assert producer.end() == 0
    assert committed(other, "orders") == ["first", "half of the second", "the other half"]


def test_a_delayed_announcement_of_version_1_never_opens_a_transaction_again(
    ask: Asker, other: Asker, producer: TransactionalProducer
) -> None:
    ask.create("orders")
    producer.add("orders")
    straggler, producer.ask = producer.ask, other
    producer.end(committed=False)
    producer.ask = straggler
    with pytest.raises(ConnectionEnded):
        producer.add("orders")
    assert described(other).transaction_state == "CompleteAbort"


def test_a_zombie_on_a_newer_connection_does_not_make_its_successor_a_straggler(
    ask: Asker, other: Asker, producer: TransactionalProducer
) -> None:
    ask.create("orders")
    zombie = producer.identity
    producer.claim()
    producer.ask = other
    assert producer.add("orders", identity=zombie) == [FENCED]
    producer.ask = ask
    assert producer.add("orders") == [0]


def test_a_successor_may_have_connected_before_the_owner_it_replaces(
    ask: Asker, other: Asker, producer: TransactionalProducer
) -> None:
    ask.create("orders")
    producer.ask = other
    assert producer.add("orders") == [0]
    assert producer.add_group("readers") == 0
    assert producer.commit_offset("readers", "orders", 1) == 0
    successor = TransactionalProducer(ask)
    successor.claim()
    assert successor.add("orders") == [0]
    assert successor.add_group("readers") == 0
    assert successor.commit_offset("readers", "orders", 2) == 0
    assert successor.end() == 0
    assert producer.add("orders") == [ErrorCode.PRODUCER_FENCED]


def test_a_topic_that_is_deleted_drops_out_of_the_transaction(ask: Asker, producer: TransactionalProducer) -> None:
    for topic in ("orders", "payments"):
        ask.create(topic)
        producer.add(topic)
        producer.send(topic, "one")
    deleted = {"topics": [{"name": "orders", "topic_id": bytes(16)}], "timeout_ms": 1000}
    assert ask(DELETE_TOPICS, **deleted).responses[0].error_code == 0
    ask.create("orders")
    assert producer.end() == 0
    assert committed(ask, "payments") == ["one"]
    assert ask.fetch("orders").high_watermark == 0


# 32,767 transactions.
@pytest.mark.slow
def test_where_the_epochs_are_used_up_version_2_hands_out_a_new_producer_id(
    ask: Asker, producer: TransactionalProducer
) -> None:
    ask.create("orders")
    for _ in range(EPOCH_GIVEN_MAX):
        producer.end(version=5, committed=False)
    before = producer.identity
    assert before[1] == EPOCH_GIVEN_MAX
    producer.send("orders", "last", version=12)
    assert producer.end(version=5) == 0
    assert producer.identity[0] > before[0]
    assert producer.identity[1] == 0
    after = producer.identity
    assert producer.end(version=5, identity=before) == 0
    assert producer.identity == after
    producer.send("orders", "first", version=12)
    assert producer.end(version=5) == 0
    assert committed(ask, "orders") == ["last", "first"]


# -- what outlives the process ----------------------------------------------------------------------------------------


def test_a_transaction_survives_the_death_of_the_broker_and_its_zombie_stays_fenced(
    ask: Asker, semel_broker: FaultyBroker, producer: TransactionalProducer
) -> None:
    ask.create("orders")
    zombie = producer.identity
    producer.claim()
    producer.add("orders")
    producer.send("orders", "one")
    for _ in range(2):
        semel_broker.kill()
        semel_broker.start()
        producer.ask = Asker(semel_broker.bootstrap)
        assert described(producer.ask).transaction_state == "Ongoing"
        assert committed(producer.ask, "orders") == []
        assert producer.end(identity=zombie) == FENCED
    assert producer.send("orders", "two") == 0
    assert producer.end() == 0
    assert committed(producer.ask, "orders") == ["one", "two"]


@pytest.mark.parametrize("version", [4, 5])
def test_a_repeated_end_is_recognised_after_the_death_of_the_broker(
    ask: Asker, semel_broker: FaultyBroker, producer: TransactionalProducer, version: int
) -> None:
    ask.create("orders")
    before = producer.identity
    producer.add("orders")
    producer.send("orders", "one")
    assert producer.end(version=version) == 0
    after = producer.identity
    semel_broker.kill()
    semel_broker.start()
    producer.ask = Asker(semel_broker.bootstrap)
    assert producer.end(version=version, identity=before) == 0
    assert producer.identity == after
    assert producer.end(version=version, identity=before, committed=False) == WRONG_STATE


def test_a_retry_of_a_claim_is_recognised_after_the_death_of_the_broker(
    ask: Asker, semel_broker: FaultyBroker, producer: TransactionalProducer
) -> None:
    before = producer.identity
    producer.claim(supplied=before)
    after = producer.identity
    semel_broker.kill()
    semel_broker.start()
    producer.ask = Asker(semel_broker.bootstrap)
    assert producer.claim(supplied=before) == 0
    assert producer.identity == after


# -- bounds -----------------------------------------------------------------------------------------------------------


def test_beyond_every_bound_there_is_a_refusal_that_says_so() -> None:
    limits = Limits(transactional_ids_max=4, open_transactions_max=1, transaction_partitions_max=1)
    with EmbeddedBroker(limits=limits) as broker:
        ask = Asker(broker.bootstrap)
        ask.create("orders", partitions=2)
        first, second, third = (TransactionalProducer(ask, name) for name in ("a", "b", "c"))
        assert [one.claim() for one in (first, second, third)] == [0, 0, ErrorCode.POLICY_VIOLATION]
        assert first.add("orders") == [0]
        assert first.add("orders", partition=1) == [ErrorCode.POLICY_VIOLATION]
        assert first.send("orders", "one", partition=1, version=12) == ErrorCode.POLICY_VIOLATION
        assert first.add_group("readers") == ErrorCode.POLICY_VIOLATION
        assert second.add("orders") == [ErrorCode.POLICY_VIOLATION]
        assert first.end() == 0
        assert second.add("orders") == [0]
        ask.close()


def test_announcing_puts_no_more_producers_on_record_than_there_may_be() -> None:
    """The end of a transaction leaves its producer on record in each partition, though it never wrote there."""
    with EmbeddedBroker(limits=Limits(producer_states_max=1)) as broker:
        ask = Asker(broker.bootstrap)
        ask.create("orders", partitions=2)
        producer = TransactionalProducer(ask)
        producer.claim()
        assert producer.add("orders") == [0]
        assert producer.end() == 0
        assert producer.add("orders", partition=1) == [ErrorCode.POLICY_VIOLATION]
        assert producer.add("orders") == [0]
        assert producer.end() == 0
        ask.close()
