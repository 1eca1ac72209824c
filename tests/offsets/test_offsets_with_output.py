"""A record has its effect once by its place: over rollbacks, restarts and two consumers at once; and an offset that the
partition does not have is refused."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Column, Connection, Engine, Integer, MetaData, Table, Text, insert, select

from semel import offsets
from semel.database import engine_of, read_only
from semel.testing.broker import FaultyBroker

tables = MetaData()
effects = Table("effects", tables, Column("value", Text), Column("offset", Integer))


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    made = engine_of(url)
    offsets.metadata.create_all(made)
    tables.create_all(made)
    yield made
    made.dispose()


def book(connection: Connection, offset: int, value: str = "") -> bool:
    is_due = offsets.advance(connection, "billing", "orders", 0, offset)
    if is_due:
        connection.execute(insert(effects), {"value": value, "offset": offset})
    return is_due


def booked(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return sorted(connection.scalars(select(effects.c.offset)))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.booleans()), max_size=30))
def test_it_does_what_the_highest_offset_of_each_partition_says(steps: list[tuple[int, int, bool]]) -> None:
    """The model keeps one number for a partition; a transaction that is rolled back was never there."""
    with tempfile.TemporaryDirectory() as directory:
        engine = engine_of(f"sqlite:///{directory}/test.db")
        offsets.metadata.create_all(engine)
        model: dict[int, int] = {}
        for partition, offset, commits in steps:
            with engine.connect() as connection, connection.begin() as transaction:
                is_due = offset >= model.get(partition, 0)
                assert offsets.advance(connection, "billing", "orders", partition, offset) == is_due
                if not commits:
                    transaction.rollback()
                elif is_due:
                    model[partition] = offset + 1
        with engine.connect() as connection:
            assert offsets.next_offsets(connection, "billing") == {("orders", one): n for one, n in model.items()}
        engine.dispose()


def test_of_two_consumers_at_once_one_does_the_effect(url: str, engine: Engine) -> None:
    """As around a rebalance, when the old consumer is still at work."""
    if engine.dialect.name == "mysql":
        pytest.skip("one of two that begin at once may get a deadlock, and has to repeat")
    other = engine_of(url)

    def work(number: int) -> bool:
        with (engine, other)[number % 2].begin() as connection:
            return book(connection, number // 2)

    with ThreadPoolExecutor(6) as threads:
        # Offsets only rise in a partition; so each record is tried by both before the next one is.
        outcomes = [list(threads.map(work, (2 * offset, 2 * offset + 1))) for offset in range(20)]
    assert [sum(each) for each in outcomes] == [1] * 20
    assert booked(engine) == list(range(20))
    other.dispose()


def test_what_was_rolled_back_comes_again_and_holes_do_no_harm(engine: Engine) -> None:
    def fail() -> None:
        with engine.begin() as connection:
            book(connection, 3)
            raise ConnectionError

    with pytest.raises(ConnectionError):
        fail()
    for offset in (0, 3, 3, 2, 7):
        with engine.begin() as connection:
            book(connection, offset)
    assert booked(engine) == [0, 3, 7]


@pytest.mark.parametrize("wrong", [("", "t", 0, 0), ("c", "", 0, 0), ("c", "t", -1, 0), ("c", "t", 0, -1)])
def test_what_is_no_place_is_refused(engine: Engine, wrong: Any) -> None:
    with engine.begin() as connection, pytest.raises(ValueError, match="offset"):
        offsets.advance(connection, *wrong)


def test_each_consumer_and_each_topic_has_its_own_offsets(engine: Engine) -> None:
    """To forget those of one begins again there and nowhere else; the effects of the others would come twice."""
    places = [(consumer, topic, 1) for consumer in ("billing", "shipping") for topic in ("orders", "refunds")]
    for offset, place in enumerate(places):
        with engine.begin() as connection:
            assert offsets.advance(connection, *place, offset)
    with engine.begin() as connection:
        assert offsets.next_offsets(connection, "billing") == {("orders", 1): 1, ("refunds", 1): 2}
        offsets.forget(connection, "billing", "orders")
        assert offsets.next_offsets(connection, "billing") == {("refunds", 1): 2}
        assert offsets.next_offsets(connection, "shipping") == {("orders", 1): 3, ("refunds", 1): 4}


def consumer_of(broker: FaultyBroker, engine: Engine) -> Consumer:
    """The group commits nothing: what it knows is in the table alone."""
    made = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "billing",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
        }
    )
    made.subscribe(["orders"], on_assign=offsets.seeking(engine, "billing"))
    return made


def test_a_consumer_goes_on_where_its_output_ends(engine: Engine, semel_broker: FaultyBroker) -> None:
    """The first one dies after the database has committed two of three records, and told no broker so."""
    semel_broker.seed("orders", "a", "b", "c")
    for counts in ((1, 1), (1,)):
        consumer = consumer_of(semel_broker, engine)
        for count in counts:
            for record in consumer.consume(count, timeout=30):
                with engine.begin() as connection:
                    assert book(connection, record.offset() or 0, str(record.value()))
        consumer.close()
    assert booked(engine) == [0, 1, 2]


def test_each_partition_goes_on_where_it_is_itself(engine: Engine, semel_broker: FaultyBroker) -> None:
    """One has been read to its end, one in part, and one not at all."""
    semel_broker.create_topic("orders", 3)
    for partition, known in ((0, 2), (1, 1)):
        with engine.begin() as connection:
            offsets.advance(connection, "billing", "orders", partition, known - 1)
    for partition in range(3):
        semel_broker.seed("orders", f"{partition}.0", f"{partition}.1", partition=partition)
    consumer = consumer_of(semel_broker, engine)
    found = {record.value() for record in consumer.consume(3, timeout=30)}
    assert found == {b"1.1", b"2.0", b"2.1"}
    consumer.close()


def test_records_that_were_deleted_before_they_were_read_are_not_passed_over(
    engine: Engine, semel_broker: FaultyBroker
) -> None:
    semel_broker.seed("orders", "a", "b", "c")
    with engine.begin() as connection:
        offsets.advance(connection, "billing", "orders", 0, 0)
    admin = AdminClient({"bootstrap.servers": semel_broker.bootstrap})
    for done in admin.delete_records([TopicPartition("orders", 0, 2)]).values():
        done.result(30)
    consumer = consumer_of(semel_broker, engine)
    with pytest.raises(offsets.OffsetsDoNotFit, match="were deleted before they were read"):
        consumer.poll(30)
    consumer.close()


@pytest.mark.parametrize(("known", "why"), [(9, "made again"), (2, None)])
def test_a_topic_that_was_made_again_is_refused(
    engine: Engine, semel_broker: FaultyBroker, known: int, why: str | None
) -> None:
    semel_broker.seed("orders", "a", "b", "c")
    with engine.begin() as connection:
        offsets.advance(connection, "billing", "orders", 0, known - 1)
    consumer = consumer_of(semel_broker, engine)
    if why is None:
        [record] = consumer.consume(1, timeout=30)
        assert record.value() == b"c"
    else:
        with pytest.raises(offsets.OffsetsDoNotFit, match=why):
            consumer.poll(30)
        with engine.begin() as connection:
            offsets.forget(connection, "billing", "orders")
            assert offsets.next_offsets(connection, "billing") == {}
    consumer.close()


def test_the_file_of_a_killed_process_holds_effect_and_offset_or_neither(tmp_path: Path) -> None:
    """One transaction, one commit: what a copy of the file shows at any moment agrees with itself."""
    engine = engine_of(f"sqlite:///{tmp_path}/test.db")
    offsets.metadata.create_all(engine)
    tables.create_all(engine)
    reader = engine_of(f"sqlite:///{tmp_path}/test.db")
    for offset in range(5):
        with engine.begin() as connection:
            book(connection, offset)
            # Before the commit another process sees neither.
            with read_only(reader).connect() as other:
                assert other.scalars(select(effects.c.offset)).all() == list(range(offset))
                assert offsets.next_offsets(other, "billing") == ({("orders", 0): offset} if offset else {})
