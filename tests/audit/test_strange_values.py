"""What strangers may have put into the rows of an audit: each is a row without an id, or named; none ends it with a
traceback, and none is read as something else than what it is."""

import contextlib
import json
import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.audit import AuditFailed, Given, audit
from semel.audit.rows import Selector, Wanted
from semel.testing.postgres import PostgresServer


def verdict_of(*values: str | bytes, id: str = "value.$.id", amount: str | None = None) -> Any:
    table = pa.table({"value": pa.array([v if isinstance(v, bytes) else v.encode() for v in values], pa.binary())})
    return audit(Given(["p-1"]), Given(table, id=id, amount=amount))


@pytest.mark.parametrize(
    "value",
    [
        r'{"id":"\ud83d"}',
        r'{"id":"half \udc00 a pair"}',
        '{"id":true}',
        '{"id":1.5}',
        '{"id":1e999999999}',
        '{"id":NaN}',
        '{"id":["p-1"]}',
        '{"id":' + "[" * 100_000,
        '{"id":' + "9" * 10_000 + "}",
        b"\xff\xfe\xfd",
        "",
    ],
)
def test_a_value_that_holds_no_id_is_a_row_without_one(value: str | bytes) -> None:
    verdict = verdict_of('{"id":"p-1"}', value)
    [sink] = verdict.sinks
    assert (sink.sink.rows, sink.sink.without_id, sink.lost.rows, sink.foreign.rows) == (1, 1, 0, 0)
    assert not verdict.is_clean


def test_an_id_of_the_program_itself_that_is_no_text_is_a_row_without_one() -> None:
    verdict = audit(Given(["p-1", "\ud83d", None]), Given(["p-1"]))
    assert (verdict.source.rows, verdict.source.without_id) == (1, 2)


@pytest.mark.parametrize(
    "amount", [r'"\ud83d"', "1e999999999", "NaN", "true", "[" * 500 + "]" * 500, '"' + "9" * 99 + '"']
)
def test_an_amount_that_is_none_is_a_finding_with_the_id_of_its_row(amount: str) -> None:
    """It never ends the audit: what is wrong elsewhere is found as well."""
    table = pa.table({"value": [f'{{"id":"p-1","amount":{amount}}}', '{"id":"p-3","amount":1}']})
    sent = pa.table({"id": ["p-1", "p-2", "p-3"], "amount": [1, 1, 1]})
    verdict = audit(Given(sent, amount="amount"), Given(table, id="value.$.id", amount="value.$.amount"))
    [sink] = verdict.sinks
    assert (sink.sink.unreadable.rows, [one.text for one in sink.sink.unreadable.listed]) == (1, ["p-1"])
    assert [one.text for one in sink.lost.listed] == ["p-2"]


@pytest.mark.parametrize(
    ("column", "readable"),
    [
        (["1.5", "ten", "1e3", "0.1234567891", "NaN", None], 3),
        ([1.5, float("nan"), float("inf"), None], 2),
        ([b"1.5", b"\xff"], 1),
    ],
    ids=["text", "floats", "bytes"],
)
def test_an_amount_that_cannot_be_read_is_told_from_its_neighbours(column: list[Any], readable: int) -> None:
    """Also where it stands on both sides: nobody can say that two such amounts are the same."""
    table = pa.table({"id": [f"p-{number}" for number in range(len(column))], "amount": column})
    verdict = audit(Given(table, amount="amount"), Given(table, amount="amount"))
    assert not verdict.is_clean
    for counted in (verdict.source, verdict.sinks[0].sink):
        assert (counted.rows, counted.unreadable.rows) == (len(column), len(column) - readable)


@pytest.mark.parametrize("at", ["yesterday", "2026-13-01", "9" * 40, "\x00"])
def test_a_time_that_cannot_be_read_is_a_finding_whatever_span_is_audited(at: str) -> None:
    sent = pa.table({"id": ["p-1", "p-2"], "at": ["1970-01-01T00:00:00.001Z", "1970-01-01T00:00:00.002"]})
    table = pa.table({"id": ["p-1", "p-2"], "at": ["1", at]})
    verdict = audit(Given(sent, time="at"), Given(table, time="at"), window_ms=1_000, before_ms=1_000)
    [sink] = verdict.sinks
    assert not verdict.is_clean
    assert (sink.sink.unreadable.rows, [one.text for one in sink.sink.unreadable.listed]) == (1, ["p-2"])
    assert (sink.lost.rows, sink.foreign.rows) == (0, 0)


@pytest.mark.parametrize("id", ["key", "value.$.id"])
@pytest.mark.parametrize("damaged", [b'{"id":"p-2","at":', b"", b"\xff"])
def test_damaged_json_is_in_every_span_of_time(damaged: bytes, id: str) -> None:
    """Nobody knows when its event was: an audit of one day must not call clean what may have been lost on that day."""
    table = pa.table({"key": ["p-1", "p-2"], "value": [b'{"id":"p-1","at":1}', damaged]})
    sent = Given(table, id=id, time="value.$.at")
    stored = Given(pa.table({"id": ["p-1"], "at": [1]}), time="at")
    verdict = audit(sent, stored, since_ms=0, before_ms=1_000)
    assert not verdict.is_clean
    assert verdict.source.without_id + verdict.source.unreadable.rows == 1


def test_json_without_the_field_has_no_time_and_no_amount() -> None:
    table = pa.table({"id": ["p-1", "p-2"], "value": ['{"at":1}', None]})
    sent = Given(table, time="value.$.at", amount="value.$.amount")
    stored = pa.table({"id": ["p-1", "p-2"], "at": [1, None], "amount": pa.nulls(2)})
    assert audit(sent, Given(stored, time="at", amount="amount"), window_ms=1_000).is_clean


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "at", "x"]), inner, max_size=3),
)
COLUMNS = st.one_of(
    st.lists(st.binary(max_size=30) | st.none(), max_size=4).map(lambda values: pa.array(values, pa.binary())),
    st.lists(JSON, max_size=4).map(lambda values: pa.array([in_json(value) for value in values], pa.binary())),
    st.lists(st.floats() | st.none(), max_size=4).map(lambda values: pa.array(values, pa.float64())),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(lambda values: pa.array(values, pa.int64())),
    st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4).map(lambda values: pa.array(values, pa.date32())),
    st.lists(st.integers(-(2**62), 2**62), max_size=4).map(lambda values: pa.array(values, pa.timestamp("s"))),
    st.lists(st.booleans(), max_size=4).map(lambda values: pa.array(values, pa.bool_())),
    st.lists(st.text(max_size=9), max_size=4).map(lambda values: pa.array(values, pa.string()).dictionary_encode()),
)


def in_json(value: Any) -> bytes:
    return json.dumps({"id": value}).encode()


@given(COLUMNS, st.sampled_from(["value", "value.$.id"]), st.sampled_from(["id", "time", "amount"]))
def test_whatever_a_column_holds_is_read_or_refused_and_never_a_traceback(column: Any, text: str, part: str) -> None:
    selectors = {"id": Selector.parse("key"), part: Selector.parse(text)}
    keys = pa.array([b"k"] * len(column), pa.binary())
    with contextlib.suppress(AuditFailed):
        rows = Wanted(**selectors).rows_of({"value": column, "key": keys})
        assert len(rows.ids) == len(column)


def test_a_column_that_is_there_twice_is_named(tmp_path: Path) -> None:
    twice = pa.table([pa.array(["a"]), pa.array(["b"])], names=["id", "id"])
    pq.write_table(twice, tmp_path / "x.parquet")
    with pytest.raises(AuditFailed, match="'id'"):
        audit(Given([]), f"parquet:{tmp_path}?id=id")


# -- tables that say otherwise what they are -------------------------------------------------------------------------


@pytest.fixture
def two_schemas(postgres: PostgresServer) -> str:
    """The same table in two schemas; only the one in `shop` has the payment."""
    url = postgres.new_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE rows (id text, at timestamptz)")
        connection.execute("CREATE SCHEMA shop")
        connection.execute("CREATE TABLE shop.rows (id text, at timestamptz)")
        connection.execute("INSERT INTO shop.rows VALUES ('p-1', '2026-01-01 00:00:00Z')")
    return url


def test_the_table_that_an_address_options_lead_to_is_the_one_that_is_read(two_schemas: str) -> None:
    options = "-csearch_path%3Dshop%20-cDateStyle%3DGerman%20-cTimeZone%3DAsia%2FTokyo"
    sent = pa.table({"id": ["p-1"], "at": ["2026-01-01T00:00:00Z"]})
    verdict = audit(Given(sent, time="at"), f"{two_schemas}/rows?id=id&time=at&options={options}", window_ms=1_000)
    assert verdict.is_clean, verdict


def test_a_table_of_which_some_rows_are_hidden_gets_no_verdict(postgres: PostgresServer) -> None:
    """A policy hides rows without a word. The second one of this payment would never be found."""
    url = postgres.new_database()
    role = f"auditor_{url.rpartition('/')[2]}"
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE rows (id text, shop text)")
        connection.execute("INSERT INTO rows VALUES ('p-1', 'mine'), ('p-1', 'yours')")
        connection.execute("CREATE POLICY mine ON rows USING (shop = 'mine')")
        connection.execute(f"CREATE ROLE {role}")
        connection.execute(f"GRANT SELECT ON rows TO {role}")
    address = f"{url}/rows?id=id&options=-crole%3D{role}"
    [sink] = audit(Given(["p-1"]), address).sinks
    assert sink.doubled.rows == 1
    with psycopg.connect(url) as connection:
        connection.execute("ALTER TABLE rows ENABLE ROW LEVEL SECURITY")
    with pytest.raises(AuditFailed, match="would be affected by row-level security policy"):
        audit(Given(["p-1"]), address)


def test_options_of_the_environment_count_too(two_schemas: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGOPTIONS", "-csearch_path=shop")
    assert audit(Given(["p-1"]), f"{two_schemas}/rows?id=id").is_clean


def test_an_amount_that_sqlite_keeps_as_a_float_is_its_shortest_text(tmp_path: Path) -> None:
    """NUMERIC makes a float of a decimal. It is what it is: the same where the float says so, and altered where not."""
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection, connection:
        connection.execute("CREATE TABLE rows (id TEXT, amount NUMERIC)")
        connection.execute("INSERT INTO rows VALUES ('same', '12345678901234.25')")
        connection.execute("INSERT INTO rows VALUES ('altered', '12345678901234567.89')")
        # In SQLite's own text of it, which has 15 digits, this is what was sent.
        connection.execute("INSERT INTO rows VALUES ('another', '12345678901234.25')")
    amounts = [Decimal(text) for text in ("12345678901234.25", "12345678901234567.89", "12345678901234.2")]
    table = pa.table({"id": ["same", "altered", "another"], "amount": pa.array(amounts, pa.decimal128(30, 2))})
    sent = Given(table, amount="amount")
    [sink] = audit(sent, f"sqlite:{tmp_path}/x.db/rows?id=id&amount=amount").sinks
    assert [finding.text for finding in sink.altered.listed] == ["altered", "another"]


def test_a_sum_may_be_longer_than_each_of_its_amounts() -> None:
    """Arrow's sum of decimals runs over without a word, and Python's is rounded."""
    largest = Decimal("9" * 29 + "." + "9" * 9)
    table = pa.table({"id": ["a", "b", "c"], "amount": pa.array([largest] * 3, pa.decimal128(38, 9))})
    verdict = audit(Given(table, amount="amount"), Given(table, amount="amount"))
    assert verdict.as_json()["source"]["amount"] == "2" + "9" * 29 + "." + "9" * 8 + "7"
    assert verdict.source.amount == verdict.sinks[0].sink.amount == Decimal("2" + "9" * 29 + "." + "9" * 8 + "7")


def test_a_column_may_be_written_as_a_dictionary_whatever_it_holds() -> None:
    """As pandas writes what it calls categories."""
    columns = {"value": ['{"id": "a"}', None], "amount": ["1.50", "x"], "at": ["2026-01-02", "never"]}
    plain = pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})
    coded = pa.table({name: column.dictionary_encode() for name, column in zip(columns, plain.columns, strict=True)})
    wanted = Wanted(Selector.parse("value.$.id"), Selector.parse("at"), Selector.parse("amount"))
    [rows, found] = [
        wanted.rows_of({name: table.column(name).chunk(0) for name in columns}) for table in (plain, coded)
    ]
    assert found == rows


@pytest.mark.parametrize("column", ["id", "id REAL", "id NUMERIC"])
def test_a_number_with_a_point_in_a_column_of_ids_is_a_row_without_one(tmp_path: Path, column: str) -> None:
    """It never ends the audit: what is wrong elsewhere is found as well."""
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection, connection:
        connection.execute(f"CREATE TABLE rows ({column})")
        connection.executemany("INSERT INTO rows VALUES (?)", [("p-1",), (1.5,), ("p-9",)])
    verdict = audit(Given(["p-1", "p-2"]), f"sqlite:{tmp_path}/x.db/rows?id=id")
    [sink] = verdict.sinks
    assert (sink.sink.rows, sink.sink.without_id) == (2, 1)
    assert [[one.text for one in found.listed] for found in (sink.lost, sink.foreign)] == [["p-2"], ["p-9"]]
