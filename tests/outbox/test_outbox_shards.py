"""The number of shards may change, aggregates keep their order, and a log that knows of other batches is refused."""

from __future__ import annotations

from typing import Any

import pytest
from relaying import Relays, add, count_batches, count_waiting, die_over_a_batch
from sqlalchemy import Engine, select

from committed_records import committed_records, committed_values
from eventually import eventually
from semel import outbox
from semel.database import engine_of
from semel.outbox import OutOfStep, RelayFenced, RelayRefused, Unsettled, ledger
from semel.outbox.layout import AtHand, change, renew, settled
from semel.outbox.tables import messages, shards
from semel.publish import Publisher

# -- shards ------------------------------------------------------------------------------------------------------------


def test_shards_publish_side_by_side_and_each_aggregate_stays_in_one(
    engine: Engine, topic: str, bootstrap: str, relays: Relays
) -> None:
    places = set()

    class Watched(Publisher):
        def publish(self, number: int, *records: Any) -> Any:
            places.update((record.key, self._settings.name) for record in records)
            return super().publish(number, *records)

    running = relays.run(publisher=Watched, shards=3, batch_rows=2)
    for number in range(40):
        add(engine, topic, str(number), key=f"{number % 20}")
    assert eventually(lambda: running.relay.progress().messages == 40)
    assert sorted_by_key(bootstrap, topic) == {b"%d" % key: [key, key + 20] for key in range(20)}
    assert len({name for _, name in places}) == 3
    assert len(places) == 20


def sorted_by_key(bootstrap: str, topic: str) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for record in committed_records(bootstrap, topic):
        found.setdefault(record.key(), []).append(int(record.value() or b""))  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("before", [True, False])
def test_another_number_of_shards_is_taken_once_what_is_at_hand_is_in_the_log(
    engine: Engine,
    topic: str,
    bootstrap: str,
    relays: Relays,
    before: bool,
) -> None:
    for number in range(20):
        add(engine, topic, str(number), key=f"key {number % 5}")
    die_over_a_batch(relays, before=before, shards=2, batch_rows=3)
    for count in (3, 1, 2):
        for number in range(20, 25):
            add(engine, topic, str(number + 5 * count), key=f"key {number % 5}")
        relays.drain(shards=count)
        with engine.connect() as connection:
            assert len(outbox.status(connection).shards) == count
    # Who says nothing has what there is.
    relays.drain()
    found = sorted_by_key(bootstrap, topic)
    assert sorted(number for numbers in found.values() for number in numbers) == [
        *range(20),
        *range(25, 40),
    ]
    later = {key: [15 + 20 + key, 5 + 20 + key, 10 + 20 + key] for key in range(5)}
    assert found == {f"key {key}".encode(): [*range(key, 20, 5), *later[key]] for key in range(5)}


def test_a_relay_with_the_old_number_of_shards_is_fenced(engine: Engine, relays: Relays) -> None:
    first = relays.run(shards=2)
    assert eventually(lambda: is_owned(engine, 2))
    relays.drain(shards=1)
    first.end()
    assert isinstance(first.error, RelayFenced)


def test_a_relay_that_begins_while_the_number_of_shards_is_changed_takes_none(engine: Engine, relays: Relays) -> None:
    """It has read the old number, by which a shard would be of other aggregates than by the new one."""
    relays.drain(shards=4)
    with engine.connect() as connection:
        before = connection.execute(select(shards)).all()
    with pytest.raises(RelayRefused, match="had 2 shards, and it has 4 now"), engine.begin() as connection:
        ledger.take_over(connection, ledger.Owner(0, 2, "late"), "late", 0)
    with engine.connect() as connection:
        assert connection.execute(select(shards)).all() == before


def test_a_relay_whose_shard_was_taken_over_does_not_change_their_number(engine: Engine) -> None:
    """The other relay has the shard by the old number, and would publish what the change moves to another shard."""
    with engine.begin() as connection:
        settled(connection, None, 2)
        for shard, life in ((0, "ours"), (1, "theirs")):
            ledger.take_over(connection, ledger.Owner(shard, 2, life), life, 0)
    with pytest.raises(RelayFenced, match="shard 1 of the outbox was taken over"), engine.begin() as connection:
        change(connection, 3, {0: "ours", 1: "ours"})
    with engine.connect() as connection:
        assert settled(connection, None, None).shards == 2


def test_the_number_of_shards_does_not_change_while_a_batch_may_be_in_the_log_or_not(
    engine: Engine, topic: str, relays: Relays
) -> None:
    """Its messages would be published again by another shard, under another publisher's name."""
    add(engine, topic, "first")
    die_over_a_batch(relays, before=False, shards=2)
    with engine.connect() as connection:
        owners = {row.shard: row.owner for row in connection.execute(select(shards))}
    with pytest.raises(OutOfStep, match="is at hand"), engine.begin() as connection:
        change(connection, 3, owners)
    with engine.connect() as connection:
        assert settled(connection, None, None).shards == 2


def test_the_shard_of_an_aggregate_is_the_same_in_every_version(engine: Engine) -> None:
    """Else an upgrade would put new messages into another shard than those that still wait, and they would overtake."""
    aggregates = [b"", b"order-17", b"\x00\xff", "größe".encode()]
    with engine.begin() as connection:
        for aggregate in (None, *aggregates):
            outbox.add(connection, "orders", aggregate=aggregate)
        buckets = list(connection.scalars(select(messages.c.bucket).order_by(messages.c.number)))
    assert buckets == [309448485, 309448485, 2625348322, 1501631466, 2700527704]


def is_owned(engine: Engine, count: int) -> bool:
    with engine.connect() as connection:
        owners = list(connection.scalars(select(shards.c.owner)))
    return len(owners) == count and None not in owners


def test_the_name_is_the_one_of_the_first_relay(engine: Engine, relays: Relays) -> None:
    relays.drain(name="shop")
    relays.drain()
    with pytest.raises(RelayRefused, match="is relayed under the name 'shop'"):
        relays.drain(name="another")


# -- log and database have to agree ------------------------------------------------------------------------------------


def test_a_database_that_is_older_than_the_log_is_refused(engine: Engine, topic: str, relays: Relays) -> None:
    add(engine, topic, "first")
    relays.drain()
    with engine.begin() as connection:
        connection.execute(shards.update().values(last_batch=-1))
    add(engine, topic, "second")
    with pytest.raises(OutOfStep, match="older than the log, as after a restore"):
        relays.drain()


def test_a_relay_that_goes_on_hears_that_its_database_has_lost_batches(
    engine: Engine, topic: str, bootstrap: str, relays: Relays
) -> None:
    # As when a replica takes over that was some transactions behind.
    running = relays.run()
    for number in range(3):
        add(engine, topic, f"{number}")
        assert eventually(lambda expected=number + 1: count_batches(engine) == expected)
    with engine.begin() as connection:
        connection.execute(shards.update().values(last_batch=0))
        outbox.add(connection, topic, "k", "new")
    running.end()
    assert isinstance(running.error, OutOfStep)
    assert committed_values(bootstrap, topic) == [b"0", b"1", b"2"]
    with engine.connect() as connection:
        assert connection.scalars(select(messages.c.value)).all() == [b"new"]


@pytest.mark.parametrize("last_batch", [0, 7])
def test_another_cluster_is_refused(engine: Engine, topic: str, relays: Relays, last_batch: int) -> None:
    with engine.begin() as connection:
        settled(connection, None, None)
        connection.execute(shards.update().values(last_batch=last_batch))
    add(engine, topic, "first")
    with pytest.raises(OutOfStep, match="was published, and the log knows of none after -1: it is another cluster"):
        relays.drain()


@pytest.mark.parametrize("at_hand", list(AtHand))
def test_an_outbox_that_is_renewed_begins_anew_with_what_waits(
    engine: Engine, topic: str, bootstrap: str, relays: Relays, at_hand: AtHand
) -> None:
    add(engine, topic, "in the log")
    relays.drain()
    add(engine, topic, "at hand")
    die_over_a_batch(relays, before=True)
    add(engine, topic, "waits")
    with pytest.raises(Unsettled, match="batch 1 of shard 0 may be in the log or not"), engine.begin() as connection:
        renew(connection)
    with engine.begin() as connection:
        renew(connection, at_hand)
        assert outbox.status(connection).name is None
    sent = [b"at hand"] if at_hand is AtHand.SEND else []
    relays.drain(batch_rows=1)
    assert committed_values(bootstrap, topic) == [b"in the log", *sent, b"waits"]
    assert (count_batches(engine), count_waiting(engine)) == (1 + len(sent), 0)


def test_a_running_relay_whose_outbox_is_renewed_ends(engine: Engine, topic: str, relays: Relays) -> None:
    running = relays.run()
    add(engine, topic, "first")
    assert eventually(lambda: running.relay.progress().messages)
    assert eventually(lambda: count_batches(engine))
    with engine.begin() as connection:
        renew(connection)
    running.end()
    assert isinstance(running.error, OutOfStep)
    assert "is gone from the database" in str(running.error)


def test_outboxes_of_two_databases_do_not_know_of_each_other(
    engine: Engine, topic: str, bootstrap: str, relays: Relays, tmp_path: Any
) -> None:
    other = engine_of(f"sqlite:///{tmp_path}/other.db")
    outbox.metadata.create_all(other)
    others = Relays(other, bootstrap)
    for number in range(3):
        add(engine, topic, f"one {number}")
        add(other, topic, f"other {number}")
        assert relays.drain() == others.drain() == 1
    assert len(committed_values(bootstrap, topic)) == 6
    other.dispose()
