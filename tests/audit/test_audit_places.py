"""Each kind of place, the real thing: an id is the same wherever it is, and what is missing or double is found."""

import errno
import json
import os
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import deltalake
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from mariadb_under_test import asked
from semel.audit import AuditFailed, Given, Verdict, audit
from semel.audit.addresses import place
from semel.audit.reader_check import check_readers
from semel.testing.broker import FaultyBroker
from semel.testing.postgres import PostgresServer

KEY = "000102030405060708090a0b0c0d0e0f"
IDS = ["payment-1", "payment-2", "17", "018f-äöü", "with, comma", 'a "quote"', "two\nlines", " spaces ", "x" * 300]
TIMES_MS = [1_700_000_000_000 + 1_000 * number for number in range(len(IDS))]
AMOUNTS = [Decimal(number * 7) / 100 for number in range(len(IDS))]

Rows = list[tuple[str, int, Decimal]]
ROWS: Rows = list(zip(IDS, TIMES_MS, AMOUNTS, strict=True))


def given_rows(rows: Rows) -> Given:
    ids, times, amounts = zip(*rows, strict=True)
    table = pa.table({"id": ids, "at": pa.array(times, pa.int64()), "amount": pa.array(amounts)})
    return Given(table, time="at", amount="amount")


def arrow(rows: Rows) -> pa.Table:
    ids, times, amounts = zip(*rows, strict=True)
    return pa.table(
        {
            "event_id": ids,
            "at": pa.array([at * 1000 for at in times], pa.timestamp("us", "UTC")),
            "amount": pa.array(amounts, pa.decimal128(12, 2)),
        }
    )


class Written:
    """Writes the same rows to any kind of place, and says the address of it."""

    def __init__(self, directory: Path, request: pytest.FixtureRequest) -> None:
        self._directory = directory
        self._request = request

    def parquet(self, rows: Rows) -> str:
        directory = self._directory / "files/day=1"
        directory.mkdir(parents=True)
        pq.write_table(arrow(rows[:3]), directory / "a.parquet")
        pq.write_table(arrow(rows[3:]), directory / "b.snappy.parquet", row_group_size=1)
        pq.write_table(arrow(rows), self._directory / "files/_left_over.parquet")
        return f"parquet:{directory.parent}?id=event_id&time=at&amount=amount"

    def iceberg(self, rows: Rows) -> str:
        from pyiceberg.catalog import load_catalog

        settings = {"uri": f"sqlite:///{self._directory}/catalog.db", "warehouse": f"file://{self._directory}/lake"}
        catalog = load_catalog("lake", type="sql", **settings)
        catalog.create_namespace("shop")
        table = catalog.create_table("shop.payments", arrow(rows).schema)
        for part in (rows[:3], rows[3:]):
            table.append(arrow(part))
        given = "&".join(f"catalog.{name}={quote(value)}" for name, value in settings.items())
        return f"iceberg:shop.payments?id=event_id&time=at&amount=amount&catalog=lake&catalog.type=sql&{given}"

    def delta(self, rows: Rows) -> str:
        path = self._directory / "delta table"
        deltalake.write_deltalake(path, arrow(rows[:3]))
        deltalake.write_deltalake(path, arrow(rows[3:]), mode="append")
        return f"delta:{path}?id=event_id&time=at&amount=amount".replace(" ", "%20")

    def sqlite(self, rows: Rows) -> str:
        path = self._directory / "rows.db"
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("CREATE TABLE [the rows] (id, at INTEGER, amount)")
            # One id as a number: SQLite lets it stand among the texts.
            values = [(int(id) if id.isdecimal() else id, at, str(amount)) for id, at, amount in rows]
            connection.executemany("INSERT INTO [the rows] VALUES (?, ?, ?)", values)
        return f"sqlite:{path}/the rows?id=id&time=at&amount=amount"

    def postgresql(self, rows: Rows) -> str:
        url: str = self._request.getfixturevalue("postgres_url")
        with psycopg.connect(url) as connection:
            connection.execute("CREATE SCHEMA shop")
            connection.execute('CREATE TABLE shop."Rows" (id text, at timestamptz, amount numeric)')
            values = [(id, datetime.fromtimestamp(at / 1000, UTC), amount) for id, at, amount in rows]
            connection.cursor().executemany('INSERT INTO shop."Rows" VALUES (%s, %s, %s)', values)
        return f"{url}/shop.Rows?id=id&time=at&amount=amount"

    def mariadb(self, rows: Rows) -> str:
        url: str = self._request.getfixturevalue("mariadb_url")
        moments = [datetime.fromtimestamp(at / 1000, UTC).replace(tzinfo=None) for _, at, _ in rows]
        ids = [id.replace("'", "''") for id, *_ in rows]
        values = [f"('{id}', '{at}', {row[2]})" for id, at, row in zip(ids, moments, rows, strict=True)]
        asked(
            url,
            'CREATE TABLE "the rows" (id text CHARACTER SET utf8mb4, at datetime(3), amount decimal(20,2))',
            f'INSERT INTO "the rows" VALUES {", ".join(values)}',
        )
        return f"{url}/{url.rpartition('/')[2]}.the%20rows?id=id&time=at&amount=amount"

    def pooled(self, rows: Rows) -> str:
        pooled: str = self._request.getfixturevalue("pooled_url")
        return self.postgresql(rows).replace(self._request.getfixturevalue("postgres_url"), pooled)

    def semel(self, rows: Rows) -> str:
        broker: FaultyBroker = self._request.getfixturevalue("semel_broker")
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for id, at, amount in rows:
            value = json.dumps({"payment": {"amount": float(amount)}})
            producer.produce("payments", value, key=id, timestamp=at)
        assert producer.flush(20) == 0
        return f"semel://{broker.bootstrap}/payments?id=key&amount=value.$.payment.amount"


KINDS: dict[str, Callable[[Written, Rows], str]] = {
    "parquet": Written.parquet,
    "delta": Written.delta,
    "iceberg": Written.iceberg,
    "sqlite": Written.sqlite,
    "postgresql": Written.postgresql,
    "mariadb": Written.mariadb,
    "through a pooler": Written.pooled,
    "semel": Written.semel,
}


@pytest.fixture
def written(tmp_path: Path, request: pytest.FixtureRequest) -> Written:
    return Written(tmp_path, request)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_rows_are_the_same_wherever_they_are(kind: str, written: Written) -> None:
    verdict = audit(given_rows(ROWS), KINDS[kind](written, ROWS), window_ms=2_000, key=KEY)
    assert verdict.is_clean, verdict.sinks
    assert verdict.sinks[0].sink.rows == len(ROWS)
    assert verdict.sinks[0].sink.amount == sum(AMOUNTS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_lost_a_doubled_a_foreign_and_an_altered_row_are_found_anywhere(kind: str, written: Written) -> None:
    stored = [*ROWS[1:], ROWS[2], ("nobody's", 0, Decimal(0)), (IDS[3], TIMES_MS[3], Decimal(9))]
    stored.remove(ROWS[3])
    [sink] = audit(given_rows(ROWS), KINDS[kind](written, stored), window_ms=10_000).sinks
    found = (sink.lost, sink.doubled, sink.foreign, sink.altered)
    assert [[one.text for one in findings.listed] for findings in found] == [[IDS[0]], ["17"], ["nobody's"], [IDS[3]]]


@pytest.mark.parametrize(
    ("kind", "size"), [("parquet", "piece_rows"), ("semel", "piece_rows"), ("postgresql", "batch_rows")]
)
def test_no_row_is_lost_or_doubled_where_one_piece_ends_and_the_next_begins(
    kind: str, size: str, written: Written
) -> None:
    address = KINDS[kind](written, ROWS)
    for count in range(1, len(ROWS) + 2):
        read: Any = replace(place(address, {}), **{size: count})  # type: ignore[type-var]
        verdict = audit(given_rows(ROWS), read)
        assert verdict.is_clean, (count, verdict.sinks)
        assert len(read.pieces()) > 1 or count >= len(ROWS) or kind == "postgresql"


@pytest.mark.parametrize("kind", KINDS)
def test_a_column_that_is_not_there_is_named(kind: str, written: Written) -> None:
    address = re.sub(r"\?id=[^&]*", "?id=no_such_column", KINDS[kind](written, ROWS))
    with pytest.raises(AuditFailed, match="no_such_column"):
        audit(given_rows(ROWS), address)


def test_only_a_place_of_its_own_kind_is_taken_for_one(tmp_path: Path, postgres: PostgresServer) -> None:
    (tmp_path / "x.parquet").write_bytes(b"no parquet at all")
    (tmp_path / "x.db").write_bytes(b"no database at all, and longer than a header of one is" * 20)
    for address in (
        f"parquet:{tmp_path}?id=id",
        f"parquet:{tmp_path}/x.parquet?id=id",
        f"delta:{tmp_path}?id=id",
        f"delta:{tmp_path}/nothing?id=id",
        f"sqlite:{tmp_path}/x.db/rows?id=id",
        f"sqlite:{tmp_path}/nothing.db/rows?id=id",
        f"{postgres.url('nothing')}/rows?id=id",
        f"{postgres.url('postgres')}/nothing?id=id",
    ):
        with pytest.raises(AuditFailed) as failed:
            audit(Given([]), address)
        assert "\n" not in str(failed.value)


# -- tables -----------------------------------------------------------------------------------------------------------


def listed(verdict: Verdict) -> list[str]:
    return [finding.text for finding in verdict.sinks[0].foreign.listed]


def test_an_id_is_looked_for_in_the_json_of_a_column(postgres: PostgresServer) -> None:
    url = postgres.new_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE rows (event jsonb)")
        connection.execute("""INSERT INTO rows VALUES ('{"id": {"number": 17}}'), ('{"id": null}')""")
    verdict = audit(Given([17]), f"{url}/rows?id=event.$.id.number")
    assert (verdict.sinks[0].lost.rows, verdict.sinks[0].foreign.rows, verdict.sinks[0].sink.without_id) == (0, 0, 1)


def test_a_null_is_no_id_and_an_empty_text_is_one(postgres: PostgresServer, tmp_path: Path) -> None:
    url = postgres.new_database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE rows (id text)")
        connection.execute("INSERT INTO rows VALUES (NULL), ('')")
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection, connection:
        connection.execute("CREATE TABLE rows (id text)")
        connection.execute("INSERT INTO rows VALUES (NULL), ('')")
    verdict = audit(Given([""]), [f"{url}/rows?id=id", f"sqlite:{tmp_path}/x.db/rows?id=id"])
    assert [(one.sink.rows, one.sink.without_id, one.lost.rows) for one in verdict.sinks] == [(1, 1, 0), (1, 1, 0)]


def test_a_password_is_in_no_name_and_no_message(postgres: PostgresServer) -> None:
    url = postgres.url("nothing").replace("semel@", "semel:secret@")
    with pytest.raises(AuditFailed) as failed:
        audit(Given([]), f"{url}/rows?id=id")
    assert "secret" not in str(failed.value)
    assert "semel@127.0.0.1" in str(failed.value)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://semel:secret@h/d/t?id=a&id=b",
        "postgres://semel:secret@h/d/t?id=a",
        "postgresql://semel:se?cret=@h/d/t?id=a",
        "semel://h:9092?id=key&kafka.sasl.password=secret",
        "kafka://h:9092/t?id=key&kafka.sasl.password=secret",
    ],
)
def test_an_address_that_is_refused_shows_no_password(address: str) -> None:
    with pytest.raises(AuditFailed) as failed:
        audit(Given([]), address)
    assert "cret" not in str(failed.value)


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le"])
def test_a_column_of_sqlite_may_hold_ids_of_several_types(tmp_path: Path, encoding: str) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as connection, connection:
        connection.execute(f"PRAGMA encoding = '{encoding}'")
        connection.execute("CREATE TABLE rows (id)")
        connection.executemany("INSERT INTO rows VALUES (?)", [(1,), ("x",), (b"\xff",)])
    address = f"sqlite:{tmp_path}/x.db/rows?id=id"
    assert listed(audit(Given([]), address)) == ["1", "x", "0xff"]


def test_of_a_directory_everything_counts_that_spark_would_read(tmp_path: Path) -> None:
    for number, directory in enumerate(("_day=1", "day=2/_hour=3", "_temporary/0", "day=2/.hidden", ".day=4")):
        (tmp_path / directory).mkdir(parents=True)
        pq.write_table(pa.table({"id": [number]}), tmp_path / directory / "part.parquet")
    # Hive names its files so.
    pq.write_table(pa.table({"id": [5]}), tmp_path / "000000_0")
    (tmp_path / "README").write_text("about these files")
    assert listed(audit(Given([]), f"parquet:{tmp_path}?id=id")) == ["0", "1", "5"]


def test_a_directory_that_may_not_be_listed_ends_the_audit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Left out silently, it would hide what is stored twice: Spark, as another user, reads it."""
    for directory in ("day=1", "day=2"):
        (tmp_path / directory).mkdir()
        pq.write_table(pa.table({"id": ["p-1"]}), tmp_path / directory / "part.parquet")
    scandir = os.scandir

    def closed(path: Any) -> Any:
        if str(path).endswith("day=2"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    with pytest.raises(AuditFailed, match="day=2: Permission denied"):
        audit(Given(["p-1"]), f"parquet:{tmp_path}?id=id")


@pytest.mark.parametrize("kind", ["parquet", "sqlite", "mariadb"])
def test_of_long_rows_fewer_are_held_at_a_time(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> None:
    """Sixty thousand documents with the id somewhere in them would not fit into the memory."""
    rows = [f'{{"id":{number},"text":"{os.urandom(2_000).hex()}"}}' for number in range(600)]
    if kind == "parquet":
        pq.write_table(pa.table({"body": rows}), tmp_path / "a.parquet", row_group_size=500)
        address = f"parquet:{tmp_path}?id=body.$.id"
    elif kind == "mariadb":
        url = request.getfixturevalue("mariadb_url")
        values = ", ".join(f"('{row}')" for row in rows)
        asked(url, "CREATE TABLE there (body text)", f"INSERT INTO there VALUES {values}")
        address = f"{url}/there?id=body.$.id"
    else:
        with closing(sqlite3.connect(tmp_path / "x.db")) as connection, connection:
            connection.execute("CREATE TABLE rows (body)")
            connection.executemany("INSERT INTO rows VALUES (?)", zip(rows, strict=True))
        address = f"sqlite:{tmp_path}/x.db/rows?id=body.$.id"
    read = place(address, {})
    pieces: list[Any] = [replace(piece, batch_bytes=400_000) for piece in read.pieces()]  # type: ignore[type-var]
    batches = [rows for piece in pieces for rows in piece.read(read.wanted)]
    assert sum(len(rows.ids) for rows in batches) == 600
    assert max(len(rows.ids) for rows in batches) <= 256
    assert audit(Given(range(600)), address).is_clean


def test_of_a_directory_what_links_lead_to_counts(tmp_path: Path) -> None:
    """As for Spark. A link that leads nowhere, or back, ends the audit."""
    elsewhere = tmp_path / "elsewhere/part"
    elsewhere.mkdir(parents=True)
    pq.write_table(pa.table({"id": ["p-1"]}), elsewhere / "a.parquet")
    directory = tmp_path / "out"
    directory.mkdir()
    pq.write_table(pa.table({"id": ["p-1"]}), directory / "b.parquet")
    (directory / "day=1").symlink_to(elsewhere.parent)
    [sink] = audit(Given(["p-1"]), f"parquet:{directory}?id=id").sinks
    assert (sink.sink.rows, sink.doubled.rows) == (2, 1)
    for link, target, reason in (("c.parquet", "nowhere", "No such file"), ("day=2", "../out", "that it is in itself")):
        (directory / link).symlink_to(target)
        with pytest.raises(AuditFailed, match=f"{link}: .*{reason}"):
            audit(Given(["p-1"]), f"parquet:{directory}?id=id")
        (directory / link).unlink()


def test_a_delta_table_is_read_as_of_a_version(tmp_path: Path) -> None:
    for number in range(3):
        deltalake.write_deltalake(tmp_path, pa.table({"id": [number]}), mode="append")
    assert audit(Given([0, 1]), f"delta:{tmp_path}?id=id&version=1").is_clean
    assert audit(Given([0, 1, 2]), f"delta:{tmp_path}?id=id").is_clean
    deltalake.DeltaTable(tmp_path).delete("id = 1")
    assert audit(Given([0, 2]), f"delta:{tmp_path}?id=id").is_clean


def test_the_files_of_a_delta_table_are_not_its_rows(tmp_path: Path) -> None:
    """A row that was deleted stays in a file: as Parquet the table would look clean."""
    deltalake.write_deltalake(tmp_path, pa.table({"id": [1, 2]}))
    deltalake.DeltaTable(tmp_path).delete("id = 1")
    with pytest.raises(AuditFailed, match=f"is a Delta table: write delta:{tmp_path}"):
        audit(Given([1, 2]), f"parquet:{tmp_path}?id=id")
    with pytest.raises(AuditFailed, match="is a Delta table"):
        check_readers(tmp_path)


@pytest.mark.parametrize("feature", ["deletionVectors", "columnMapping"])
def test_a_delta_table_whose_files_are_not_its_rows_is_refused(tmp_path: Path, feature: str) -> None:
    deltalake.write_deltalake(tmp_path, pa.table({"id": [1, 2]}))
    log = tmp_path / "_delta_log/00000000000000000000.json"
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    features = {"readerFeatures": [feature], "writerFeatures": [feature]}
    entries = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}} if "protocol" in entry else entry
        for entry in entries
    ]
    log.write_text("\n".join(map(json.dumps, entries)))
    with pytest.raises(AuditFailed, match=feature):
        audit(Given([1, 2]), f"delta:{tmp_path}?id=id")


def test_a_delta_table_beside_the_one_that_is_named_is_not_read(tmp_path: Path) -> None:
    """The library would take the first name for the second one, and so give a verdict on another table."""
    for name in ("a%20b", "a b"):
        deltalake.write_deltalake(tmp_path / "made", pa.table({"id": [1, 2]}))
        (tmp_path / "made").rename(tmp_path / name)
    with pytest.raises(AuditFailed, match=r"deltalake would read .* as another path"):
        audit(Given([1, 2]), f"delta:{tmp_path}/a%2520b?id=id")
    assert audit(Given([1, 2]), f"delta:{tmp_path}/a%20b?id=id").is_clean


def test_a_partitioned_delta_table_is_read_but_for_what_partitions_it(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path, pa.table({"id": [1, 2], "shop": ["a b", "c"]}), partition_by=["shop"])
    assert audit(Given([1, 2]), f"delta:{tmp_path}?id=id").is_clean
    with pytest.raises(AuditFailed, match="'shop' partitions the table"):
        audit(Given([]), f"delta:{tmp_path}?id=shop")


# -- topics -----------------------------------------------------------------------------------------------------------


def test_of_a_topic_only_what_was_committed_counts(semel_broker: FaultyBroker) -> None:
    producer = Producer({"bootstrap.servers": semel_broker.bootstrap, "transactional.id": "test"})
    producer.init_transactions(20)
    for id, is_committed in (("kept", True), ("aborted", False), ("kept too", True)):
        producer.begin_transaction()
        producer.produce("payments", b"", key=id)
        producer.flush(20)
        producer.commit_transaction(20) if is_committed else producer.abort_transaction(20)
    producer.begin_transaction()
    producer.produce("payments", b"", key="open")
    producer.flush(20)
    verdict = audit(f"semel://{semel_broker.bootstrap}/payments?id=key", Given(["kept", "kept too"]))
    assert verdict.is_clean, verdict


def test_an_id_is_found_in_a_header_or_in_json(semel_broker: FaultyBroker) -> None:
    producer = Producer({"bootstrap.servers": semel_broker.bootstrap})
    for number in (1, 2, 3):
        headers = [("other", b"x"), ("id", b"not the last"), ("id", b"%d" % number)]
        producer.produce("payments", json.dumps({"ids": [{"n": number}]}), headers=headers)
    producer.produce("payments", b"no JSON, and no header")
    producer.produce("payments", None, headers=[("id", None)])
    assert producer.flush(20) == 0
    for selector in ("header.id", "value.$.ids.0.n"):
        verdict = audit(f"semel://{semel_broker.bootstrap}/payments?id={selector}", Given([1, 2, 3]))
        assert (verdict.source.rows, verdict.source.without_id) == (3, 2), selector
        assert verdict.sinks[0].is_clean


def test_a_topic_that_is_not_there_and_a_broker_that_is_not_there_are_told_apart(semel_broker: FaultyBroker) -> None:
    with pytest.raises(AuditFailed, match="there is no such topic"):
        audit(f"semel://{semel_broker.bootstrap}/nothing?id=key", Given([]))
    with pytest.raises(AuditFailed, match="cannot connect"):
        audit("semel://127.0.0.1:1/payments?id=key&kafka.default.api.timeout.ms=100", Given([]))


def test_an_audit_at_an_address_where_nobody_listens_says_so_after_a_few_tries() -> None:
    """It would be tried for a minute if it could be away for a moment."""
    with pytest.raises(AuditFailed) as failed:
        audit("semel://127.0.0.1:1/payments?id=key", Given([]))
    assert str(failed.value) == (
        "semel://127.0.0.1:1/payments: cannot connect to 127.0.0.1:1: Connection refused. Start the broker, or correct "
        "the address (bootstrap.servers)"
    )


# -- what an address may not be --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "understood"),
    [
        ("sqlite:shop.db/orders", "sqlite:shop.db/orders"),
        ("sqlite:///shop.db/orders", "sqlite:shop.db/orders"),
        ("sqlite:/data/shop.db/orders", "sqlite:/data/shop.db/orders"),
        ("sqlite:////data/shop.db/orders", "sqlite:/data/shop.db/orders"),
    ],
)
def test_a_file_of_sqlite_is_named_as_the_audit_or_as_the_sink_names_it(address: str, understood: str) -> None:
    assert place(f"{address}?id=id", {}).name == understood


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("payments", "such an address begins with one of semel:, parquet:"),
        ("parquet:/x", r"add \?id="),
        ("parquet://x/y?id=id", "would be a host"),
        ("parquet:?id=id", "says no path"),
        ("parquet:/x?id=id&id=key", "gives an option twice"),
        ("parquet:/x?id=id&tiem=at", "was 'time' meant"),
        ("parquet:/x?id=id.$.", "names neither a column nor a field"),
        ("delta:/x?id=id&version=new", "is no version"),
        (f"delta:/x?id=id&version={1 << 64}", "is no version"),
        ("sqlite:x?id=id", "names no table"),
        ("postgresql://h/db?id=id", "names no table"),
        ("mysql://h/db?id=id", "names no table"),
        ("semel://h:9092?id=key", "names no topic"),
        ("semel://h:9092/a/b?id=key", "names no topic"),
        ("semel://h:9092/a?id=key&kafka.acks=1", "cannot be set"),
        ("semel://h:9092/a?id=event_id", "a record has no 'event_id'"),
        ("semel://h:port/a?id=key", "HOST:PORT"),
        ("parquet:/data/run#3?id=id", "'parquet:/data/run#3' has a '#'"),
        ("semel://h:9092/a?id=value.$.no#1", "write %23 instead"),
    ],
)
def test_an_address_that_cannot_be_is_refused_with_the_reason(address: str, reason: str) -> None:
    with pytest.raises(AuditFailed, match=reason) as failed:
        audit(address, Given([]))
    assert "\n" not in str(failed.value)
