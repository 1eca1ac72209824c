"""A message that the broker refuses is put aside, and keeps nobody back but those of its aggregate."""

from __future__ import annotations

import uuid

import pytest
from relaying import Relays, add, count_batches, count_waiting
from sqlalchemy import Engine, delete

from committed_records import committed_values, make_topic
from eventually import eventually
from guarded import ADMINISTRATOR, TOPIC, WRITE, GuardedBroker, rule
from semel import outbox
from semel.log.core.access import Permission
from semel.outbox import Unsettled, layout, ledger, quarantine
from semel.outbox.errors import OutOfStep
from semel.outbox.tables import messages
from semel.ui.cli import main

TOO_LARGE = "x" * 2_000_000


def refused_messages(engine: Engine) -> list[quarantine.RefusedMessage]:
    with engine.connect() as connection:
        return quarantine.refused_messages(connection)


def test_a_message_that_is_refused_is_put_aside_and_only_its_aggregate_waits(
    engine: Engine, topic: str, bootstrap: str, relays: Relays, caplog: pytest.LogCaptureFixture
) -> None:
    add(engine, topic, "a1", key="a")
    add(engine, topic, "b1", TOO_LARGE, "b3", key="b")
    add(engine, topic, "a2", key="a")
    add(engine, topic, "n1", TOO_LARGE, "n3", key=None)
    assert relays.drain() == 5
    add(engine, topic, "b4", key="b")
    add(engine, topic, "a3", key="a")
    assert relays.drain() == 1
    assert committed_values(bootstrap, topic) == [b"a1", b"b1", b"a2", b"n1", b"n3", b"a3"]
    first, second = refused_messages(engine)
    assert (first.aggregate, first.behind, first.topic) == (b"b", 2, topic)
    assert (second.aggregate, second.behind) == (None, 0)
    assert "too large" in first.reason
    assert len([record for record in caplog.records if "refused and put aside" in record.getMessage()]) == 2
    with engine.connect() as connection:
        found = outbox.status(connection)
    assert (found.waiting, found.quarantined, found.held_up) == (4, 2, 2)
    assert outbox.status(engine) == found, "an engine is taken as well"


def test_a_message_for_a_topic_that_may_be_seen_and_not_written_to_holds_nobody_up(engine: Engine) -> None:
    """The coordinator of the transaction refuses such a topic, and then no record of the batch is sent."""
    with GuardedBroker() as broker:
        for topic in ("open", "closed"):
            make_topic(broker.bootstrap, topic)
        broker.add(rule(TOPIC, "closed", WRITE, Permission.DENY, host=ADMINISTRATOR))
        add(engine, "open", "first", key="a")
        add(engine, "closed", "second", key="b")
        add(engine, "open", "third", key="a")
        assert Relays(engine, broker.bootstrap).drain() == 2
        assert committed_values(broker.bootstrap, "open") == [b"first", b"third"]
    [refused] = refused_messages(engine)
    assert (refused.topic, refused.value) == ("closed", b"second")
    assert "Topic authorization failed" in refused.reason


def test_an_aggregate_that_a_stranger_has_named_sends_no_commands_to_the_terminal(
    engine: Engine, url: str, topic: str, relays: Relays, capsys: pytest.CaptureFixture[str]
) -> None:
    add(engine, topic, TOO_LARGE, key="\x1b[2J\n")
    relays.drain()
    with pytest.raises(SystemExit):
        main(["outbox", "quarantine", "list", "--database", url])
    shown = capsys.readouterr().out
    assert r"\x1b[2J\n" in shown
    assert len(shown.splitlines()) == 2
    assert shown.replace("\n", "").isprintable()


def test_who_is_dropped_lets_go_of_what_waits_behind_it(
    engine: Engine, topic: str, bootstrap: str, relays: Relays
) -> None:
    running = relays.run()
    add(engine, topic, TOO_LARGE, "second", TOO_LARGE, "fourth")
    for _ in range(2):
        assert eventually(lambda: refused_messages(engine))
        with engine.begin() as connection:
            quarantine.drop(connection, [quarantine.refused_messages(connection)[0].number])
    assert eventually(lambda: running.relay.progress().messages == 2)
    assert committed_values(bootstrap, topic) == [b"second", b"fourth"]
    assert refused_messages(engine) == []
    # It notes the last batch a moment after it has published it.
    assert eventually(lambda: count_waiting(engine) == 0)


def test_who_is_tried_again_comes_before_what_waits_behind_it(engine: Engine, bootstrap: str, relays: Relays) -> None:
    other = f"outbox-{uuid.uuid4().hex[:12]}"
    make_topic(bootstrap, other, max_message_bytes="500")
    add(engine, other, "x" * 1_000, "second")
    running = relays.run()
    assert eventually(lambda: refused_messages(engine))
    [entry] = refused_messages(engine)
    assert entry.behind == 1
    with engine.begin() as connection:
        quarantine.retry(connection, [entry.number])
    # Refused again, for the same reason.
    assert eventually(lambda: [one for one in refused_messages(engine) if one.refused_at_ms > entry.refused_at_ms])
    allow_larger(bootstrap, other)
    with engine.begin() as connection:
        quarantine.retry(connection, [entry.number])
    assert eventually(lambda: running.relay.progress().messages == 2)
    assert committed_values(bootstrap, other) == [b"x" * 1_000, b"second"]


def allow_larger(bootstrap: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    larger = ConfigEntry("max.message.bytes", "5000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[larger])
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result()


def test_messages_that_are_only_too_many_for_one_request_all_pass(
    engine: Engine, bootstrap: str, relays: Relays
) -> None:
    """The broker refuses what came in one request, though each by itself is small enough."""
    small = f"outbox-{uuid.uuid4().hex[:12]}"
    make_topic(bootstrap, small, max_message_bytes="1000")
    values = [f"{number:0300}" for number in range(40)]
    add(engine, small, *values)
    assert relays.drain() == 40
    assert committed_values(bootstrap, small) == [value.encode() for value in values]
    assert refused_messages(engine) == []


def test_the_batch_goes_on_under_its_number_whoever_is_refused(
    engine: Engine, topic: str, bootstrap: str, relays: Relays
) -> None:
    for number in range(6):
        add(engine, topic, str(number), key=f"{number}")
        add(engine, topic, TOO_LARGE, key=f"large {number % 2}")
    assert relays.drain(batch_rows=4) == 6
    assert sorted(committed_values(bootstrap, topic)) == [b"%d" % number for number in range(6)]
    # Each batch has a record in the topic of the relay's place, which the log and the database have counted alike.
    batches = count_batches(engine)
    assert batches <= 8
    add(engine, topic, "one more", key="one more")
    assert relays.drain() == 1
    assert count_batches(engine) == batches + 1


def test_what_is_not_in_the_quarantine_cannot_be_taken_out(engine: Engine, topic: str, relays: Relays) -> None:
    add(engine, topic, TOO_LARGE)
    relays.drain()
    [entry] = refused_messages(engine)
    for change in (quarantine.retry, quarantine.drop):
        with pytest.raises(Unsettled, match="there is no 99 in the quarantine"), engine.begin() as connection:
            change(connection, [entry.number, 99])
    assert refused_messages(engine) == [entry]
    with engine.begin() as connection:
        connection.execute(delete(messages))


def test_a_message_that_is_put_aside_twice_as_after_a_lost_answer_of_the_commit_stays_with_its_person(
    engine: Engine, topic: str, relays: Relays
) -> None:
    """The relay repeats the transaction. If a person has marked the message for a retry meanwhile, that holds."""
    add(engine, topic, "first", "second", key=None)
    owner = ledger.Owner(0, 1, "ours")
    with engine.begin() as connection:
        layout.settled(connection, None, None)
        ledger.take_over(connection, owner, "ours", 0)
        batch = ledger.advance(connection, owner, None, ledger.NOTHING, ledger.Size(10, 1_000), 0)
    assert batch is not None
    for refused in (0, 1):
        with engine.begin() as connection:
            ledger.put_aside(connection, owner, batch.number, batch.numbers[0], "too large", 0)
        assert len(refused_messages(engine)) == 1 - refused
        if not refused:
            with engine.begin() as connection:
                quarantine.retry(connection, [batch.numbers[0]])
    with engine.connect() as connection:
        assert ledger.standing(connection, owner).at_hand == batch.numbers[1:]


@pytest.mark.parametrize("is_published", [False, True])
def test_messages_of_another_batch_than_the_one_at_hand_are_neither_put_back_nor_aside(
    engine: Engine, is_published: bool
) -> None:
    """Somebody has changed the tables: what the relay was refused may be in the log by now, under that number."""
    add(engine, "orders", "first", "second", key=None)
    owner, size = ledger.Owner(0, 1, "ours"), ledger.Size(10, 1_000)
    with engine.begin() as connection:
        layout.settled(connection, None, None)
        ledger.take_over(connection, owner, "ours", 0)
        batch = ledger.advance(connection, owner, None, ledger.NOTHING, size, 0)
    assert batch is not None
    refused = batch.number if is_published else batch.number + 1
    with engine.begin() as connection:
        if is_published:
            assert ledger.advance(connection, owner, batch.number, batch.number, size, 0) is None
        before = ledger.standing(connection, owner)
    with pytest.raises(OutOfStep, match="is not the one at hand"), engine.begin() as connection:
        ledger.put_back(connection, owner, refused, batch.numbers[1])
    with pytest.raises(OutOfStep, match="is not the one at hand"), engine.begin() as connection:
        ledger.put_aside(connection, owner, refused, batch.numbers[1], "too large", 0)
    with engine.connect() as connection:
        assert ledger.standing(connection, owner) == before
    assert refused_messages(engine) == []
