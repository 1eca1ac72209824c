"""Share consumers of librdkafka: each record goes to one of them, and a broker that is killed forgets nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from eventually import eventually
from semel.testing.broker import FaultyBroker

JOBS = [f"job {number}" for number in range(40)]


@contextmanager
def consumer(broker: FaultyBroker, **settings: str) -> Iterator[ShareConsumer]:
    client = ShareConsumer({"bootstrap.servers": broker.bootstrap, "group.id": "workers", "log_level": 0, **settings})
    client.subscribe(["jobs"])
    yield client
    client.close()


def begin_at_the_first_record(broker: FaultyBroker) -> None:
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ResourceType.GROUP, "workers", incremental_configs=[earliest])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.incremental_alter_configs([group])[group].result(30)


def produce(broker: FaultyBroker, jobs: list[str]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for job in jobs:
        producer.produce("jobs", job)
    assert producer.flush(30) == 0


@pytest.mark.skipif(not hasattr(ShareConsumer, "poll"), reason="this librdkafka has no share consumers")
def test_each_job_is_done_once_by_one_of_two_and_a_kill_forgets_nothing(semel_broker: FaultyBroker) -> None:
    semel_broker.create_topic("jobs", partitions=2)
    begin_at_the_first_record(semel_broker)
    done: list[str] = []
    seen: list[str] = []

    def work(*consumers: ShareConsumer) -> int:
        for one in consumers:
            for message in one.poll(0.2):
                assert message.error() is None
                job = message.value().decode()
                seen.append(job)
                if seen.count(job) == 1 and job.endswith("7"):
                    one.acknowledge(message, AcknowledgeType.RELEASE)
                else:
                    done.append(job)
                    one.acknowledge(message, AcknowledgeType.ACCEPT)
            one.commit_sync(timeout=30)
        return len(done)

    explicit = {"share.acknowledgement.mode": "explicit"}
    with consumer(semel_broker, **explicit) as one, consumer(semel_broker, **explicit) as two:
        produce(semel_broker, JOBS[:20])
        assert eventually(lambda: work(one, two) == 20)
    semel_broker.kill()
    semel_broker.start()
    produce(semel_broker, JOBS[20:])
    with consumer(semel_broker, **explicit) as three:
        assert eventually(lambda: work(three) >= 40)
    assert sorted(done) == sorted(JOBS)
    assert sorted(set(seen)) == sorted(JOBS)
    assert {job for job in seen if seen.count(job) == 2} == {job for job in JOBS if job.endswith("7")}
