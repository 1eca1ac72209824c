"""A client without manners, in a process of its own: it sends one large request after another, several at once, for as
long as somebody else is measured. Its requests are bytes that were made beforehand, so that it takes nothing from the
machine itself. Nothing here may know which broker it talks to."""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from bench.clients import LoadFailed
from bench.peers.process import Broker
from semel.wire import kafka, messages

GROUP = "hostile"
VERSION = 9
REQUESTS_AT_ONCE = 5
CONNECT_SECONDS_MAX = 10.0
COORDINATOR_SECONDS_MAX = 60.0


@contextmanager
def committing(broker: Broker, topic: str, partitions: int) -> Iterator[None]:
    """While this lasts somebody commits offsets of so many partitions in each request, as fast as they are answered."""
    _have_a_coordinator(broker, topic)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_commit, args=(theirs, broker.port, topic, partitions), daemon=True)
    process.start()
    theirs.close()
    try:
        _hear(ours)
        yield
        # It has been at it all the while.
        ours.send("and now?")
        _hear(ours)
    finally:
        process.kill()
        process.join()


def _hear(connection: Connection) -> None:
    try:
        said = connection.recv()
    except EOFError:
        raise LoadFailed("the hostile client died") from None
    if said:
        raise LoadFailed(said)


def _have_a_coordinator(broker: Broker, topic: str) -> None:
    """A broker that has none yet makes one for the first who asks properly."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP, "log_level": 0})
    deadline = time.monotonic() + COORDINATOR_SECONDS_MAX
    try:
        while True:
            try:
                consumer.committed([TopicPartition(topic, 0)], timeout=COORDINATOR_SECONDS_MAX)
                return
            except KafkaException as error:
                # It is being made.
                if error.args[0].code() != KafkaError.NOT_COORDINATOR or time.monotonic() > deadline:
                    raise
    finally:
        consumer.close()


def _commit(connection: Connection, port: int, topic: str, partitions: int) -> None:
    frame = _request(topic, partitions)
    with socket.create_connection(("127.0.0.1", port), timeout=CONNECT_SECONDS_MAX) as stream:
        stream.settimeout(None)
        answers = stream.makefile("rb")
        stream.sendall(frame)
        refused = _refusal(answers.read(int.from_bytes(answers.read(4))))
        connection.send(refused)
        if refused:
            return
        for _ in range(REQUESTS_AT_ONCE):
            stream.sendall(frame)
        while True:
            answer = answers.read(int.from_bytes(answers.read(4)))
            if connection.poll():
                connection.recv()
                connection.send(_refusal(answer))
            stream.sendall(frame)


def _request(topic: str, partitions: int) -> bytes:
    api = kafka.offset_commit
    committed = [
        api.OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
        for index in range(partitions)
    ]
    request = api.OffsetCommitRequest(
        group_id=GROUP,
        member_id="",
        topics=[api.OffsetCommitRequestTopic(name=topic, partitions=committed)],
    )
    return messages.encode_request(request, VERSION, 1, "hostile")


def _refusal(answer: bytes) -> str:
    """What is wrong with an answer to the request above, or nothing."""
    # After the number of the request and the tags of the header.
    decoded = messages.decode_response(kafka.offset_commit.OffsetCommitResponse, VERSION, answer[5:])
    errors = {partition.error_code for topic in decoded.topics for partition in topic.partitions}
    return "" if errors == {0} else f"the hostile commits were refused: errors {sorted(errors)}"
