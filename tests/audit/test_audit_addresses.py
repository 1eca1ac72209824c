"""Addresses with a wrong name, which an audit answers by the name that was meant, and several places in one sink."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import deltalake
import psycopg
import pyarrow as pa
import pytest

from mariadb_under_test import asked
from semel.audit import AuditFailed, Given, addresses, audit
from semel.ui.cli.audit import EXAMPLE


def in_postgresql(request: pytest.FixtureRequest, _: Path) -> str:
    url: str = request.getfixturevalue("postgres_url")
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE payments (id text)")
    return url


def in_mariadb(request: pytest.FixtureRequest, _: Path) -> str:
    url: str = request.getfixturevalue("mariadb_url")
    asked(url, "CREATE TABLE payments (id text)")
    return url


def in_sqlite(_: pytest.FixtureRequest, directory: Path) -> str:
    with closing(sqlite3.connect(directory / "x.db")) as file, file:
        file.execute("CREATE TABLE payments (id TEXT)")
    return f"sqlite:{directory}/x.db"


def in_delta(_: pytest.FixtureRequest, directory: Path) -> str:
    deltalake.write_deltalake(directory / "payments", pa.table({"id": ["1"]}))
    return f"delta:{directory}"


@pytest.mark.parametrize("made", [in_postgresql, in_mariadb, in_sqlite, in_delta])
def test_a_wrong_name_is_answered_by_the_one_that_was_meant(
    made: Callable[[pytest.FixtureRequest, Path], str], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    where = made(request, tmp_path)
    with pytest.raises(AuditFailed, match=r"no (such |Delta )?table.* was 'payments' meant\?$") as failed:
        audit(Given([]), f"{where}/paymnets?id=id")
    assert "\n" not in str(failed.value)
    if made is not in_delta:
        with pytest.raises(AuditFailed, match=r"no (such )?column.* was 'id' meant\?$"):
            audit(Given([]), f"{where}/payments?id=idd")


def test_the_scheme_that_was_meant_is_suggested() -> None:
    with pytest.raises(AuditFailed, match=r"'postgres://.*' is not an address that can be audited; was 'postgresql:'"):
        audit(Given([]), "postgres://app@host/shop/payments?id=id")


def test_a_wrong_table_of_another_database_is_answered_by_its_whole_name(mariadb_url: str) -> None:
    asked(mariadb_url, "CREATE TABLE payments (id text)")
    server, _, database = mariadb_url.rpartition("/")
    with pytest.raises(AuditFailed, match=rf"was '{database}\.payments' meant"):
        audit(Given([]), f"{server}/information_schema/{database}.paymnets?id=id")


def test_a_field_that_no_row_has_is_answered_by_the_one_that_was_meant() -> None:
    rows = pa.table({"body": ['{"payment": {"id": 1, "cents": 5}}', "no JSON", '{"payment": {"id": 2}}', "[3]"]})
    for path, said in (
        ("payment.idd", r"no row has a field 'idd' in body; was 'id' meant\?"),
        ("payment.ident", r"no row has a field 'ident' in body; was 'id' meant\?"),
        ("order.id", r"no row has a field 'order' in body: there are payment"),
    ):
        with pytest.raises(AuditFailed, match=said):
            audit(Given([1, 2]), Given(rows, id=f"body.$.{path}"))
    [sink] = audit(Given([1, 2]), Given(rows, id="body.$.payment.id")).sinks
    assert (sink.sink.rows, sink.sink.without_id) == (2, 2)


def test_a_row_may_be_in_any_place_of_a_sink_and_has_to_be_in_one(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as file, file:
        file.execute("CREATE TABLE orders (id TEXT, cents INTEGER)")
        file.execute("CREATE TABLE orders_quarantine (row TEXT)")
        file.execute("""INSERT INTO orders VALUES ('a', 1), ('b', 2)""")
        file.execute("""INSERT INTO orders_quarantine VALUES ('{"id": "c", "cents": 3}'), ('no JSON')""")
    sent = pa.table({"id": ["a", "b", "c"], "cents": [1, 2, 3]})
    orders = f"sqlite:{tmp_path}/x.db/orders?id=id&amount=cents"
    quarantine = f"sqlite:{tmp_path}/x.db/orders_quarantine?id=row.$.id&amount=row.$.cents"
    [sink] = audit(Given(sent, amount="cents"), [(orders, quarantine)]).sinks
    assert (sink.lost.rows, sink.doubled.rows, sink.foreign.rows, sink.altered.rows) == (0, 0, 0, 0)
    assert (sink.sink.rows, sink.sink.without_id, sink.sink.amount) == (3, 1, 6)
    assert sink.sink.name == f"sqlite:{tmp_path}/x.db/orders or sqlite:{tmp_path}/x.db/orders_quarantine"
    [twice] = audit(Given(sent, amount="cents"), [(orders, orders, quarantine)]).sinks
    assert [one.text for one in twice.doubled.listed] == ["a", "b"]
    with pytest.raises(AuditFailed, match="amounts are compared in all places or in none"):
        audit(Given(sent, amount="cents"), [(orders, quarantine.partition("&")[0])])


def test_the_help_of_the_command_names_each_kind_of_place() -> None:
    assert [scheme for scheme in addresses._PLACES if f"{scheme}:" not in EXAMPLE] == []
