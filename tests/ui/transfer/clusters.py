"""Two clusters, what a test puts into one of them, and what is in the other one afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from asking import Asker
from cluster_under_test import FOREIGN_CLUSTER
from plain_messages import build_request
from semel.client import LATEST, Isolation, LogClient, Slice, from_options
from semel.client.aborted import batches
from semel.client.places import TopicPartition
from semel.testing.broker import FaultyBroker
from semel.ui.transfer.move import Move, Moved
from semel.wire.records import Record
from semel.wire.versions import OFFSET_COMMIT, OFFSET_FETCH
from transacting import TransactionalProducer


def client_of(bootstrap: str, kind: type[LogClient] = LogClient, **settings: Any) -> LogClient:
    return kind(replace(from_options({"kafka.bootstrap.servers": bootstrap}), api_timeout_ms=20_000, **settings))


@contextmanager
def another_cluster() -> Iterator[str]:
    """The address of an empty broker of ours, or with SEMEL_TEST_BOOTSTRAP of any cluster."""
    if FOREIGN_CLUSTER is not None:
        yield FOREIGN_CLUSTER
        return
    with FaultyBroker() as broker:
        yield broker.bootstrap


def move(source: str, target: str, said: list[str] | None = None, **settings: Any) -> Moved:
    with client_of(source) as old, client_of(target) as new:
        return Move(old, new, [].append if said is None else said.append, lambda _: None, quiet_seconds=0).run()


def values_in(bootstrap: str, topic: str, partition: int = 0) -> list[str]:
    """The values of the committed records of a partition."""
    return [(record.value or b"").decode() for record in stored_in(bootstrap, topic, partition=partition)]


def stored_in(bootstrap: str, topic: str, start: int = 0, *, partition: int = 0) -> list[Record]:
    """The committed records of a partition from an offset on."""
    where = TopicPartition(topic, partition)
    with client_of(bootstrap) as client:
        found = client.topics([topic])[topic]
        end = client.offsets([where], LATEST, Isolation.READ_COMMITTED)[where]
        return [
            record
            for fetched in client.fetches(Slice(found, partition, start, end), Isolation.READ_COMMITTED)
            for batch, is_aborted in batches(fetched.records, fetched.aborted)
            for record in batch.records
            if not is_aborted and not batch.is_control and record.offset >= start
        ]


def commit_offset(bootstrap: str, group: str, topic: str, offset: int, partition: int = 0, note: str = "") -> None:
    """Have a group without members know where it goes on."""
    place = {"partition_index": partition, "committed_offset": offset, "committed_metadata": note}
    with Asker(bootstrap) as ask:
        answer = ask(
            OFFSET_COMMIT,
            9,
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[{"name": topic, "partitions": [place]}],
        )
    assert answer.topics[0].partitions[0].error_code == 0


def committed_offsets(bootstrap: str, group: str) -> dict[TopicPartition, tuple[int, str]]:
    """Where a group goes on, with what it noted."""
    with client_of(bootstrap) as client:
        coordinator = client.patiently(lambda: client.cluster.coordinator(group, 0))
        wanted = {"group_id": group, "topics": None}
        request = build_request(OFFSET_FETCH, 9, **wanted, groups=[wanted])
        (told,) = client.cluster.ask(coordinator, request).groups
    return {
        TopicPartition(topic.name, one.partition_index): (one.committed_offset, one.metadata)
        for topic in told.topics
        for one in topic.partitions
    }


def transactions(bootstrap: str, topic: str, count: int, name: str = "payments") -> list[str]:
    """Write so many transactions of three records; each third one is aborted. Answers what was committed."""
    kept = []
    with Asker(bootstrap) as ask:
        producer = TransactionalProducer(ask, name)
        assert producer.claim() == 0
        for number in range(count):
            values = [f"{number}.{part}" for part in range(3)]
            assert producer.add(topic) == [0]
            assert [producer.send(topic, value) for value in values] == [0, 0, 0]
            is_kept = number % 3 != 2
            assert producer.end(committed=is_kept) == 0
            kept += values if is_kept else []
    return kept
