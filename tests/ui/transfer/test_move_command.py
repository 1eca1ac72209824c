"""`semel move` from a broker into another cluster: what it says, what it refuses, and that it goes on after kill -9."""

import pytest
from clusters import client_of, commit_offset
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place

from eventually import eventually
from semel.client import LATEST, Isolation, TopicPartition
from semel.testing.broker import FaultyBroker
from semel_command import semel, semel_failure, started


def test_it_says_what_was_moved_and_what_to_do_next(source: FaultyBroker, target: str, topic: str) -> None:
    source.create_topic(topic)
    source.seed(topic, "a", "b")
    commit_offset(source.bootstrap, topic, topic, 1)
    done = semel("move", "--from", source.bootstrap, "--to", f"kafka:{target}")
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        [
            "moved 1 topic, 1 partition, 2 records, the offsets of 1 group",
            "compared record by record: 0 lost, 0 doubled, 0 out of order",
            f"start producers and groups with bootstrap.servers={target}, and none with {source.bootstrap}",
        ],
    )
    assert "waiting until no client has written for 3 s" in done.stderr
    again = semel("move", "--from", source.bootstrap, "--to", target)
    assert again.stdout == "moved before: 1 topic, 1 partition, the offsets of 1 group; nothing was changed\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("127.0.0.1:1", "./data"),
            "the log of a running broker can only be moved into another cluster, HOST:PORT; stop the broker",
        ),
        (
            ("./data", "127.0.0.1:1"),
            "the log of a running broker can only be moved into another cluster, HOST:PORT; stop the broker",
        ),
        (("127.0.0.1:99999", "127.0.0.1:1"), "'127.0.0.1:99999' is not an address"),
        (("./a", "./b"), "name a directory and a store"),
        (("./a", "file:///b", "--to-config", "f"), "--from-config and --to-config are for clusters, HOST:PORT"),
        (("127.0.0.1:1", "127.0.0.1:2", "--to-config", "/none"), "/none: No such file"),
    ],
)
def test_what_cannot_be_is_one_line(words: tuple[str, ...], message: str) -> None:
    assert semel_failure("move", "--from", words[0], "--to", words[1], *words[2:]).startswith(message)


RECORDS = 60_000
# Large enough that a move takes several transactions.
PADDING = b" " * 1_000


def fill(bootstrap: str, topic: str, partitions: int) -> dict[int, list[str]]:
    """Transactions of a real client, some of them aborted. Answers what was committed in each partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    committed: dict[int, list[str]] = {number: [] for number in range(partitions)}
    for begin in range(0, RECORDS, 2_000):
        producer.begin_transaction()
        for number in range(begin, begin + 2_000):
            producer.produce(topic, b"%d" % number + PADDING, partition=number % partitions)
            producer.poll(0)
        if begin % 10_000 == 4_000:
            producer.abort_transaction(60)
            continue
        producer.commit_transaction(60)
        for number in range(begin, begin + 2_000):
            committed[number % partitions].append(str(number))
    return committed


def read_some(bootstrap: str, topic: str, group: str, count: int) -> list[str]:
    """What a member of the group reads before it commits its position and leaves; all there is if `count` is 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    values: list[str] = []
    ended: set[int] = set()
    while len(values) < count if count else len(ended) < len(consumer.assignment() or [None]):
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is not None:
            ended.add(message.partition() or 0)
            continue
        ended.discard(message.partition() or 0)
        values.append((message.value() or b"").decode().strip())
    consumer.commit(asynchronous=False)
    consumer.close()
    return values


@pytest.mark.slow
def test_a_move_that_is_killed_three_times_loses_and_doubles_nothing(
    source: FaultyBroker, target: str, topic: str
) -> None:
    source.create_topic(topic, 3)
    committed = fill(source.bootstrap, topic, 3)
    read_before = read_some(source.bootstrap, topic, topic, 10_000)
    command = ("move", "--from", source.bootstrap, "--to", target)
    for offsets in (1_000, 20_000, 40_000):
        process = started(*command)
        assert eventually(lambda offsets=offsets: offsets_in(target, topic, 3) > offsets)
        process.kill()
        process.communicate()
        assert process.returncode == -9
    done = semel(*command)
    assert done.returncode == 0, done.stderr
    assert "0 lost, 0 doubled, 0 out of order" in done.stdout
    assert {number: values_in_all(target, topic, number) for number in range(3)} == committed
    read_after = read_some(target, topic, topic, 0)
    assert sorted([*read_before, *read_after]) == sorted(value for values in committed.values() for value in values)


def offsets_in(bootstrap: str, topic: str, partitions: int) -> int:
    """How many offsets the topic has by now, those of aborted records and markers included."""
    with client_of(bootstrap) as client:
        if topic not in client.topics([topic]):
            return 0
        places = [TopicPartition(topic, number) for number in range(partitions)]
        return sum(client.offsets(places, LATEST, Isolation.READ_UNCOMMITTED).values())


def values_in_all(bootstrap: str, topic: str, partition: int) -> list[str]:
    """All committed values of a partition, read by a real client."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
        | {"enable.partition.eof": True, "enable.auto.commit": False}
    )
    consumer.assign([Place(topic, partition, 0)])
    values: list[str] = []
    while True:
        message = consumer.poll(10)
        assert message is not None
        if message.error() is not None:
            consumer.close()
            return values
        values.append((message.value() or b"").decode().strip())
