"""How far a move is comes back as it was written, and is read when it is final."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from clusters import client_of

from semel.client import EARLIEST, Isolation, Slice, Topic, TopicPartition, admin
from semel.client.settings import from_options
from semel.ui.transfer.progress import _BATCH_BYTES, MoveRefused, _batches, read_progress
from semel.ui.transfer.topics import progress_topic
from semel.wire.record_bodies import RecordBody


def test_progress_that_is_too_large_for_a_batch_is_in_several_and_none_of_it_is_left_out() -> None:
    """A move that goes on after it was killed would leave groups where they were not."""
    sizes = [4_000] * 100 + [_BATCH_BYTES, 1, _BATCH_BYTES + 1, 5]
    bodies = [RecordBody(0, number, bytes(size)) for number, size in enumerate(sizes)]
    batches = list(_batches(bodies))
    assert [body for batch in batches for body in batch] == bodies
    assert all(len(batch) == 1 or sum(len(body.content) for body in batch) <= _BATCH_BYTES for batch in batches)


class LateCluster:
    """Ends the open transaction of an id a moment after it has answered who claimed the id, as Apache Kafka does."""

    settings = from_options({"kafka.bootstrap.servers": "127.0.0.1:9092", "kafka.retry.backoff.ms": "1"})

    def __init__(self) -> None:
        self.stable_ends = [1, 1, 3]

    def offsets(self, places: list[TopicPartition], at: object, isolation: Isolation) -> dict[TopicPartition, int]:
        if at is EARLIEST:
            return dict.fromkeys(places, 0)
        is_stable = isolation is Isolation.READ_COMMITTED
        return dict.fromkeys(places, self.stable_ends.pop(0) if is_stable else 3)

    def fetches(self, wanted: Slice, *_: object, **__: object) -> Iterator[Any]:
        yield from ()


def test_progress_is_read_when_the_last_transaction_of_the_former_move_has_ended() -> None:
    """Otherwise what that has committed is copied once more."""
    cluster: Any = LateCluster()
    assert read_progress(cluster, Topic("semel-move-x", uuid4(), 1)).known == 3
    assert cluster.stable_ends == []


def test_a_topic_that_would_delete_the_progress_in_time_is_refused(target: str) -> None:
    """A move that goes on after a week would begin anew, and double every record."""
    with client_of(target) as client:
        admin.create_topic(client.cluster, "semel-move-y", 1, {})
        with pytest.raises(MoveRefused, match=r"set cleanup\.policy=compact"):
            progress_topic(client, "semel-move-y")
