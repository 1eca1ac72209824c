"""The order of the checks on a batch: of several faults its sender hears the first, and a repetition of none."""

import pytest

from refusal import refused
from semel.log.core.batch_checks import LOCAL, Sender, Verdict, check_timestamps, judge_batch
from semel.log.core.configs import parse
from semel.log.core.entries import PartitionName, TopicCreated, TransactionalIdClaimed
from semel.log.core.groups.groups import Groups
from semel.log.core.shares import Shares
from semel.log.core.state import State
from semel.log.core.topics import Catalog
from semel.log.storage.examination import ExaminedPartition
from semel.wire import refusals
from semel.wire.batch import TRANSACTIONAL_BIT, BatchHeader
from semel.wire.sequences import Outcome

DAY_MS = 86_400_000
TIMELY = parse({"message.timestamp.after.max.ms": "1000"})
LATE_MS = 10 * DAY_MS


@pytest.fixture
def state() -> State[ExaminedPartition]:
    """A topic with one partition, a producer with a transactional id, and room for none."""
    state = State(
        Catalog(),
        Groups(),
        Shares(1),
        lambda topic, index, below: ExaminedPartition(PartitionName(topic.number, index), below),
    )
    state.apply(TopicCreated(1, "orders", bytes(16), 1, {}, 0))
    state.apply(TransactionalIdClaimed("mine", 7000, 3, -1, -1, 60_000, 0))
    return state


def batch(sequence: int = 0, epoch: int = 3, *, at_ms: int = LATE_MS) -> BatchHeader:
    return BatchHeader(0, 0, 0, 2, 0, TRANSACTIONAL_BIT, 0, at_ms, at_ms, 7000, epoch, sequence, 1)


def judged(state: State[ExaminedPartition], header: BatchHeader, sender: Sender = LOCAL) -> Verdict:
    return judge_batch(state, state.partitions.named(1, 0), header, TIMELY, sender, 0, DAY_MS)


def test_of_several_faults_the_first_is_told_and_a_repetition_hears_of_none(state: State[ExaminedPartition]) -> None:
    holder = state.partitions.named(1, 0)
    wrong_epoch = batch(epoch=2)
    with refused(refusals.INVALID_PRODUCER_EPOCH):
        judged(state, wrong_epoch)
    with refused(refusals.INVALID_TXN_STATE):
        judged(state, batch())
    with refused(refusals.TRANSACTION_ABORTABLE):
        judged(state, batch(), Sender(knows_abortable=True))
    state.partitions.producer_count = 1
    with refused(refusals.POLICY_VIOLATION):
        judged(state, batch(), Sender(joins=True))
    state.partitions.producer_count = 0
    with refused(refusals.INVALID_TIMESTAMP):
        judged(state, batch(), Sender(joins=True))
    assert judged(state, batch(at_ms=0), Sender(joins=True)).outcome is Outcome.ACCEPTED
    state.apply_batch(holder, batch(at_ms=0), 0)
    state.apply(TransactionalIdClaimed("mine", 7001, 0, -1, -1, 60_000, 0))
    # Its transactional id has another producer by now, its clock is ahead, and still it was stored.
    assert judged(state, batch()) == Verdict(Outcome.DUPLICATE, 0)
    with refused(refusals.INVALID_PRODUCER_ID_MAPPING):
        judged(state, batch(5))


def test_a_gap_in_an_open_transaction_is_told_before_there_is_no_room(state: State[ExaminedPartition]) -> None:
    state.partitions.producer_count = 1
    assert judged(state, batch(5), Sender(joins=True)).outcome is Outcome.GAP


def test_a_zombie_hears_that_it_is_fenced_whatever_else_is_wrong_with_its_batch(
    state: State[ExaminedPartition],
) -> None:
    holder = state.partitions.named(1, 0)
    state.apply_batch(holder, batch(epoch=5, at_ms=0)._replace(attributes=0, producer_id=1), 0)
    assert judged(state, batch(epoch=4)._replace(attributes=0, producer_id=1)).outcome is Outcome.FENCED


def test_where_the_log_sets_the_time_that_of_the_producer_may_be_any(state: State[ExaminedPartition]) -> None:
    configs = parse({"message.timestamp.after.max.ms": "1000", "message.timestamp.type": "LogAppendTime"})
    holder = state.partitions.named(1, 0)
    assert judge_batch(state, holder, batch(), configs, Sender(joins=True), 0, DAY_MS).outcome is Outcome.ACCEPTED


def test_a_batch_is_as_late_as_its_earliest_record_though_that_is_not_the_first(
    state: State[ExaminedPartition],
) -> None:
    configs = parse({"message.timestamp.before.max.ms": "100"})
    request = state, state.partitions.named(1, 0), batch(at_ms=1_000), configs, Sender(joins=True), 1_000, DAY_MS
    assert judge_batch(*request, 900).outcome is Outcome.ACCEPTED
    with refused(refusals.INVALID_TIMESTAMP):
        judge_batch(*request, 899)


def test_a_clock_that_is_off_by_exactly_what_is_allowed_is_not_off_by_too_much() -> None:
    check_timestamps(900, 1_200, 1_000, 100, 200)
    for earliest_ms, latest_ms in ((899, 1_200), (900, 1_201)):
        with refused(refusals.INVALID_TIMESTAMP):
            check_timestamps(earliest_ms, latest_ms, 1_000, 100, 200)
