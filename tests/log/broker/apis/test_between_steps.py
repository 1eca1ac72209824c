"""What comes between two steps of a request: what was found before a step is not trusted behind it."""

import asyncio
from collections.abc import Callable

from asking import fetch_fields
from semel.log.broker.broker import Broker
from semel.log.broker.limits import Limits
from semel.wire.errors import ErrorCode
from semel.wire.records import Record, encode_batch
from semel.wire.versions import DELETE_RECORDS, DELETE_TOPICS, FETCH, LIST_OFFSETS, PRODUCE
from stepping import SMALL_STEPS, Asked, after_each_step, ask, create


def produce(broker: Broker, name: str, *times_ms: int, index: int = 0) -> None:
    records = [Record(b"v" * 100, timestamp_ms=time_ms) for time_ms in times_ms]
    data = [{"name": name, "partition_data": [{"index": index, "records": bytes(encode_batch(records))}]}]
    answer = ask(broker, PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=data)
    assert answer.responses[0].partition_responses[0].error_code == 0


def offset_at(broker: Broker, name: str, time_ms: int) -> Asked:
    asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": time_ms}
    topics = [{"name": name, "partitions": [asked]}]
    return Asked(broker, LIST_OFFSETS, replica_id=-1, isolation_level=0, timeout_ms=1000, topics=topics)


def found_in(asked: Asked) -> tuple[int, int]:
    (found,) = asked.answer().topics[0].partitions
    return found.error_code, found.offset


def delete_below(broker: Broker, name: str, offset: int) -> None:
    topics = [{"name": name, "partitions": [{"partition_index": 0, "offset": offset}]}]
    assert ask(broker, DELETE_RECORDS, topics=topics, timeout_ms=1000).topics[0].partitions[0].error_code == 0


BATCH = 12


def test_a_time_is_found_however_the_log_moves_meanwhile() -> None:
    """Segments come and go between any two steps of the search, or the whole topic does."""

    def begin(broker: Broker) -> Asked:
        create(broker, "orders", segment_bytes="1024")
        # What is late enough in the first batch is gone already.
        produce(broker, "orders", 9, *[5] * (BATCH - 1))
        for number in range(1, 4):
            produce(broker, "orders", *[10 * number] * BATCH)
        delete_below(broker, "orders", 6)
        return offset_at(broker, "orders", 6)

    def delete_to(offset: int) -> Callable[[Broker, Asked], tuple[int, int]]:
        def delete(broker: Broker, asked: Asked) -> tuple[int, int]:
            delete_below(broker, "orders", offset)
            return found_in(asked)

        return delete

    def delete_topic(broker: Broker, asked: Asked) -> tuple[int, int]:
        topics = [{"name": "orders", "topic_id": bytes(16)}]
        assert ask(broker, DELETE_TOPICS, topics=topics, timeout_ms=1000).responses[0].error_code == 0
        return found_in(asked)

    assert set(after_each_step(begin, delete_to(BATCH))) == {(0, BATCH)}
    in_part, wholly = after_each_step(begin, delete_to(BATCH + 7)), after_each_step(begin, delete_topic)
    # Once it is found it is found, whatever happens before the answer is written.
    steps = wholly.index((0, BATCH))
    assert steps > BATCH
    assert set(wholly[:steps]) == {(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)}
    assert set(in_part[:steps]) == {(0, BATCH + 7)}


def test_a_time_is_found_in_a_segment_that_grows_meanwhile() -> None:
    def begin(broker: Broker) -> Asked:
        create(broker, "orders")
        produce(broker, "orders", 9, *[5] * (BATCH - 1))
        delete_below(broker, "orders", 6)
        return offset_at(broker, "orders", 6)

    def append(broker: Broker, asked: Asked) -> tuple[int, int]:
        produce(broker, "orders", *[1] * 700)
        produce(broker, "orders", 7)
        return found_in(asked)

    found = after_each_step(begin, append)
    assert found[0] == (0, BATCH + 700)
    assert set(found) <= {found[0], (0, -1)}


def test_a_fetch_does_not_wait_for_a_topic_that_went_while_it_was_looked_at() -> None:
    wanted = fetch_fields("orders", wait_ms=10_000)
    (partition,) = wanted["topics"][0]["partitions"]
    wanted["topics"][0]["partitions"] = [{**partition, "partition": index} for index in range(2)]

    async def waits_after(steps: int) -> bool | None:
        """Whether the fetch waits if the topic goes after so many steps of it; None if it has not so many."""
        async with Broker(durability="os", pace=SMALL_STEPS) as broker:
            create(broker, "orders", 2)
            asked = Asked(broker, FETCH, 12, **wanted)
            if not all(asked.step() for _ in range(steps)):
                return None
            topics = [{"name": "orders", "topic_id": bytes(16)}]
            assert ask(broker, DELETE_TOPICS, topics=topics, timeout_ms=1000).responses[0].error_code == 0
            while asked.step():
                pass
            for _ in range(20):
                await asyncio.sleep(0)
            return not asked.is_answered

    steps = 1
    while (waits := asyncio.run(waits_after(steps))) is not None:
        assert not waits, steps
        steps += 1
    assert steps > 2


async def test_what_others_gather_meanwhile_takes_its_room() -> None:
    """Very many may be served in steps at once, and each would have all the room that there is."""
    async with Broker(durability="os", pace=SMALL_STEPS, limits=Limits(unsent_bytes_max=1_300)) as broker:
        create(broker, "orders", partitions=3)
        for index in range(3):
            produce(broker, "orders", *[1] * 5, index=index)
        wanted = fetch_fields("orders")
        (topic,) = wanted["topics"]
        (first,) = topic["partitions"]
        topic["partitions"] = [{**first, "partition": index} for index in range(3)]

        def sizes(asked: Asked) -> list[int]:
            (answered,) = asked.answer().responses
            return [len(partition.records or b"") for partition in answered.partitions]

        alone = sizes(Asked(broker, FETCH, 12, **wanted))
        gathering = Asked(broker, FETCH, 12, **wanted)
        while not broker.unsent_bytes:
            gathering.step()
        beside = sizes(Asked(broker, FETCH, 12, **wanted))
        # The first batch comes whatever its size.
        assert ([bool(size) for size in alone], [bool(size) for size in beside]) == (
            [True, True, False],
            [True, False, False],
        )
        given_up = Asked(broker, FETCH, 12, **wanted)
        while broker.unsent_bytes == alone[0]:
            given_up.step()
        given_up.close()
        assert broker.unsent_bytes == alone[0]
        assert sizes(gathering) == alone
        assert broker.unsent_bytes == 0
        broker.log.sync_now()
