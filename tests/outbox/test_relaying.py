"""What was committed is in the log once and in order, whoever commits late, restarts, or is there twice."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from relaying import Relays, add, count_batches, count_waiting, die_over_a_batch
from sqlalchemy import Engine, event, select

from cluster_under_test import CLIENT
from committed_records import committed_values
from databases import wait_for_waiter
from eventually import eventually
from semel import outbox
from semel.database import engine_of
from semel.outbox import Relay, RelayFailed, RelayFenced, RelayRefused, bell, ledger
from semel.outbox.layout import settled
from semel.outbox.relay import TIMEOUT_SECONDS
from semel.outbox.tables import messages, shards
from semel.publish import Publisher
from semel.testing.ports import free_port


def test_messages_leave_in_the_order_in_which_they_were_added(
    engine: Engine, topic: str, bootstrap: str, relays: Relays
) -> None:
    for number in range(5):
        add(engine, topic, f"{number}.0", f"{number}.1")
    assert relays.drain(batch_rows=3) == 10
    assert relays.drain() == 0
    add(engine, topic, "last")
    assert relays.drain() == 1
    assert committed_values(bootstrap, topic) == [
        *(b"%d.%d" % (number, which) for number in range(5) for which in range(2)),
        b"last",
    ]
    assert (count_batches(engine), count_waiting(engine)) == (5, 0)


def test_a_transaction_that_commits_late_is_not_passed_by(
    engine: Engine, topic: str, bootstrap: str, relays: Relays
) -> None:
    if engine.dialect.name == "sqlite":
        pytest.skip("there is one writer at a time")
    with engine.connect() as late, late.begin() as transaction:
        outbox.add(late, topic, "k", "late")
        add(engine, topic, "early")
        assert relays.drain() == 1
        transaction.commit()
    assert relays.drain() == 1
    assert committed_values(bootstrap, topic) == [b"early", b"late"]


def test_a_transaction_that_commits_while_a_later_message_is_on_its_way_is_not_deleted_with_that(
    engine: Engine, topic: str, bootstrap: str, relays: Relays
) -> None:
    if engine.dialect.name == "sqlite":
        pytest.skip("there is one writer at a time")
    with engine.connect() as late:
        transaction = late.begin()

        class Slow(Publisher):
            def publish(self, number: int, *records: Any) -> Any:
                if transaction.is_active:
                    transaction.commit()
                return super().publish(number, *records)

        add(engine, topic, "earlier")
        outbox.add(late, topic, "k", "late")
        add(engine, topic, "later")
        assert relays.drain(publisher=Slow) == 3
    assert committed_values(bootstrap, topic) == [b"earlier", b"later", b"late"]


def out_of_order(engine: Engine, *numbers: int) -> None:
    """Rows lie in a table in the order of their last change, and this is what a statement without an order gives, once
    the planner knows that the table is small."""
    with engine.begin() as connection:
        for number in numbers:
            connection.execute(messages.update().where(messages.c.number == number).values(added_at_ms=1))
        table = "TABLE " if engine.dialect.name == "mysql" else ""
        connection.exec_driver_sql(f"ANALYZE {table}semel_outbox")


@pytest.mark.parametrize("before", [True, False])
def test_messages_leave_in_their_order_wherever_their_rows_lie(
    engine: Engine, topic: str, bootstrap: str, relays: Relays, before: bool
) -> None:
    """Also those of a batch that another relay has begun."""
    add(engine, topic, *"012345")
    out_of_order(engine, 1, 4, 2)
    die_over_a_batch(relays, before=before, batch_rows=4)
    out_of_order(engine, 3, 1)
    relays.drain(batch_rows=4)
    assert committed_values(bootstrap, topic) == [b"%d" % number for number in range(6)]


def test_a_batch_holds_no_more_bytes_than_it_may_wherever_its_rows_lie(
    engine: Engine, topic: str, bootstrap: str, relays: Relays
) -> None:
    held = []

    class Weighed(Publisher):
        def publish(self, number: int, *records: Any) -> Any:
            held.append(sum(len(record.value) for record in records))
            return super().publish(number, *records)

    values = ["x" * 600, "x" * 600, "y", "z"]
    add(engine, topic, *values)
    out_of_order(engine, 2, 1)
    relays.drain(publisher=Weighed, bytes_max=1_000)
    assert held == [600, 602]
    assert committed_values(bootstrap, topic) == [value.encode() for value in values]


def test_two_relays_that_begin_at_once_agree_whatever_isolation_their_engine_has(
    engine: Engine, relays: Relays, bootstrap: str
) -> None:
    """With a snapshot from before its wait, the second would not see what the first has stored, and store it again."""
    if engine.dialect.name == "sqlite":
        pytest.skip("there is one writer at a time")
    snapshots = engine.execution_options(isolation_level="REPEATABLE READ")
    with ThreadPoolExecutor() as pool:
        with engine.begin() as connection:
            settled(connection, "shop", 2)
            second = pool.submit(Relays(snapshots, bootstrap).drain, name="shop")
            if engine.dialect.name == "postgresql":
                wait_for_waiter(connection, second)
        assert second.result(60) == 0
    with engine.connect() as connection:
        assert len(outbox.status(connection).shards) == 2


@pytest.mark.parametrize("before", [True, False])
def test_a_relay_that_dies_over_a_batch_leaves_it_to_the_next_one(
    engine: Engine, topic: str, bootstrap: str, relays: Relays, before: bool
) -> None:
    add(engine, topic, "first")
    die_over_a_batch(relays, before=before)
    add(engine, topic, "second")
    relays.drain()
    assert committed_values(bootstrap, topic) == [b"first", b"second"]
    assert (count_batches(engine), count_waiting(engine)) == (2, 0)


def test_a_second_relay_takes_over_and_the_first_one_says_so(
    engine: Engine, topic: str, bootstrap: str, relays: Relays
) -> None:
    first = relays.run()
    add(engine, topic, "first")
    assert eventually(lambda: first.relay.progress().messages)
    relays.run()
    # With nothing to do it notices, too.
    first.end()
    assert isinstance(first.error, RelayFenced)
    assert "was taken over by another relay (process" in str(first.error)
    assert "run one relay for each database" in str(first.error)
    add(engine, topic, "second")
    # The first relay may have been taken over before it had noted its batch.
    assert eventually(lambda: count_batches(engine) == 2)
    assert committed_values(bootstrap, topic) == [b"first", b"second"]


def test_a_relay_that_was_taken_over_publishes_and_changes_nothing_any_more(
    engine: Engine, topic: str, bootstrap: str, relays: Relays
) -> None:
    """It stands still between the batch that it made and the log, and the other one does both meanwhile."""
    add(engine, topic, "first")

    class Slow(Publisher):
        def publish(self, number: int, *records: Any) -> Any:
            assert relays.drain() == 1
            return super().publish(number, *records)

    with pytest.raises(RelayFenced):
        relays.drain(publisher=Slow)
    assert committed_values(bootstrap, topic) == [b"first"]


def test_a_relay_that_only_the_brokers_gave_up_on_goes_on(
    engine: Engine, topic: str, bootstrap: str, relays: Relays
) -> None:
    """A process that stood still for longer than its transaction's time is fenced by nobody else's relay."""
    add(engine, topic, "first")
    names = []

    class Stranger(Publisher):
        def publish(self, number: int, *records: Any) -> Any:
            if not names:
                names.append(self._settings.name)
                with Publisher(bootstrap, names[0], client=CLIENT):
                    pass
            return super().publish(number, *records)

    assert relays.drain(publisher=Stranger) == 1
    assert committed_values(bootstrap, topic) == [b"first"]


# -- waking ------------------------------------------------------------------------------------------------------------


# Nobody looks by himself: only a commit wakes a relay.
NEVER_SECONDS = 1_000.0


def test_a_relay_that_is_asleep_is_woken_by_a_commit(
    engine: Engine, topic: str, bootstrap: str, relays: Relays
) -> None:
    running = relays.run(fallback_seconds=NEVER_SECONDS)
    for number in range(1, 4):
        assert eventually(lambda: is_asleep(engine))
        add(engine, topic, str(number))
        assert eventually(lambda: running.relay.progress().messages == number)  # noqa: B023
    assert committed_values(bootstrap, topic) == [b"1", b"2", b"3"]


def test_a_relay_does_not_fall_asleep_before_whoever_did_not_wake_it_has_committed(
    engine: Engine, topic: str, bootstrap: str, relays: Relays
) -> None:
    with engine.connect() as connection, connection.begin() as transaction:
        outbox.add(connection, topic, "k", "added before there was a relay")
        running = relays.run(fallback_seconds=NEVER_SECONDS) if engine.dialect.name == "postgresql" else None
        if running is not None:
            add(engine, topic, "passes it")
            assert eventually(lambda: running.relay.progress().messages)
            assert not is_asleep(engine)
        transaction.commit()
    running = running or relays.run(fallback_seconds=NEVER_SECONDS)
    assert eventually(lambda: b"added before there was a relay" in committed_values(bootstrap, topic))
    assert eventually(lambda: is_asleep(engine))


def is_asleep(engine: Engine) -> bool:
    """On PostgreSQL whoever is asleep has a lock. On the others nobody sleeps."""
    if engine.dialect.name != "postgresql":
        return True
    with engine.connect() as connection:
        return bool(
            connection.exec_driver_sql(
                "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted "
                "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            ).first()
        )


def test_who_adds_notifies_nobody_while_no_relay_is_asleep(engine: Engine) -> None:
    """NOTIFY has the commits of the whole server wait for each other."""
    if engine.dialect.name != "postgresql":
        pytest.skip("PostgreSQL's")
    url = engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as listener:
        listener.execute(f"LISTEN {bell.CHANNEL}")
        add(engine, "orders", "to nobody")
        with psycopg.connect(url, autocommit=True) as last:
            last.execute(f"NOTIFY {bell.CHANNEL}, 'last'")
        [heard] = listener.notifies(timeout=60, stop_after=1)
    assert heard.payload == "last"


# -- what is away ------------------------------------------------------------------------------------------------------


def test_brokers_that_are_away_are_waited_for(
    engine: Engine, topic: str, faulty: Any, relays: Relays, caplog: pytest.LogCaptureFixture
) -> None:
    running = relays.run(timeout_seconds=2)
    add(engine, topic, "first")
    assert eventually(lambda: running.relay.progress().messages)
    faulty.kill()
    add(engine, topic, "second")
    assert eventually(lambda: running.relay.progress().waits_for)
    assert "the brokers" in (running.relay.progress().waits_for or "")
    faulty.restart()
    assert eventually(lambda: running.relay.progress().messages == 2)
    assert running.relay.progress().waits_for is None
    said = [
        record.getMessage()
        for record in caplog.records
        if (record.name, record.levelname) == ("semel.outbox", "WARNING")
    ]
    assert [line.partition(":")[0] for line in said] == ["waiting for the brokers", "the brokers"]
    assert [record.value for record in faulty.log(topic, committed_only=True)] == [b"first", b"second"]


def test_a_relay_that_is_stopped_while_the_brokers_are_away_ends(
    engine: Engine, topic: str, faulty: Any, relays: Relays
) -> None:
    faulty.kill()
    running = relays.run(timeout_seconds=1)
    assert eventually(lambda: running.relay.progress().waits_for)
    running.stop()
    assert running.error is None
    assert running.relay.drain() == 0, "a relay that was stopped stays so"


def test_a_drain_waits_for_brokers_only_so_long_and_what_waits_stays_in_the_database(
    engine: Engine, topic: str, bootstrap: str
) -> None:
    add(engine, topic, "first")
    relay = Relay(engine, f"127.0.0.1:{free_port()}", timeout_seconds=0.1)
    with pytest.raises(
        RelayFailed, match=r"after waiting 0 s for the brokers: .*look at bootstrap\.servers.* 0 messages"
    ):
        relay.drain(wait_seconds=0)
    assert count_waiting(engine) == 1
    # The next drain finds them, and nothing is said to be away any more.
    relay._bootstrap, relay._timeout_seconds = bootstrap, TIMEOUT_SECONDS
    assert relay.drain() == 1
    assert relay.progress().waits_for is None


def test_a_database_that_is_away_is_waited_for(
    engine: Engine, topic: str, bootstrap: str, relays: Relays, caplog: pytest.LogCaptureFixture
) -> None:
    if engine.dialect.name != "postgresql":
        pytest.skip("a file is not away, and of a server it is tried on PostgreSQL")
    running = relays.run(shards=2)
    add(engine, topic, "first")
    assert eventually(lambda: running.relay.progress().messages)
    url = engine.url.set(drivername="postgresql", database="postgres").render_as_string(hide_password=False)
    name = engine.url.database
    with psycopg.connect(url, autocommit=True) as administrator:
        administrator.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
        administrator.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        assert eventually(lambda: running.relay.progress().waits_for)
        administrator.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true".encode())
    assert eventually(lambda: running.relay.progress().waits_for is None)
    engine.dispose()
    add(engine, topic, "second")
    assert eventually(lambda: running.relay.progress().messages == 2)
    assert committed_values(bootstrap, topic) == [b"first", b"second"]
    assert any("waiting for the database" in record.getMessage() for record in caplog.records)


# -- limits and settings -----------------------------------------------------------------------------------------------


def test_a_batch_holds_no_more_messages_than_it_may_whatever_commits_while_it_is_made(postgres: Any) -> None:
    """On SQLite nobody commits meanwhile. A batch of all of a large transaction would never be through in time."""
    url = postgres.new_database()
    engine, makers = engine_of(url), engine_of(url)
    outbox.metadata.create_all(engine)
    claim = ledger.Owner(0, 1, "me")
    with engine.begin() as connection:
        settled(connection, None, None)
        ledger.take_over(connection, claim, "me", 0)
    with engine.connect() as late:
        outbox.add_many(late, [outbox.Message("t", "k", "late")] * 50)
        add(engine, "t", *map(str, range(5)))

        @event.listens_for(makers, "before_cursor_execute")
        def counted(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            if "semel_outbox.topic" in statement and late.in_transaction():
                late.commit()

        with makers.begin() as connection:
            batch = ledger.advance(connection, claim, None, ledger.NOTHING, ledger.Size(10, 1_000), 0)
    assert not late.in_transaction()
    assert batch is not None
    assert [record.value for record in batch.records] == [b"late"] * 5
    for made in (engine, makers):
        made.dispose()


def test_a_batch_holds_no_more_bytes_than_it_may(engine: Engine, topic: str, bootstrap: str, relays: Relays) -> None:
    for number in range(6):
        add(engine, topic, f"{number}" * (400 if number != 3 else 2_000))
    relays.drain(bytes_max=1_000)
    assert [value[:1] for value in committed_values(bootstrap, topic) if isinstance(value, bytes)] == [
        b"%d" % number for number in range(6)
    ]
    # 0 1, 2, 3, 4 5
    assert count_batches(engine) == 4


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"shards": 0}, "0 shards cannot be: there are 1 to 64"),
        ({"batch_rows": 0}, "batches of 0 messages cannot be"),
        ({"name": "no name"}, "is no name for a publisher"),
        ({"kafka": {"bootstrap.servers": "x:1", "acks": "1"}}, "acks='1' cannot be set"),
        ({"kafka": {}}, "no address of a broker"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_anything_is_done(
    engine: Engine, options: dict[str, Any], says: str
) -> None:
    settled = {"kafka": "127.0.0.1:1", **options}
    with pytest.raises(RelayRefused, match=says):
        Relay(engine, settled.pop("kafka"), **settled)


def test_an_asynchronous_engine_is_refused() -> None:
    from sqlalchemy.ext.asyncio import create_async_engine

    with pytest.raises(RelayRefused, match="asynchronous engine"):
        Relay(create_async_engine("sqlite+aiosqlite://"), "127.0.0.1:1")  # type: ignore[arg-type]


# -- what is in the log goes from the table ----------------------------------------------------------------------------


def test_only_what_is_known_to_be_in_the_log_is_deleted(engine: Engine, topic: str, relays: Relays) -> None:
    for number in range(20):
        add(engine, topic, f"in the log {number}")
    relays.drain(batch_rows=2)
    add(engine, topic, "at hand", "waits")
    die_over_a_batch(relays, before=True, batch_rows=1)
    add(engine, topic, "added later")
    with engine.connect() as connection:
        assert list(connection.scalars(select(messages.c.value))) == [b"at hand", b"waits", b"added later"]
    assert relays.drain() == 3
    assert count_waiting(engine) == 0


def test_a_running_relay_deletes_what_it_has_published(engine: Engine, topic: str, relays: Relays) -> None:
    running = relays.run()
    add(engine, topic, "first")
    assert eventually(lambda: running.relay.progress().messages)
    assert eventually(lambda: count_waiting(engine) == 0)
    running.stop()
    with engine.connect() as connection:
        assert connection.scalar(select(shards.c.at_hand)) is None


@pytest.mark.parametrize(("usually", "for_batches"), [("off", "local"), ("on", "on"), ("remote_write", "remote_write")])
def test_a_batch_is_durable_before_it_is_published_even_if_other_commits_are_not(
    url: str, engine: Engine, usually: str, for_batches: str
) -> None:
    """Or a crash of PostgreSQL would undo transactions whose messages are in the log."""
    if engine.dialect.name != "postgresql":
        pytest.skip("an engine of semel's syncs each commit, and MySQL has no such setting of a session")
    hasty = engine_of(url, connect_args={"options": f"-c synchronous_commit={usually}"})
    owner = ledger.Owner(0, 1, "life")
    with hasty.begin() as connection:
        settled(connection, None, None)
        ledger.take_over(connection, owner, "test", 0)
    with hasty.begin() as connection:
        assert ledger.advance(connection, owner, None, ledger.NOTHING, ledger.Size(10, 1000), 0) is None
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == for_batches
    hasty.dispose()
