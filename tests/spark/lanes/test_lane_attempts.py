"""One attempt to write a lane, without Spark: its rows and its marker are one transaction, behind one fence."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from asking import Asker
from semel.client import Unreachable, from_options
from semel.client.errors import Fenced
from semel.client.transaction import Transaction
from semel.spark.claims import BatchRefused, mark_of
from semel.spark.lanes import progress
from semel.spark.lanes.lane import LaneFailed, LaneWriter
from semel.spark.lanes.protocol import LaneClaim, Marker, Order
from semel.testing.broker import FaultyBroker
from semel.wire.versions import DELETE_TOPICS

TIMEOUT_MS = 60_000
CLAIM = LaneClaim("sink", 0, 1, "query", 0)
TIMES = pa.timestamp("us", tz="UTC")


@pytest.fixture
def lane(broker: FaultyBroker, ask: Asker) -> LaneWriter:
    ask.create("payments")
    client = from_options({"kafka.bootstrap.servers": broker.bootstrap, "kafka.retry.backoff.ms": "10"})
    return LaneWriter(client, progress.prepare(client, "progress", 1, may_grow=False), "payments", TIMEOUT_MS)


def rows(numbers: Sequence[int], time_ms: int = 1) -> list[pa.RecordBatch]:
    """Each row in a batch of its own."""
    times = pa.array([time_ms * 1000], TIMES)
    return [pa.record_batch({"value": pa.array([b"%d" % number]), "timestamp": times}) for number in numbers]


def stored(broker: FaultyBroker) -> list[int]:
    """What consumers of committed records get."""
    return [int(record.value or b"") for record in broker.log("payments", committed_only=True)]


def test_a_batch_that_is_made_again_is_found_and_one_with_other_rows_is_refused(
    broker: FaultyBroker, lane: LaneWriter
) -> None:
    batches = [range(3), range(3, 5), range(5, 9)]
    for number, numbers in enumerate(batches):
        claim = replace(CLAIM, batch_id=number)
        assert not lane.write(claim, rows(numbers)).was_duplicate
        assert lane.write(claim, rows(numbers[::-1])).was_duplicate
        with pytest.raises(BatchRefused, match=f"has written batch {number} as"):
            lane.write(claim, rows([*numbers[1:], 77]))
        with pytest.raises(BatchRefused, match=f"has written batch {number} as"):
            lane.write(claim, rows(numbers, time_ms=2))
    assert stored(broker) == list(range(9))


def test_the_rows_of_many_partitions_are_in_each_in_their_order(broker: FaultyBroker, lane: LaneWriter) -> None:
    keys = [b"%d" % (number % 7) for number in range(2_000)]
    values = [b"%d" % number for number in range(2_000)]
    asker = Asker(broker.bootstrap)
    asker.create("orders", 3)
    asker.close()
    batch = pa.record_batch({"key": pa.array(keys), "value": pa.array(values)})
    assert not replace(lane, topic="orders").write(CLAIM, [batch]).was_duplicate
    read: dict[int, list[int]] = {}
    for record in broker.log("orders", committed_only=True):
        assert record.key == keys[int(record.value or b"")]
        read.setdefault(record.partition, []).append(int(record.value or b""))
    assert sum(map(len, read.values())) == 2_000
    for numbers in read.values():
        assert all(one < following for one, following in pairwise(numbers))


def test_two_rows_that_are_alike_are_not_taken_for_two_others(broker: FaultyBroker, lane: LaneWriter) -> None:
    first, other = ([pa.record_batch({"value": pa.array([value] * 2)})] for value in (b"1", b"2"))
    assert not lane.write(CLAIM, first).was_duplicate
    with pytest.raises(BatchRefused):
        lane.write(CLAIM, other)
    assert stored(broker) == [1, 1]


def test_an_attempt_that_is_overtaken_behind_its_fence_writes_nothing(
    broker: FaultyBroker, lane: LaneWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_marker = progress.read_marker

    def overtaken(*arguments: Any) -> Marker | None:
        marker = read_marker(*arguments)
        monkeypatch.setattr(progress, "read_marker", read_marker)
        assert not lane.write(CLAIM, rows(range(5))).was_duplicate
        return marker

    monkeypatch.setattr(progress, "read_marker", overtaken)
    with pytest.raises(LaneFailed, match="was taken over by a later attempt"):
        lane.write(CLAIM, rows(range(5)))
    assert stored(broker) == list(range(5))


def test_an_attempt_that_is_overtaken_while_it_writes_leaves_nothing(broker: FaultyBroker, lane: LaneWriter) -> None:
    def slow() -> Iterator[pa.RecordBatch]:
        yield from rows(range(3))
        assert not lane.write(CLAIM, rows(range(5))).was_duplicate
        yield from rows(range(3, 5))

    with pytest.raises(LaneFailed, match="was taken over by a later attempt"):
        lane.write(CLAIM, slow())
    assert stored(broker) == list(range(5))


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (replace(CLAIM, query_id="other"), "belongs to query query, at batch 0, and query other claims batch 0"),
        (replace(CLAIM, lane_count=None), "is one of 1 lanes, and now of Spark's own partitions"),
        (replace(CLAIM, query_id="", order=Order.RISING), "is now to be written by numbered batch writes"),
    ],
)
def test_who_takes_a_name_that_is_taken_is_refused_and_disturbs_nobody(
    broker: FaultyBroker, lane: LaneWriter, other: LaneClaim, sentence: str
) -> None:
    """While the owner is in the middle of a batch."""

    def disturbed() -> Iterator[pa.RecordBatch]:
        yield from rows(range(3))
        with pytest.raises(BatchRefused, match=sentence):
            lane.write(other, rows(range(5)))
        yield from rows(range(3, 5))

    assert not lane.write(CLAIM, ()).was_duplicate
    assert not lane.write(replace(CLAIM, batch_id=1), disturbed()).was_duplicate
    assert stored(broker) == list(range(5))


def test_an_attempt_that_fails_before_its_commit_leaves_no_marker(
    broker: FaultyBroker, lane: LaneWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(transaction: Transaction) -> None:
        transaction._send(wait_for_all=True)
        raise Unreachable("no coordinator")

    with monkeypatch.context() as failing:
        failing.setattr(Transaction, "commit", fails)
        with pytest.raises(LaneFailed, match="could not be written"):
            lane.write(CLAIM, rows(range(5)))
    assert len(broker.log("progress")) == 1
    assert not lane.write(CLAIM, rows(range(5))).was_duplicate
    assert stored(broker) == list(range(5))


def test_after_a_commit_whose_answer_is_missing_nothing_is_claimed_of_it(
    broker: FaultyBroker, lane: LaneWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unheard(transaction: Transaction) -> None:
        commit(transaction)
        raise Fenced("another's by now")

    commit = Transaction.commit
    with monkeypatch.context() as failing:
        failing.setattr(Transaction, "commit", unheard)
        with pytest.raises(LaneFailed, match="nobody knows whether it was: another's by now"):
            lane.write(CLAIM, rows(range(5)))
    assert lane.write(CLAIM, rows(range(5))).was_duplicate


def test_a_topic_that_was_made_anew_has_no_rows_of_the_batches_before_and_the_lane_says_so(
    broker: FaultyBroker, ask: Asker, lane: LaneWriter
) -> None:
    """Its marker is in another topic, and outlives them."""
    for number in range(2):
        lane.write(replace(CLAIM, batch_id=number), rows([number]))
    ask(DELETE_TOPICS, 5, topic_names=["payments"], timeout_ms=1000)
    ask.create("payments")
    for number in (1, 2):
        with pytest.raises(BatchRefused, match=r"into a topic that was deleted since, .* those rows are gone"):
            lane.write(replace(CLAIM, batch_id=number), rows([number]))
    # Whoever knows that goes on, and the batch that was there is written again.
    going_on = replace(CLAIM, batch_id=1, accept_after=mark_of("query", 1))
    assert not lane.write(going_on, rows([1])).was_duplicate
    assert lane.write(replace(CLAIM, batch_id=1), rows([1])).was_duplicate
    assert not lane.write(replace(CLAIM, batch_id=2), rows([2])).was_duplicate
    assert stored(broker) == [1, 2]


def test_single_writes_do_not_care_whether_their_topic_was_made_anew(
    broker: FaultyBroker, ask: Asker, lane: LaneWriter
) -> None:
    lane.write(replace(CLAIM, query_id="one", order=Order.SINGLE), rows([1]))
    ask(DELETE_TOPICS, 5, topic_names=["payments"], timeout_ms=1000)
    ask.create("payments")
    assert not lane.write(replace(CLAIM, query_id="two", order=Order.SINGLE), rows([2])).was_duplicate
    assert stored(broker) == [2]
