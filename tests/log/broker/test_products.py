"""Two bounds that are each fine hold nobody up together: the corners of the limits, in counted steps.

Each corner is built smaller than the limits allow, in two sizes: the steps of the smaller one and their growth give
those at the limits. A loop over one limit within a loop over another grows with the product, and fails here.
"""

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import share_corners
from corners import CORNERS, corner

from asking import NEWEST
from counted_steps import steps_of
from semel.log.broker.assigned_groups import some_of
from semel.log.broker.broker import Broker
from semel.log.broker.sessions import FetchSessions
from semel.log.broker.wakeups import NOTIFIED_AT_ONCE, notify
from semel.log.core.aborted import AbortedTransactions
from semel.log.core.configs import parse
from semel.log.core.entries import (
    ConsumerGroupChanged,
    OffsetsCommitted,
    PartitionName,
    StoredOffset,
    TopicDeleted,
    TransactionalIdClaimed,
    TransactionalOffsets,
    TransactionEnded,
)
from semel.log.core.groups import classic
from semel.log.core.groups.assigned_group import MemberRules
from semel.log.core.groups.classic_group import ClassicGroup
from semel.log.core.groups.classic_steps import ClassicRules, JoinRequest, Step
from semel.log.core.groups.consumer import ConsumerGroup
from semel.log.core.groups.consumer_assignment import assignment, decide_targets
from semel.log.core.groups.consumer_requests import Heartbeat
from semel.log.core.groups.group import FORGOTTEN_AT_ONCE
from semel.log.core.groups.groups import Groups
from semel.log.core.groups.partitions import NOTHING
from semel.log.core.partition import Partition
from semel.log.core.producer_table import Snapshot
from semel.log.core.topics import Catalog
from semel.log.core.transaction_rules import FORGOTTEN_PER_ENTRY, TransactionRules
from semel.log.core.transactions import Transactions
from semel.log.storage.aborted_blocks import BLOCK_LAYOUT
from semel.log.storage.checkpoint import PartitionParts
from semel.log.storage.encoding import decode, encode
from semel.log.storage.files import MemoryFiles
from semel.log.storage.log import Log
from semel.log.storage.partition_log import SEGMENTS_MAX, PartitionLog, Watcher
from semel.log.storage.segment import Index
from semel.log.storage.segment_files import SegmentFiles
from semel.wire.batch import read_header
from semel.wire.errors import ErrorCode
from semel.wire.fetch import FetchPartition, FetchPartitionAnswer, FetchRequest, FetchTopic, encode_response
from semel.wire.records import Record, encode_batch
from semel.wire.refusals import Refused
from semel.wire.steps import Pace, Steps, finish
from semel.wire.versions import FETCH, INCREMENTAL_ALTER_CONFIGS
from stepping import ask, create, in_a_broker

assert share_corners, "it has corners of its own"
TABLE: dict[str, Any] = {
    product.name: product
    for product in runpy.run_path(str(Path(__file__).parents[3] / "tools/products.py"))["PRODUCTS"]
}
TOPIC, OTHER_TOPIC = 1, 2
GROUP = "readers"


def offsets(count: int, *, number: int = TOPIC, first: int = 0, value: int = 5) -> tuple[StoredOffset, ...]:
    return tuple([StoredOffset(number, partition, value, -1, "") for partition in range(first, first + count)])


def open_transactions(groups: Groups, count: int, *, partition: int = 0, group: str = GROUP) -> None:
    """So many, each with a pending offset in one partition."""
    for producer_id in range(count):
        groups.apply(TransactionalOffsets(producer_id, 0, group, offsets(1, first=partition), 0))


def names(count: int) -> list[PartitionName]:
    return [PartitionName(TOPIC, partition) for partition in range(count)]


@corner("offsets deleted", small=500, at_limits=4_000)
def _(size: int) -> Callable[[], object]:
    groups = Groups()
    groups.apply(OffsetsCommitted(GROUP, offsets(20_000), -1, 0))
    open_transactions(groups, size)
    group = groups.existing(GROUP)

    def delete() -> None:
        wanted = names(20_000)
        entry = group.decide_forget("t", wanted[: group.at_once(wanted)])
        assert entry is not None
        groups.apply(entry)

    return delete


@corner("offsets expired", small=1_000, at_limits=20_000)
def _(size: int) -> Callable[[], object]:
    groups = Groups()
    groups.apply(OffsetsCommitted(GROUP, offsets(size), -1, 0))
    open_transactions(groups, size // 5, partition=1)
    entries = groups.decide_expiry(groups.existing(GROUP), 1_000_000, 1, lambda _: "t")
    return lambda: groups.apply(next(entries))


@corner("offsets committed by a transaction", small=1_000, at_limits=20_000)
def _(size: int) -> Callable[[], object]:
    groups = Groups()
    groups.apply(OffsetsCommitted(GROUP, offsets(size), -1, 0))
    groups.apply(TransactionalOffsets(1, 0, GROUP, offsets(size, value=6), 0))
    return lambda: groups.apply(TransactionEnded(1, 0, 1, 0, True, (), (GROUP,), 0))


@corner("topic deleted with offsets", small=1_000, at_limits=20_000)
def _(size: int) -> Callable[[], object]:
    groups = Groups()
    for number in range(50):
        groups.apply(OffsetsCommitted(f"g{number}", offsets(size), -1, 0))
    return lambda: groups.apply(TopicDeleted(TOPIC, 0, 0))


@corner("topic deleted with pending offsets", small=500, at_limits=4_000)
def _(size: int) -> Callable[[], object]:
    groups = Groups()
    for number in range(size):
        groups.apply(TransactionalOffsets(number, 0, f"g{number}", offsets(1), 0))
    return lambda: groups.apply(TopicDeleted(TOPIC, 0, 0))


@corner("offsets fetched", small=500, at_limits=4_000)
def _(size: int) -> Callable[[], object]:
    groups = Groups()
    open_transactions(groups, size, partition=1)
    view = groups.existing(GROUP).offsets.view(with_pending=True)
    return lambda: view.is_pending(PartitionName(TOPIC, 0))


class Told(Watcher):
    """A fetch that waits, and counts how often it is told that there is more."""

    def __init__(self) -> None:
        self.count = 0

    def moved(self, partition: PartitionLog) -> None:
        self.count += 1


@corner("fetches told of an append", small=1_000, at_limits=256_000)
def _(size: int) -> Callable[[], object]:
    partition = PartitionLog(1, 0, "", SegmentFiles(MemoryFiles(), 1), BLOCK_LAYOUT, Partition())
    partition.watchers.update((Told(), None) for _ in range(size))
    steps = notify(partition)
    return lambda: next(steps)


def log_of(partitions: int) -> Log:
    """A log with a topic that has so many partitions."""
    log = Log.open(MemoryFiles(), new_cluster_id="products")
    log.commit(log.state.catalog.decide_create("first", partitions, {}, bytes(16), 0))
    return log


@corner("topic created", small=1_000, at_limits=20_000)
def _(size: int) -> Callable[[], object]:
    log = log_of(1)
    return lambda: log.commit(log.state.catalog.decide_create("t", size, {}, b"t" * 16, 0))


@corner("partitions added", small=1_000, at_limits=20_000)
def _(size: int) -> Callable[[], object]:
    log = log_of(1)
    return lambda: log.commit(log.state.catalog.decide_partitions("first", size))


@corner("topic deleted", small=500, at_limits=20_000)
def _(size: int) -> Callable[[], object]:
    log = log_of(size)
    assert len(log.state.partitions.all()) == size
    return lambda: log.commit(log.state.catalog.decide_delete("first", 0, 0))


@corner("catalog copied", small=500, at_limits=10_000)
def _(size: int) -> Callable[[], object]:
    log = log_of(1)
    for number in range(size):
        log.state.apply(log.state.catalog.decide_create(f"t{number}", 1, {}, (number + 1).to_bytes(16), 0))
    return lambda: next(log.begin_checkpoint(), None)


def segmented(size: int) -> PartitionLog:
    """A partition with so many segments, the last of which is empty."""
    partition = log_of(1).state.partitions.named(0, 0)
    segments = [(number, number + 1, 100, 0, 0, 0, -1, 0) for number in range(size - 1)]
    segments.append((size - 1, size - 1, 0, 0, 0, 0, -1, 0))
    record = {
        "log_start": 0,
        "next_offset": size - 1,
        "epochs": [],
        "cleaned_until": 0,
        "segments": segments,
        "given_up": [],
    }
    partition.restore(record, PartitionParts(Index(), Snapshot({}, []), {}, b"", b""))
    partition.readable = partition.stable = partition.end_mark()
    return partition


@corner("segments copied", small=1_000, at_limits=10_000)
def _(size: int) -> Callable[[], object]:
    partition = segmented(size)
    return lambda: (partition.to_record(), partition.to_parts(), partition.to_files())


@corner("segments looked through", small=1_000, at_limits=10_000)
def _(size: int) -> Callable[[], object]:
    partition = segmented(size)
    return lambda: (partition.retained_from(10_000, 1, -1), partition.latest_timestamp(partition.readable))


@corner("segments deleted", small=1_000, at_limits=10_000)
def _(size: int) -> Callable[[], object]:
    partition = segmented(size)
    return lambda: partition.apply_log_start(size - 1)


def aborted(size: int) -> AbortedTransactions:
    transactions = AbortedTransactions()
    for number in range(size):
        transactions.note(number, 2 * number, 2 * number + 1, 2 * number + 2)
    return transactions


@corner("aborted transactions found", small=1_000, at_limits=65_000)
def _(size: int) -> Callable[[], object]:
    transactions, block = aborted(size), 128
    blocks = []
    while transactions.young_count >= block:
        blocks.append(transactions.oldest(block))
        transactions.put_away(block)
    return lambda: transactions.between(0, 2 * size, lambda numbers: [blocks[number] for number in numbers])


@corner("aborted transactions sent", small=2_000, at_limits=65_000)
def _(size: int) -> Callable[[], object]:
    answer = FetchPartitionAnswer(0, 0, 0, 0, 0, [(number, number) for number in range(size)], (b"records",))
    return lambda: encode_response(NEWEST[FETCH], 1, 0, 0, [(None, bytes(16), [answer])])


@corner("fetch session begun", small=1_000, at_limits=30_000)
def _(size: int) -> Callable[[], object]:
    sessions = FetchSessions(sessions_max=1, partitions_max=size)
    partitions = [FetchPartition(index, 0, 1, -1, -1) for index in range(size)]
    request = FetchRequest(0, 0, 0, 0, 0, 0, [FetchTopic("t", None, partitions)], [], "")
    return lambda: sessions.resolve(request, False, 0)


@corner("silent transactional ids", small=2 * FORGOTTEN_PER_ENTRY, at_limits=100_000)
def _(size: int) -> Callable[[], object]:
    known = Transactions()
    for number in range(size):
        known.apply(TransactionalIdClaimed(str(number), number, 0, -1, -1, 1, 0))
    rules = TransactionRules(known)
    return lambda: rules.decide_forget(rules.parts()[0], 10, 1)


def joining(size: int) -> ClassicGroup:
    """A classic group whose members have joined and wait for their generation."""
    rules = ClassicRules(size, 2**30, 1, 10_000, 0, 10_000, 40)
    group = ClassicGroup(GROUP)
    for number in range(size):
        member_id = f"m{number}"
        request = JoinRequest(
            "", member_id, None, "client", "/host", "consumer", {"range": b"s" * 100}, 5_000, 5_000, False, True
        )
        classic.join(group, request, object(), 0, rules)
    return group


def completed(group: ClassicGroup) -> Step:
    """The step that begins the generation, after the delays for the first members."""
    step = Step(0)
    while not step.answers:
        assert group.rebalance.join_deadline_ms is not None
        step = classic.pass_time(group, group.rebalance.join_deadline_ms)
    return step


@corner("generation of a classic group begun", small=200, at_limits=2_000)
def _(size: int) -> Callable[[], object]:
    group = joining(size)
    return lambda: completed(group)


@corner("classic group stored", small=200, at_limits=2_000)
def _(size: int) -> Callable[[], object]:
    group = joining(size)
    completed(group)
    assignments = {member.member_id: b"a" * 100 for member in group.members}
    log = log_of(1)
    log.state.groups.classic(GROUP)
    followed = Groups()

    def store() -> None:
        entry = group.to_store(assignments, 0)
        log.commit(entry)
        kind, parts = encode(entry)
        followed.apply(decode(kind, memoryview(b"".join(parts))))

    return store


def subscribed(size: int, topics: int) -> tuple[ConsumerGroup, Catalog]:
    """A group of the new protocol whose members read the same topics of two partitions."""
    catalog = Catalog()
    for number in range(topics):
        catalog.apply(catalog.decide_create(f"t{number:05}", 2, {}, number.to_bytes(16), 0))
    group = ConsumerGroup()
    names = tuple([topic.name for topic in catalog])
    for number in range(size):
        beat = Heartbeat(f"m{number}", 0, "client", "/host", None, None, 1_000, names, None, None, NOTHING)
        entry = group.decide_heartbeat(GROUP, beat, catalog, MemberRules(), 0)
        assert entry is not None
        group.check(entry)
        group.apply(entry)
    return group, catalog


def assign(group: ConsumerGroup, catalog: Catalog) -> None:
    entry = decide_targets(group, GROUP, finish(assignment(group, catalog)), group.epoch, group.epoch, 0)
    group.check(entry)
    group.apply(entry)


@corner("consumer group joined", small=20, at_limits=2_000)
def _(size: int) -> Callable[[], object]:
    # As many topics as members, five at the limits: the sum counts, and not the product.
    group, catalog = subscribed(size, 5 * size)
    names = tuple([topic.name for topic in catalog])
    beat = Heartbeat("new", 0, "client", "/host", None, None, 1_000, names, None, None, NOTHING)

    def join() -> None:
        entry = group.decide_heartbeat(GROUP, beat, catalog, MemberRules(), 0)
        assert entry is not None
        group.check(entry)
        group.apply(entry)

    return join


@corner("consumer group assigned", small=40, at_limits=2_000)
def _(size: int) -> Callable[[], object]:
    group, catalog = subscribed(size, 5 * size)
    steps = assignment(group, catalog)
    next(steps)
    return lambda: turn(steps)


def turn(steps: Steps[object]) -> None:
    """What is done in one turn of the event loop."""
    left = Pace().pieces_per_turn
    for pieces in steps:
        assert isinstance(pieces, int)
        left -= pieces
        if left <= 0:
            return


@corner("consumer group's targets stored", small=60, at_limits=2_000)
def _(size: int) -> Callable[[], object]:
    group, catalog = subscribed(size, 5 * size)
    rest = dict(finish(assignment(group, catalog)))

    def store() -> None:
        entry = decide_targets(group, GROUP, some_of(rest), group.epoch, group.target_epoch, 0)
        kind, parts = encode(entry)
        again = decode(kind, memoryview(b"".join(parts)))
        assert isinstance(again, ConsumerGroupChanged)
        group.check(again)
        group.apply(again)

    return store


def test_fetches_that_wait_are_told_and_answered_in_steps() -> None:
    def test(broker: Broker) -> None:
        create(broker, "quiet")
        (partition,) = broker.log.state.partitions.all()
        watchers = [Told() for _ in range(10 * NOTIFIED_AT_ONCE)]
        partition.watchers.update((watcher, None) for watcher in watchers)
        # However often it grows before they are told, they are told once.
        broker.log.note_moved(partition)
        broker.log.note_moved(partition)
        assert not any(watcher.count for watcher in watchers)
        steps = broker.wakeups._steps()
        next(steps)
        assert sum(watcher.count for watcher in watchers) == NOTIFIED_AT_ONCE
        del partition.watchers[watchers[-1]]
        assert len(list(steps)) == 9
        assert [watcher.count for watcher in watchers] == [*[1] * (10 * NOTIFIED_AT_ONCE - 1), 0]

    in_a_broker(test)


def test_every_product_of_limits_has_a_corner_that_is_built_here() -> None:
    assert CORNERS.keys() == TABLE.keys()


@pytest.mark.parametrize("name", CORNERS)
def test_at_the_limits_one_turn_takes_no_more_steps_than_the_table_says(name: str) -> None:
    build, small, at_limits = CORNERS[name]
    some, more = steps_of(build(small)), steps_of(build(2 * small))
    assert more <= 2.1 * some + 1_000, "it grows with a product"
    assert some + (more - some) * (at_limits - small) / small <= TABLE[name].steps_max


def test_a_transaction_has_a_bound_on_its_offsets_in_all_groups_together() -> None:
    groups = Groups(transaction_offsets_max=10)
    groups.apply(TransactionalOffsets(1, 0, "a", offsets(6), 0))
    # Once more for the same partitions.
    groups.check_offsets("a", offsets(6), 1)
    groups.check_offsets("b", offsets(4), 1)
    with pytest.raises(Refused, match="has 10 offsets, no more are allowed"):
        groups.check_offsets("b", offsets(5), 1)
    groups.check_offsets("b", offsets(10), 2)
    groups.apply(TransactionEnded(1, 0, 1, 0, True, (), ("a",), 0))
    groups.check_offsets("b", offsets(10), 1)
    groups.apply(TransactionalOffsets(1, 0, "b", offsets(10), 0))
    groups.apply(TopicDeleted(TOPIC, 0, 0))
    groups.check_offsets("b", offsets(10, number=OTHER_TOPIC), 1)


def test_offsets_are_deleted_in_entries_that_each_remove_few() -> None:
    groups = Groups()
    groups.apply(OffsetsCommitted(GROUP, offsets(2 * FORGOTTEN_AT_ONCE), -1, 0))
    group = groups.existing(GROUP)
    assert group.at_once(names(2 * FORGOTTEN_AT_ONCE)) == FORGOTTEN_AT_ONCE
    assert group.at_once(names(3)) == 3
    open_transactions(groups, FORGOTTEN_AT_ONCE, partition=1)
    assert group.at_once(names(2 * FORGOTTEN_AT_ONCE)) == 2


def test_a_partition_with_very_many_segments_begins_no_small_ones_any_more() -> None:
    partition = segmented(SEGMENTS_MAX)
    small_segments = parse({"segment.bytes": "1024", "segment.ms": "1"})
    for at_ms in (1_000, 2_000):
        batch = encode_batch([Record(value=b"v" * 2_000)], base_offset=partition.state.next_offset)
        partition.write(read_header(batch), batch, at_ms, small_segments)
        partition.apply_append(read_header(batch), at_ms)
    assert len(partition.segments) == SEGMENTS_MAX


def test_a_partition_that_was_not_used_yet_takes_no_place_and_has_the_leniency_of_its_time() -> None:
    log = log_of(3)
    partitions = log.state.partitions
    assert partitions.used() == []
    log.commit(log.state.catalog.decide_delete("first", 7, 0))
    log.commit(log.state.catalog.decide_create("first", 1, {}, b"t" * 16, 0))
    log.state.catalog.expire(1_000, 1)
    log.commit(log.state.catalog.decide_partitions("first", 2))
    (topic,) = log.state.catalog
    assert [partitions.named(topic.number, index).state.lenient_blocks for index in (1, 0)] == [0, 7]
    assert partitions.at(topic.number, 2) is None
    assert [partition.index for partition in partitions.used()] == [1, 0]


def test_a_request_may_set_a_thousand_configurations_of_a_resource_and_no_more() -> None:
    def test(broker: Broker) -> None:
        create(broker, "t")
        for count, error in ((1_000, ErrorCode.INVALID_CONFIG), (1_001, ErrorCode.INVALID_REQUEST)):
            configs = [{"name": f"c{number}", "config_operation": 0, "value": "1"} for number in range(count)]
            resource = {"resource_type": 2, "resource_name": "t", "configs": configs}
            (answer,) = ask(broker, INCREMENTAL_ALTER_CONFIGS, resources=[resource], validate_only=False).responses
            assert answer.error_code == error

    in_a_broker(test)
