"""What a task writes for a Delta table in an object store, and which store is refused: in a directory, no Spark."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from deltalake import DeltaTable
from pyarrow import parquet

from semel.spark.tables.delta_claims import Location
from semel.spark.tables.delta_files import statistics_of
from semel.spark.tables.delta_objects import Writing, check_store, commits_once, parted


class Overwriting(Location):
    """In a store that ignores If-None-Match each commit finds its version free."""

    def table(self, version: int | None = None) -> DeltaTable:
        return Forgetful(super().table(version))  # type: ignore[return-value]


class Forgetful:
    def __init__(self, table: DeltaTable) -> None:
        self.table = table
        self.schema = table.schema

    def create_write_transaction(self, *arguments: Any, **options: Any) -> None:
        self.table.create_write_transaction(*arguments, **options)
        Path(
            self.table.table_uri.removeprefix("file://"), "_delta_log", f"{self.table.version() + 1:020}.json"
        ).unlink()


def test_a_store_in_which_one_of_two_commits_would_vanish_is_refused(tmp_path: Path) -> None:
    assert commits_once(Location(str(tmp_path / "good")))
    with pytest.raises(ValueError, match="ignores If-None-Match: of two commits at once one would vanish"):
        check_store(Overwriting(str(tmp_path / "lying")))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_each_partition_gets_its_rows_whatever_text_it_is(tmp_path: Path) -> None:
    names = ["a/b", None, "", "x" * 1000, "nul\0", "ü=%20", "a/b"]
    days = [date(1, 1, 1), None, date(9999, 12, 31), None, None, None, date(1, 1, 1)]
    rows = pyarrow.table({"id": range(7), "name": names, "day": pyarrow.array(days), "yes": [True, False] * 3 + [True]})
    found = {tuple(values.values()): part["id"].to_pylist() for values, part in parted(rows, ("name", "day", "yes"))}
    # Delta has no empty text in a partition.
    assert found == {
        ("a/b", "0001-01-01", "true"): [0, 6],
        (None, None, "false"): [1],
        (None, "9999-12-31", "true"): [2],
        ("x" * 1000, None, "false"): [3],
        ("nul\0", None, "true"): [4],
        ("ü=%20", None, "false"): [5],
    }


def test_a_task_writes_a_file_for_each_partition_and_refuses_what_is_no_text(tmp_path: Path) -> None:
    writing = Writing(Location(str(tmp_path)), "semel-1", ("name",))
    rows = pyarrow.record_batch({"id": [1, 2, 3], "name": ["a", None, "a"]})
    added = [json.loads(batch["added"][0].as_py()) for batch in writing(iter([rows, rows.slice(0, 0)]))]
    assert sorted((one["values"]["name"] or "", json.loads(one["stats"])["numRecords"]) for one in added) == [
        ("", 1),
        ("a", 2),
    ]
    for one in added:
        assert (tmp_path / one["path"]).stat().st_size == one["size"]
        assert parquet.read_schema(tmp_path / one["path"]).names == ["id"]
    bad = pyarrow.array([b"\xff"], pyarrow.binary()).view("string")
    with pytest.raises(pyarrow.ArrowInvalid, match="UTF8"):
        list(writing([pyarrow.record_batch({"id": [1], "name": bad})]))


def test_the_bounds_of_a_file_leave_no_row_of_it_out(tmp_path: Path) -> None:
    columns = {
        "n": [3, -(2**63), None],
        "text": ["b", "a" * 32, "ä"],
        "long": ["b", "c" * 33, None],
        "at": pyarrow.array([datetime(2026, 1, 1, microsecond=1, tzinfo=UTC)] * 3, pyarrow.timestamp("us", "UTC")),
        "local": pyarrow.array([datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999), None]),
        "day": [date(1, 1, 1), date(9999, 12, 31), None],
        "share": [0.5, float("nan"), None],
        "price": pyarrow.array([Decimal("0.10"), None, None]),
        "none": pyarrow.array([None] * 3, pyarrow.int32()),
        "in": [{"side": 1}, {"side": 2}, None],
        "a.b": [1, 2, 3],
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet", row_group_size=2)
    found = json.loads(statistics_of(parquet.read_metadata(tmp_path / "rows.parquet")))
    assert found["numRecords"] == 3
    assert found["minValues"] == {
        "n": -(2**63),
        "text": "a" * 32,
        "at": "2026-01-01T00:00:00.000Z",
        "day": "0001-01-01",
    }
    assert found["maxValues"] == {"n": 3, "text": "ä", "at": "2026-01-01T00:00:00.001Z", "day": "9999-12-31"}
    assert found["nullCount"] == {
        "n": 1,
        "text": 0,
        "long": 1,
        "at": 0,
        "local": 1,
        "day": 1,
        "share": 1,
        "price": 2,
        "none": 3,
    }
