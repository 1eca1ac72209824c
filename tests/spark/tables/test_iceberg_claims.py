"""Which claim of a sink in an Iceberg table counts, after what maintenance and people do to its snapshots.

Without Spark, because a commit may have no files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest
from pyspark.sql.types import StructType

from semel.spark.claims import BatchRefused, Outcome
from semel.spark.tables.claims import TableClaim, judge
from semel.spark.tables.file_rows import judge_quarantined
from semel.spark.tables.files import OpenedTable, Staged
from semel.spark.tables.iceberg_claims import Noted, noted_in, text_of
from semel.spark.tables.iceberg_files import Writing, data_files
from semel.spark.tables.iceberg_schema import schema_of
from semel.spark.tables.iceberg_sink import IcebergFiles, iceberg_sink

if TYPE_CHECKING:
    from pyiceberg.table import Table

ARRAY = {"type": "array", "elementType": "integer", "containsNull": True}
LONGS = {**ARRAY, "elementType": "long"}


def columns(types: dict[str, Any]) -> StructType:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
    return StructType.fromJson({"type": "struct", "fields": fields})


SCHEMA = columns({"id": "long"})
NAMED = columns({"id": "long", "name": "string"})


class Lake:
    """A table in a catalog of its own."""

    def __init__(self, directory: Path) -> None:
        self.settings = {
            "type": "sql",
            "uri": f"sqlite:///{directory}/catalog.db",
            "warehouse": f"file://{directory}/warehouse",
        }

    def files(self, sink_id: str = "semel", branch: str = "main") -> IcebergFiles:
        return IcebergFiles("lake", self.settings, "shop.rows", sink_id, branch=branch)

    @property
    def table(self) -> Table:
        return self.files().catalog.load_table("shop.rows")

    def commit(self, *batches: int, sink_id: str = "semel", branch: str = "main") -> None:
        files = self.files(sink_id, branch)
        for batch in batches:
            assert files.committed(files.opened(SCHEMA), [], claim(batch), batch)

    def held(self, sink_id: str = "semel", branch: str = "main") -> TableClaim | None:
        files = self.files(sink_id, branch)
        return files.held(files.opened(SCHEMA))

    def foreign(self) -> None:
        self.table.append(pyarrow.table({"id": [99]}))

    def back_to(self, place: int) -> None:
        """Rolls back to one of the snapshots, in the order of their commits."""
        snapshots = sorted(self.table.snapshots(), key=lambda one: one.sequence_number or 0)
        self.table.manage_snapshots().rollback_to_snapshot(snapshots[place].snapshot_id).commit()

    def expire(self, *, older: bool = True) -> None:
        """Removes all snapshots but those that are a branch's newest; with `older=False` those alone that are newer."""
        table, current = self.table, self.table.current_snapshot()
        assert current is not None
        heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
        gone = [
            one.snapshot_id
            for one in table.snapshots()
            if one.snapshot_id not in heads and (older or (one.sequence_number or 0) > (current.sequence_number or 0))
        ]
        table.maintenance.expire_snapshots().by_ids(gone).commit()


def column_added_again(lake: Lake) -> None:
    from pyiceberg.types import StringType

    for change in ("delete_column", "add_column"):
        with lake.table.update_schema() as update:
            getattr(update, change)("name", *([StringType()] if change == "add_column" else []))


def other_partitions(lake: Lake) -> None:
    with lake.table.update_spec() as update:
        update.add_identity("name")


def table_created_again(lake: Lake) -> None:
    catalog = lake.files().catalog
    catalog.drop_table("shop.rows")
    catalog.create_table("shop.rows", schema_of(NAMED))


def claim(batch: int) -> TableClaim:
    return TableClaim("query", batch, str(batch))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    assert lake.held() is None
    return lake


def test_a_claim_outlives_its_snapshot(lake: Lake) -> None:
    lake.commit(0, 1)
    lake.foreign()
    assert lake.held() == claim(1)
    lake.expire()
    assert [one.summary and one.summary.operation.value for one in lake.table.snapshots()] == ["append"]
    assert lake.held() == claim(1)
    lake.commit(2)
    assert lake.held() == claim(2)


def test_a_rollback_leaves_the_claim_of_the_rows_that_are_left(lake: Lake) -> None:
    lake.commit(0, 1, 2)
    lake.back_to(0)
    assert lake.held() == claim(0)
    lake.foreign()
    lake.expire(older=False)
    assert lake.held() == claim(0)


def test_a_rollback_to_before_the_sink_leaves_no_claim(lake: Lake) -> None:
    lake.foreign()
    lake.commit(0, 1)
    lake.back_to(0)
    assert lake.held() is None


def test_a_rollback_is_refused_if_nobody_can_tell_what_is_left(lake: Lake) -> None:
    lake.commit(0)
    lake.foreign()
    lake.commit(1, 2)
    lake.back_to(1)
    # What says that batch 0 is there goes, and all that the rollback took away.
    lake.expire()
    with pytest.raises(BatchRefused, match=r"taken back to a snapshot before batch 2 .* go on under a new sink_id"):
        lake.held()
    # The rows of others that follow make nothing good.
    lake.foreign()
    with pytest.raises(BatchRefused, match="taken back"):
        lake.held()


def test_a_rollback_is_refused_if_only_the_snapshots_before_it_expired(lake: Lake) -> None:
    lake.commit(0)
    lake.foreign()
    lake.commit(1)
    lake.back_to(1)
    table = lake.table
    oldest = min(table.snapshots(), key=lambda one: one.sequence_number or 0)
    table.maintenance.expire_snapshots().by_id(oldest.snapshot_id).commit()
    lake.foreign()
    with pytest.raises(BatchRefused, match="taken back to a snapshot before batch 1"):
        lake.held()


def test_sinks_and_branches_have_claims_of_their_own(lake: Lake) -> None:
    lake.commit(0)
    current = lake.table.current_snapshot()
    assert current is not None
    with pytest.raises(ValueError, match=r"no branch 'audit'.*create_branch"):
        lake.held(branch="audit")
    lake.table.manage_snapshots().create_branch(current.snapshot_id, "audit").commit()
    assert lake.held(branch="audit") is None
    lake.commit(0, 1, 2, branch="audit")
    lake.commit(1)
    lake.commit(0, sink_id="other")
    lake.expire()
    assert (lake.held(), lake.held(branch="audit"), lake.held("other")) == (claim(1), claim(2), claim(0))
    assert lake.held("other", "audit") is None


def test_a_commit_on_another_branch_between_costs_another_try_and_nothing_else(lake: Lake) -> None:
    lake.commit(0)
    current = lake.table.current_snapshot()
    assert current is not None
    lake.table.manage_snapshots().create_branch(current.snapshot_id, "audit").commit()
    files = lake.files(branch="audit")
    version = files.opened(SCHEMA)
    lake.foreign()
    assert not files.committed(version, [], claim(0), 7)
    assert files.committed(files.opened(SCHEMA), [], claim(0), 7)
    assert (lake.held(branch="audit"), files.attempt(files.opened(SCHEMA))) == (claim(0), 7)


def test_a_commit_is_the_next_one_after_the_claim_that_was_read(lake: Lake) -> None:
    """The library would repeat it by itself, after another driver has committed the same batch."""
    lake.commit(0)
    files = lake.files()
    version = files.opened(SCHEMA)
    lake.commit(1)
    assert not files.committed(version, [], claim(1), 7)
    assert (lake.held(), files.attempt(files.opened(SCHEMA))) == (claim(1), 1)


@pytest.mark.parametrize("change", [column_added_again, other_partitions, table_created_again])
def test_no_file_is_committed_to_a_table_that_has_changed_since(tmp_path: Path, change: Callable[[Lake], None]) -> None:
    """A reader would see null for a column that was dropped and added again, and pass over rows in files of other
    partitions."""
    lake = Lake(tmp_path)
    opened = OpenedTable(lake.files(), NAMED)
    rows = pyarrow.table({"id": [1], "name": ["one"]})
    staged = Staged(7, [*data_files(opened.version.metadata, rows, opened.version.io)], None)
    change(lake)
    with pytest.raises(RuntimeError, match=r"other columns or partitions .* batch 0.* start the query again"):
        opened.commit(staged, claim(0), lambda held: judge("rows", held, claim(0), None))
    assert lake.table.scan().to_arrow().num_rows == 0


class Unheard(IcebergFiles):
    """The answer to a commit was lost, and another driver went on before the claim was read again."""

    def committed(self, *what: Any) -> bool:
        assert super().committed(*what)
        assert super().committed(self.opened(SCHEMA), [], claim(1), 8)
        return False


def test_a_commit_below_the_claim_that_was_read_keeps_its_files(lake: Lake) -> None:
    """Such as in the quarantine, to which a batch is old if another driver has written a later one."""
    opened = OpenedTable(Unheard("lake", lake.settings, "shop.rows", "semel"), SCHEMA)
    rows = pyarrow.table({"id": [1]})
    staged = Staged(7, [*data_files(opened.version.metadata, rows, opened.version.io)], None)
    assert opened.commit(staged, claim(0), lambda held: judge_quarantined(held, claim(0))) is Outcome.DUPLICATE
    assert lake.table.scan().to_arrow().to_pylist() == [{"id": 1}]


def test_a_claim_is_read_as_it_was_written() -> None:
    for noted in (Noted(claim(3), 2**62 - 1), Noted(claim(3), 0, 2**63 - 1, 17)):
        assert noted_in(text_of(noted), "rows") == noted
    for text in ("", "{}", "[]", '{"query": 1}'):
        with pytest.raises(BatchRefused, match="none of a sink"):
            noted_in(text, "rows")


def test_a_property_of_the_sinks_name_in_other_words_is_refused(lake: Lake) -> None:
    with lake.table.transaction() as transaction:
        transaction.set_properties({"semel.sink.semel": "7"})
    lake.foreign()
    with pytest.raises(BatchRefused, match="none of a sink: '7'"):
        lake.held()


# Tables that are made, and those that are refused


@pytest.mark.parametrize(
    ("partition_by", "spec"),
    [
        ("region", ["region"]),
        (["day(at)", "bucket(16, id)"], ["at_day", "id_bucket"]),
        (["truncate(4, region)", "year(day)"], ["region_trunc", "day_year"]),
        ("day(odd)", ["day(odd)"]),
    ],
)
def test_a_table_is_partitioned_as_asked_and_its_own_partitions_go_on(
    tmp_path: Path, partition_by: str | list[str], spec: list[str]
) -> None:
    lake = Lake(tmp_path)
    wide = columns({"id": "long", "region": "string", "at": "timestamp", "day": "date", "day(odd)": "integer"})
    asked = iceberg_sink("shop.rows", catalog="lake", settings=lake.settings, partition_by=partition_by)
    asked.files.opened(wide)
    assert [field.name for field in lake.table.spec().fields] == spec
    asked.files.opened(wide)
    lake.files().opened(wide)
    with pytest.raises(ValueError, match=r"partitioned by .*, and partition_by is hour\(at\): leave it out"):
        iceberg_sink("shop.rows", catalog="lake", settings=lake.settings, partition_by="hour(at)")
    source = lake.table.schema().find_column_name(lake.table.spec().fields[0].source_id)
    without = StructType([field for field in wide.fields if field.name != source])
    with pytest.raises(ValueError, match=f"partitioned by .*{source[:3] if source else ''}.*no such column"):
        lake.files().opened(without)


def test_what_iceberg_cannot_have_is_refused_by_its_name(lake: Lake) -> None:
    def opened(types: dict[str, Any], **options: str) -> None:
        sink = iceberg_sink("shop.more", catalog="lake", settings=lake.settings, **options)
        sink.files.opened(columns(types))

    for mode in ("upsert", "merge"):
        with pytest.raises(ValueError, match=f"mode='{mode}': a sink into Iceberg only appends"):
            iceberg_sink("shop.more", mode, catalog="lake", settings=lake.settings)
    with pytest.raises(ValueError, match="sink_id='semel@audit': an @ stands before the branch"):
        opened({"id": "long"}, sink_id="semel@audit")
    with pytest.raises(ValueError, match="names no namespace"):
        iceberg_sink("more", catalog="lake", settings=lake.settings)
    with pytest.raises(ValueError, match="column 'took' is of type interval"):
        opened({"id": "long", "took": "interval day to second"})
    with pytest.raises(ValueError, match="two columns 'id'"):
        schema_of(StructType([*SCHEMA.fields, *SCHEMA.fields]))
    with pytest.raises(ValueError, match="names 'at', and there is no such column: id"):
        opened({"id": "long"}, partition_by="day(at)")
    with pytest.raises(ValueError, match="'id' is long, which has no such part"):
        opened({"id": "long"}, partition_by="day(id)")
    opened({"id": "long", "nested": ARRAY})
    with pytest.raises(ValueError, match=r"column 'id' is int in the rows and long in shop\.more"):
        opened({"id": "integer"})
    with pytest.raises(ValueError, match="column 'nested' is list<long> in the rows and list<int> in"):
        opened({"nested": LONGS})


@pytest.mark.parametrize("kind", ["float", "double"])
def test_no_table_is_partitioned_by_floating_point_numbers(lake: Lake, kind: str) -> None:
    """Else rows with 0.0 and -0.0 were written twice, and one with NaN ended the query."""
    wide = columns({"id": "long", "ratio": kind})
    sink = iceberg_sink("shop.more", catalog="lake", settings=lake.settings, partition_by="ratio")
    with pytest.raises(ValueError, match=f"column 'ratio' is {kind}, which is no partition"):
        sink.files.opened(wide)
    assert not lake.files().catalog.table_exists("shop.more")
    table = lake.files().catalog.create_table("shop.more", schema_of(wide))
    with table.update_spec() as update:
        update.add_identity("ratio")
    with pytest.raises(ValueError, match=f"column 'ratio' is {kind}, which is no partition"):
        iceberg_sink("shop.more", catalog="lake", settings=lake.settings).files.opened(wide)


def test_a_task_whose_files_have_other_rows_than_it_was_given_fails(lake: Lake) -> None:
    """Whatever the library does with partitions, no row is committed twice or missing."""
    schema = schema_of(columns({"ratio": "double"}))
    table = lake.files().catalog.create_table("shop.more", schema)
    with table.update_spec() as update:
        update.add_identity("ratio")
    writing = Writing(lake.files().catalog.load_table("shop.more").metadata.model_dump_json(), table.io, schema)
    assert len([*writing([pyarrow.record_batch({"ratio": [1.0, 2.0, 1.0]})])]) == 2
    with pytest.raises(RuntimeError, match="wrote 5 rows into the files of 3"):
        list(writing([pyarrow.record_batch({"ratio": [0.0, -0.0, 2.0]})]))
