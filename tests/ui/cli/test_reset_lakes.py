"""`semel reset` and the sinks whose claims lie in the table itself: Delta and Iceberg, in a directory and in a bucket.
It refuses a table that another sink has rows in.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyiceberg.catalog import Catalog, load_catalog

from mariadb_under_test import asked
from semel.spark.tables.delta_claims import app_ids, number_of
from semel.spark.tables.iceberg_claims import key_of
from semel.testing.seaweedfs import ACCESS_KEY, SECRET_KEY, SeaweedServer
from semel.ui.cli import reset as reset_command
from semel.ui.cli.errors import Failure
from semel_command import semel, semel_lines

ROWS = pa.table({"id": [1, 2]})
QUERY = "91bb7d10-0f8e-4a57-8a39-6a0d8b5c2e1f"


def reset(directory: Path, sink: str) -> list[str]:
    lines = semel_lines("reset", f"--checkpoint={directory}/none", f"--sink={sink}", "--yes")
    return [" ".join(line.replace(str(directory), "").split()) for line in lines[:-2]]


def refused(directory: Path, sink: str) -> str:
    parser = argparse.ArgumentParser()
    reset_command.configure(parser)
    options = parser.parse_args([f"--checkpoint={directory}/none", f"--sink={sink}", "--yes"])
    with pytest.raises(Failure) as failed:
        reset_command.run(options)
    return str(failed.value)


def write_delta(place: str, sink: str, storage: dict[str, str]) -> None:
    """A table in which a sink has claimed a batch, and whose log has a checkpoint alone."""
    claim = CommitProperties(app_transactions=[Transaction(app_id, 3) for app_id in app_ids(sink)])
    write_deltalake(place, ROWS, commit_properties=claim, storage_options=storage)


def checkpoint_of(directory: Path, query: str) -> None:
    (directory / "none/offsets").mkdir(parents=True, exist_ok=True)
    (directory / "none/metadata").write_text(json.dumps({"id": query}))


def test_a_delta_table_whose_newest_claim_is_of_another_query_stays_with_the_checkpoint(tmp_path: Path) -> None:
    """The newest claim counts, also in a checkpoint of the log."""
    for query in ("4fd3", QUERY):
        claim = [Transaction(one, number_of(query)) for one in app_ids("semel")]
        noted = CommitProperties(app_transactions=claim)
        write_deltalake(tmp_path / "lake", ROWS, mode="append", commit_properties=noted)
    DeltaTable(tmp_path / "lake").create_checkpoint()
    for log in tmp_path.glob("lake/_delta_log/*.json"):
        log.unlink()
    checkpoint_of(tmp_path, "4fd3")
    said = refused(tmp_path, f"delta:{tmp_path}/lake")
    assert f"has the claim of query number {number_of(QUERY)} (this one is {number_of('4fd3')})" in said
    checkpoint_of(tmp_path, QUERY)
    assert reset(tmp_path, f"delta:{tmp_path}/lake")[0].startswith("delta:/lake")
    assert [one for one in tmp_path.iterdir() if one.name in ("lake", "none")] == []


def test_an_iceberg_table_whose_newest_claim_is_of_another_query_stays_with_the_checkpoint(tmp_path: Path) -> None:
    catalog, given = catalog_in(tmp_path)
    table = write_iceberg(catalog, "rows", "semel")
    checkpoint_of(tmp_path, "4fd3")
    both = f"iceberg:shop.rows has the claim of query {QUERY}, and {tmp_path}/none is of query 4fd3"
    assert both in refused(tmp_path, f"iceberg:shop.rows?{given}")
    assert "no claim of query 4fd3" in refused(tmp_path, f"iceberg:shop.rows2?{given}")
    assert "please provide using catalog.uri=..., the config" in refused(tmp_path, "iceberg:shop.rows?catalog=nowhere")
    with table.transaction() as transaction:
        transaction.set_properties({key_of("semel", "main"): json.dumps({"query": "4fd3"})})
    assert reset(tmp_path, f"iceberg:shop.rows?{given}")[0] == "iceberg:shop.rows 2 rows"
    assert not (tmp_path / "none").exists()


def test_a_delta_table_goes_with_its_quarantine_unless_another_sink_has_rows_in_it(tmp_path: Path) -> None:
    for name in ("lake", "lake_quarantine"):
        write_delta(f"{tmp_path}/{name}", "semel", {})
    table = DeltaTable(tmp_path / "lake")
    table.create_checkpoint()
    (tmp_path / "lake/_delta_log/00000000000000000000.json").unlink()
    write_delta(f"{tmp_path}/others", "orders", {})
    said = refused(tmp_path, f"delta:{tmp_path}/lake?sink_id=mine")
    assert said.startswith(
        f"delta:{tmp_path}/lake holds rows of 'semel', and nothing was deleted. If that is your sink"
    )
    assert "holds rows of 'orders'" in refused(tmp_path, f"delta:{tmp_path}/others")
    assert reset(tmp_path, f"delta:{tmp_path}/lake") == ["delta:/lake 3 files", "delta:/lake_quarantine 2 files"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["others"]
    assert reset(tmp_path, f"delta:{tmp_path}/lake") == ["delta:/lake is not there"]


def test_a_delta_table_in_a_bucket_goes_with_its_quarantine_and_nothing_beside_it(
    seaweedfs: SeaweedServer, tmp_path: Path
) -> None:
    storage = {
        "AWS_ENDPOINT_URL": seaweedfs.endpoint,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    place = f"s3://contract/{tmp_path.name}/lake"
    for name in ("", "_quarantine", "2"):
        write_delta(place + name, "orders", storage)
    given = urlencode({"sink_id": "orders", **{f"storage.{name}": value for name, value in storage.items()}})
    assert reset(tmp_path, f"delta:{place}?{given}") == [f"delta:{place} 2 files", f"delta:{place}_quarantine 2 files"]
    assert not DeltaTable.is_deltatable(place, storage)
    assert DeltaTable(f"{place}2", storage_options=storage).to_pyarrow_table().num_rows == 2
    assert reset(tmp_path, f"delta:{place}?{given}") == [f"delta:{place} is not there"]


def catalog_in(directory: Path) -> tuple[Catalog, str]:
    settings = {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db", "warehouse": f"file://{directory}/lake"}
    given = "&".join(f"catalog.{name}={quote(value)}" for name, value in settings.items())
    catalog = load_catalog("lake", **settings)
    catalog.create_namespace("shop")
    return catalog, f"catalog=lake&{given}"


def write_iceberg(catalog: Catalog, name: str, sink: str, branch: str = "main") -> Any:
    table = catalog.create_table(f"shop.{name}", ROWS.schema)
    table.append(ROWS, snapshot_properties={key_of(sink, branch): json.dumps({"query": QUERY})})
    return table


def test_an_iceberg_table_goes_with_its_files_and_its_quarantine(tmp_path: Path) -> None:
    catalog, given = catalog_in(tmp_path)
    for name in ("rows", "rows_quarantine", "rows2"):
        write_iceberg(catalog, name, "semel")
    assert reset(tmp_path, f"iceberg:shop.rows?{given}") == [
        "iceberg:shop.rows 2 rows",
        "iceberg:shop.rows_quarantine 2 rows",
    ]
    assert catalog.list_tables("shop") == [("shop", "rows2")]
    assert [path for path in tmp_path.glob("lake/shop/rows/**/*") if path.is_file()] == []
    assert reset(tmp_path, f"iceberg:shop.rows?{given}") == ["iceberg:shop.rows is not there"]


def test_an_iceberg_table_with_rows_of_another_sink_or_of_a_branch_stays(tmp_path: Path) -> None:
    catalog, given = catalog_in(tmp_path)
    table = write_iceberg(catalog, "rows", "orders")
    assert "holds rows of 'orders'" in refused(tmp_path, f"iceberg:shop.rows?{given}")
    with table.transaction() as transaction:
        transaction.set_properties({key_of("orders", "audit"): json.dumps({"query": QUERY})})
    assert "holds rows of 'orders@audit'" in refused(tmp_path, f"iceberg:shop.rows?{given}&sink_id=orders")
    assert "no branch of it" in refused(tmp_path, f"iceberg:shop.rows?{given}&sink_id=orders@audit")
    assert "write iceberg:NAMESPACE.TABLE" in refused(tmp_path, f"iceberg:rows?{given}")
    assert "no such catalog" not in refused(tmp_path, "iceberg:shop.rows?catalog.type=none")
    assert catalog.load_table("shop.rows").scan().to_arrow().num_rows == 2


@pytest.mark.parametrize("scheme", ["mysql", "mariadb"])
def test_the_url_of_a_sink_into_mariadb_may_have_options_of_its_driver(
    mariadb_url: str, tmp_path: Path, scheme: str
) -> None:
    asked(mariadb_url, 'CREATE TABLE "or`ders" (id bigint)', 'INSERT INTO "or`ders" VALUES (1), (2)')
    address = mariadb_url.replace("mysql+pymysql", scheme)
    shown = reset(tmp_path, f"{address}/or`ders?connect_timeout=60")
    assert [line.rpartition("/")[2] for line in shown] == ["or`ders 2 rows", "semel_batches is not there"]
    assert asked(mariadb_url, 'SELECT * FROM "or`ders"') == []
    assert "sinkid" in refused(tmp_path, f"{address}/or`ders?sinkid=orders")


def test_a_checkpoint_in_a_store_is_left_and_the_user_is_told(tmp_path: Path) -> None:
    ran = semel("reset", "--checkpoint=s3a://lake/checkpoint", f"--sink=delta:{tmp_path}/lake", "--yes")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "s3a://lake/checkpoint is in a store: delete it there yourself" in " ".join(ran.stdout.split())
    assert "when the query starts, and its checkpoint is gone, it begins" in ran.stdout
