"""What an audit reads of an Iceberg table besides its present rows, and of a Delta table in a bucket."""

from pathlib import Path
from urllib.parse import quote, urlencode

import deltalake
import pyarrow as pa
import pytest

from semel.audit import AuditFailed, Given, audit
from semel.testing.seaweedfs import ACCESS_KEY, SECRET_KEY, SeaweedServer


def test_an_iceberg_table_is_read_as_of_a_snapshot_or_a_branch_and_without_deleted_rows(tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog

    settings = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake"}
    catalog = load_catalog("lake", **settings)
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.rows", pa.schema({"id": pa.int64(), "shop": pa.string()}))
    with table.update_spec() as update:
        update.add_identity("shop")
    table.append(pa.table({"id": [0, 1], "shop": ["a b", "c"]}))
    first = table.current_snapshot()
    assert first is not None
    table.manage_snapshots().create_branch(first.snapshot_id, "then").commit()
    table.append(pa.table({"id": [2, 3], "shop": ["a b", "a b"]}))
    table.delete("id = 2")
    with table.update_schema() as renaming:
        renaming.rename_column("id", "number")
    given = "&".join(f"catalog.{name}={quote(value)}" for name, value in settings.items())
    address = f"iceberg:shop.rows?id=number&catalog=lake&{given}"
    assert audit(Given([0, 1, 3]), address).is_clean
    for then in ("ref=then", f"snapshot={first.snapshot_id}"):
        assert audit(Given([0, 1]), f"{address}&{then}").is_clean
    # Also a column by which the files are partitioned.
    assert audit(Given(["a b", "c", "a b"]), address.replace("id=number", "id=shop")).is_clean
    for wrong, said in (("&ref=no", "has no branch"), ("&snapshot=x", "is no snapshot"), ("&id=b", "twice")):
        with pytest.raises(AuditFailed, match=said):
            audit(Given([]), address + wrong)
    with pytest.raises(AuditFailed, match="has no column 'id'"):
        audit(Given([]), address.replace("id=number", "id=id"))
    with pytest.raises(AuditFailed, match=r"provide using catalog\.uri=\.\.\., the config"):
        audit("iceberg:shop.rows?id=number&catalog=nowhere", "iceberg:shop.rows?id=number&catalog=nowhere")
    with pytest.raises(AuditFailed, match=r"iceberg:shop\.no"):
        audit(Given([]), address.replace("shop.rows", "shop.no"))
    with pytest.raises(AuditFailed, match="names no table"):
        audit(Given([]), address.replace("shop.rows", "rows"))


def test_a_delta_table_in_a_bucket_is_read_as_one_in_a_directory(seaweedfs: SeaweedServer) -> None:
    options = {
        "AWS_ENDPOINT_URL": seaweedfs.endpoint,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    for number in range(3):
        rows = pa.table({"id": [number], "shop": ["a b"]})
        deltalake.write_deltalake("s3://contract/audit ü", rows, mode="append", storage_options=options)
    given = urlencode({f"storage.{name}": value for name, value in options.items()})
    address = f"delta:s3://contract/audit%20%C3%BC?id=id&{given}"
    assert audit(Given([0, 1, 2]), address).is_clean
    assert audit(Given([0, 1]), f"{address}&version=1").is_clean
    deltalake.DeltaTable("s3://contract/audit ü", storage_options=options).delete("id = 1")
    verdict = audit(Given([0, 1, 2]), address)
    assert not verdict.is_clean
    assert SECRET_KEY not in repr(verdict)
    with pytest.raises(AuditFailed, match="delta:s3://contract/nothing"):
        audit(Given([]), address.replace("audit%20%C3%BC", "nothing"))
