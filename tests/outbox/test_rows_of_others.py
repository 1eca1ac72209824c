"""A row that another program has written into the outbox's table ends no relay.

What cannot be a record is put aside with the name of its column, its aggregate waits, and everything else is published.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from relaying import Relays, add, count_waiting
from sqlalchemy import Engine, delete, text

from committed_records import committed_values
from semel import outbox
from semel.outbox import MessageRefused, OutOfStep, quarantine
from semel.outbox.ledger import numbers_of
from semel.outbox.tables import messages
from semel.publish import Publisher
from semel.ui.cli import main

# A row as SQL writes it.
ROW = {
    "topic": "'{topic}'",
    "key": "{bytes}",
    "value": "{bytes}",
    "headers": "NULL",
    "aggregate": "{aggregate}",
    "bucket": "0",
    "added_at_ms": "1",
}
BYTES = {"sqlite": "x'62'", "postgresql": r"'\x62'::bytea"}
AGGREGATE = {"sqlite": "x'6f74686572'", "postgresql": r"'\x6f74686572'::bytea"}


def write(engine: Engine, to: str, **wrong: str) -> int:
    """A row of a stranger's for this topic, with some columns as given; its number."""
    dialect = engine.dialect.name
    row = {
        name: value.format(topic=to, bytes=BYTES[dialect], aggregate=AGGREGATE[dialect]) for name, value in ROW.items()
    }
    row |= wrong
    statement = f"INSERT INTO semel_outbox ({', '.join(row)}) VALUES ({', '.join(row.values())}) RETURNING number"
    with engine.begin() as connection:
        return int(connection.exec_driver_sql(statement).scalar_one())


def refused(engine: Engine) -> list[quarantine.RefusedMessage]:
    with engine.connect() as connection:
        return quarantine.refused_messages(connection)


# What either database keeps in a column.
OF_ANY_KIND = [
    ("headers", "'no JSON'", "column headers is no JSON"),
    ("headers", "''", "column headers is no JSON"),
    ("headers", "'null'", "column headers is no list"),
    ("headers", '\'{"a": "00"}\'', "column headers is no list"),
    ("headers", "'[[\"a\"]]'", "column headers is no list of pairs"),
    ("headers", "'[5]'", "column headers is no list of pairs"),
    ("headers", "'[[1, \"00\"]]'", "column headers is no list of pairs"),
    ("headers", "'[[\"a\", 7]]'", "column headers is no list of pairs"),
    ("headers", '\'[["a", "0"]]\'', "column headers has a value that is not in hexadecimal digits"),
    ("headers", '\'[["a", "wx"]]\'', "column headers has a value that is not in hexadecimal digits"),
    ("headers", "'[[\"\\u0000\", null]]'", "column headers has a name that cannot be sent"),
    ("headers", "'[[\"\\ud800\", null]]'", "column headers has a name that cannot be sent"),
    ("headers", "'" + "[" * 100_000 + "'", "column headers is no JSON"),
    ("headers", "'[" + "9" * 10_000 + "]'", "column headers is no JSON"),
    ("topic", "''", "column topic: '' is no topic"),
    ("topic", "'.'", "column topic: '.' is no topic"),
    ("topic", "'no topic'", "column topic: 'no topic' is no topic"),
    ("topic", "'" + "x" * 250 + "'", "column topic"),
    ("topic", "'semel-publish-outbox-0'", "a topic in which a publisher keeps its progress"),
    ("added_at_ms", "-1", "column added_at_ms is no time"),
    ("added_at_ms", "-9223372036854775808", "column added_at_ms is no time"),
]
# SQLite keeps any value in any column.
OF_SQLITE = [
    ("topic", "x'6f'", "column topic is no text"),
    ("topic", "CAST(x'ff' AS TEXT)", "column topic is no text in UTF-8"),
    ("topic", "CAST(x'6100' AS TEXT)", "is no topic"),
    ("key", "'text'", "column key is neither bytes nor null"),
    ("key", "CAST(x'ff' AS TEXT)", "column key is neither bytes nor null"),
    ("key", "1e300", "column key is neither bytes nor null"),
    ("value", "9223372036854775807", "column value is neither bytes nor null"),
    ("value", "'text'", "column value is neither bytes nor null"),
    ("headers", "x'5b5d'", "column headers is no text"),
    ("headers", "CAST(x'5bff5d' AS TEXT)", "column headers is no text in UTF-8"),
    ("headers", "17", "column headers is no list"),
    ("added_at_ms", "'yesterday'", "column added_at_ms is no time"),
    ("added_at_ms", "1.5", "column added_at_ms is no time"),
    ("added_at_ms", "x'00'", "column added_at_ms is no time"),
]


def test_a_row_that_cannot_be_a_record_is_put_aside_whatever_is_wrong_with_it(
    engine: Engine, topic: str, bootstrap: str, relays: Relays, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of them has an aggregate of its own, with a good message behind it that has to wait."""
    wrong = OF_ANY_KIND + (OF_SQLITE if engine.dialect.name == "sqlite" else [])
    add(engine, topic, "first", key="good")
    reasons: dict[int, str] = {}
    for place, (column, value, reason) in enumerate(wrong):
        name = str(place)
        aggregate = "aggregate" if column == "key" else "key"
        key = {"sqlite": f"x'{name.encode().hex()}'", "postgresql": rf"'\x{name.encode().hex()}'::bytea"}
        own = {"aggregate": key[engine.dialect.name], aggregate: key[engine.dialect.name]}
        reasons[write(engine, topic, **{**own, column: value})] = reason
        add(engine, topic, f"behind {place}", key=name)
    add(engine, topic, "last", key="good")
    assert relays.drain() == 2
    assert committed_values(bootstrap, topic) == [b"first", b"last"]
    found = {one.number: one for one in refused(engine)}
    assert found.keys() == reasons.keys()
    for number, reason in reasons.items():
        assert reason in found[number].reason, found[number]
        assert found[number].behind == 1
    with engine.connect() as connection:
        status = outbox.status(connection)
    assert (status.quarantined, status.held_up) == (len(wrong), len(wrong))
    for arguments in (["quarantine", "list"], ["quarantine", "list", "--json"], ["status"]):
        with pytest.raises(SystemExit):
            main(["outbox", *arguments, "--database", url])
        assert capsys.readouterr().out
    # A person drops them, and what waited for them leaves.
    with engine.begin() as connection:
        quarantine.drop(connection, list(reasons))
    assert relays.drain() == len(wrong)
    assert count_waiting(engine) == 0


GOOD = [
    ("bucket", "-1"),
    ("bucket", "-9223372036854775808"),
    ("bucket", "9223372036854775807"),
    ("number", "-5"),
    ("key", "NULL"),
    ("value", "NULL"),
    ("aggregate", "NULL"),
    ("headers", "'[]'"),
    ("headers", '\'[["a", null], ["a", "00ff"]]\''),
]
GOOD_IN_SQLITE = [
    *(("bucket", "'text'"), ("bucket", "1.5"), ("bucket", "-9e999"), ("bucket", "x'ff'")),
    *(("aggregate", "'text'"), ("aggregate", "17")),
]


@pytest.mark.parametrize("shards", [1, 3])
def test_a_row_that_can_be_a_record_is_published_whatever_else_is_in_it(
    engine: Engine, topic: str, bootstrap: str, relays: Relays, shards: int
) -> None:
    """A number below 0, and a bucket that no aggregate has."""
    good = [*GOOD] + (GOOD_IN_SQLITE if engine.dialect.name == "sqlite" else [])
    # The largest number last: SQLite gives none after it.
    good.append(("number", "9223372036854775807"))
    for column, value in good:
        write(engine, topic, **{column: value})
    assert relays.drain(shards=shards) == len(good)
    assert len(committed_values(bootstrap, topic)) == len(good)
    assert (count_waiting(engine), refused(engine)) == (0, [])


def test_a_row_of_the_wrong_kind_in_a_batch_holds_up_what_follows_of_its_aggregate_in_the_same_batch(
    engine: Engine, topic: str, bootstrap: str, relays: Relays, caplog: pytest.LogCaptureFixture
) -> None:
    add(engine, topic, "a1", key="other")
    number = write(engine, topic, headers="'no JSON'")
    add(engine, topic, "a2", key="other")
    add(engine, topic, "b1", key="b")
    assert relays.drain() == 2
    assert committed_values(bootstrap, topic) == [b"a1", b"b1"]
    [told] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert f"message {number} of semel_outbox cannot be a record" in told
    assert "column headers" in told
    # Whoever corrects the row has it tried again, before what waits for it.
    with engine.begin() as connection:
        connection.execute(text("UPDATE semel_outbox SET headers = NULL WHERE number = :number"), {"number": number})
        quarantine.retry(connection, [number])
    assert relays.drain() == 2
    assert committed_values(bootstrap, topic)[2:] == [b"b", b"a2"]


def test_more_rows_that_cannot_be_records_than_a_batch_has_hold_nobody_up(
    engine: Engine, topic: str, bootstrap: str, relays: Relays
) -> None:
    for _ in range(7):
        write(engine, topic, headers="'no JSON'")
    add(engine, topic, "good")
    assert relays.drain(batch_rows=2) == 1
    assert committed_values(bootstrap, topic) == [b"good"]


def test_a_row_that_is_too_large_to_be_read_is_put_aside_unread(
    engine: Engine, topic: str, bootstrap: str, relays: Relays
) -> None:
    huge = {"sqlite": "zeroblob(104857601)", "postgresql": r"convert_to(repeat('x', 104857601), 'UTF8')"}
    add(engine, topic, "first")
    write(engine, topic, value=huge[engine.dialect.name])
    add(engine, topic, "last")
    assert relays.drain() == 2
    [one] = refused(engine)
    assert "more than 104857600 bytes" in one.reason
    assert (one.key, one.value) == (None, None)


class Dying(Publisher):
    """Its process ends before it has sent a batch with records."""

    def publish(self, number: int, *records: Any) -> Any:
        raise KeyboardInterrupt


def test_a_batch_at_hand_in_whose_rows_somebody_writes_goes_on_without_them(
    engine: Engine, topic: str, bootstrap: str, relays: Relays
) -> None:
    """It is not in the log: what follows the row waits again, in its order."""
    add(engine, topic, "a1", "a2", "a3", key="a")
    add(engine, topic, "b1", key="b")
    with pytest.raises(KeyboardInterrupt):
        relays.drain(publisher=Dying)
    with engine.begin() as connection:
        connection.execute(text("UPDATE semel_outbox SET headers = '{' WHERE number = 2"))
    assert relays.drain() == 2
    assert committed_values(bootstrap, topic) == [b"a1", b"b1"]
    assert [(one.number, one.behind) for one in refused(engine)] == [(2, 1)]


class DyingLater(Publisher):
    """Its process ends after it has sent a batch."""

    def publish(self, number: int, *records: Any) -> Any:
        super().publish(number, *records)
        raise KeyboardInterrupt


def test_a_batch_that_is_in_the_log_is_done_whatever_somebody_writes_into_its_rows(
    engine: Engine, topic: str, bootstrap: str, relays: Relays
) -> None:
    add(engine, topic, "a1", "a2", key="a")
    with pytest.raises(KeyboardInterrupt):
        relays.drain(publisher=DyingLater)
    with engine.begin() as connection:
        connection.execute(text("UPDATE semel_outbox SET headers = '{' WHERE number = 2"))
    relays.drain()
    assert committed_values(bootstrap, topic) == [b"a1", b"a2"]
    assert (count_waiting(engine), refused(engine)) == (0, [])


def test_a_message_that_somebody_deletes_from_the_table_holds_its_aggregate_up_no_more(
    engine: Engine, topic: str, bootstrap: str, relays: Relays
) -> None:
    number = write(engine, topic, headers="'no JSON'")
    add(engine, topic, "behind", key="other")
    assert relays.drain() == 0
    with engine.begin() as connection:
        connection.execute(delete(messages).where(messages.c.number == number))
    assert relays.drain() == 1
    assert committed_values(bootstrap, topic) == [b"behind"]
    with engine.connect() as connection:
        assert outbox.status(connection).quarantined == 0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("UPDATE semel_outbox_shards SET at_hand = 'nonsense'", "column at_hand of shard 0 in semel_outbox_shards"),
        ("UPDATE semel_outbox_shards SET at_hand = '[[0, 999999999]]'", "column at_hand of shard 0"),
        ("UPDATE semel_outbox_shards SET at_hand = '7'", "column at_hand of shard 0"),
        ("UPDATE semel_outbox_shards SET last_batch = -7", "column last_batch of shard 0"),
        ("UPDATE semel_outbox_relays SET name = 'not a name'", "column name of semel_outbox_relays"),
        ("UPDATE semel_outbox_relays SET random = ''", "column random of semel_outbox_relays"),
        ("UPDATE semel_outbox_relays SET shards = 0", "column shards of semel_outbox_relays"),
        ("UPDATE semel_outbox_relays SET shards = 1000000", "column shards of semel_outbox_relays"),
    ],
)
def test_a_relay_whose_own_state_was_changed_ends_and_names_table_and_column(
    engine: Engine, topic: str, relays: Relays, change: str, named: str
) -> None:
    add(engine, topic, "one")
    relays.drain()
    with engine.begin() as connection:
        connection.execute(text(change))
    with pytest.raises(OutOfStep, match=named):
        relays.drain()


def test_a_list_of_numbers_may_not_be_longer_than_a_batch() -> None:
    assert list(numbers_of(0, json.dumps([[1, 3], [7, 7]]))) == [1, 2, 3, 7]
    with pytest.raises(OutOfStep):
        numbers_of(0, json.dumps([[1, 2**62]]))


def test_nobody_adds_a_message_to_the_topic_of_a_publishers_progress(engine: Engine) -> None:
    with engine.begin() as connection, pytest.raises(MessageRefused, match="keeps its progress"):
        outbox.add(connection, "semel-publish-outbox-1234-0", "outbox-1234-0", "{}")
