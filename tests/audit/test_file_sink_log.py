"""The log of Spark's file sink, read as Spark reads it, and what a reader sees that does not."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from semel.audit import AuditFailed, Given, audit
from semel.audit.file_sink import METADATA, committed_files
from semel.audit.reader_check import check_readers


def write(directory: Path, name: str, *ids: int) -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), path)
    return path


def log(directory: Path, batch: str, *names: str, action: str = "add", root: Path | None = None) -> None:
    (directory / METADATA).mkdir(exist_ok=True, parents=True)
    entries = [{"path": ((root or directory) / name).as_uri(), "size": 1, "action": action} for name in names]
    lines = ["v1", *(json.dumps(entry) for entry in entries)]
    with (directory / METADATA / batch).open("a") as file:
        file.write("\n".join(lines if file.tell() == 0 else lines[1:]))


def names(directory: Path) -> list[str]:
    return [str(path.relative_to(directory)) for path in committed_files(directory)]


def test_a_compacted_file_stands_for_all_batches_before_it(tmp_path: Path) -> None:
    log(tmp_path, "0", "old")
    log(tmp_path, "7.compact", "a", "b")
    log(tmp_path, "8", "c")
    log(tmp_path, "10", "e")
    log(tmp_path, "9", "d")
    (tmp_path / METADATA / ".10.crc").write_bytes(b"no log at all")
    assert names(tmp_path) == ["a", "b", "c", "d", "e"]


def test_a_file_that_was_deleted_again_is_not_committed(tmp_path: Path) -> None:
    log(tmp_path, "0", "a", "b")
    log(tmp_path, "1", "a", action="delete")
    assert names(tmp_path) == ["b"]


def test_a_directory_that_was_moved_is_still_known(tmp_path: Path) -> None:
    directory = tmp_path / "here/out"
    write(directory, "day=1 or 2/a.parquet", 1)
    log(directory, "0", "day=1 or 2/a.parquet", root=Path("/where/it/was/out"))
    assert names(directory) == ["day=1 or 2/a.parquet"]
    assert check_readers(directory).is_clean


@pytest.mark.parametrize("batches", [("0", "2"), ("1",), ("1.compact", "3")])
def test_a_log_without_one_of_its_batches_is_not_read(tmp_path: Path, batches: tuple[str, ...]) -> None:
    """What that batch committed would count as never written, and twice what it stored twice as once."""
    for batch in batches:
        log(tmp_path, batch, batch)
    with pytest.raises(AuditFailed, match="this batch is missing from the log"):
        committed_files(tmp_path)


def test_a_reader_sees_a_file_twice_that_a_link_leads_to(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", 1)
    log(tmp_path, "0", "a.parquet")
    (tmp_path / "b.parquet").symlink_to("a.parquet")
    verdict = check_readers(tmp_path, "id")
    assert (verdict.uncommitted, verdict.is_clean) == (("b.parquet",), False)


@pytest.mark.parametrize(
    "text", [b"", b"v2\n", b"v1\nno JSON", b'v1\n{"size": 1}', b"v1\n" + b"[" * 100_000, b"v1\n\xff"]
)
def test_a_log_that_cannot_be_read_says_so(tmp_path: Path, text: bytes) -> None:
    (tmp_path / METADATA).mkdir()
    (tmp_path / METADATA / "0").write_bytes(text)
    with pytest.raises(AuditFailed, match="this log"):
        committed_files(tmp_path)


def test_a_reader_without_the_log_sees_doubles_and_rows_that_were_never_committed(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", 1, 2)
    write(tmp_path, "b.parquet", 3)
    write(tmp_path, "first-attempt.parquet", 2, 3, 4)
    log(tmp_path, "0", "a.parquet", "b.parquet")
    verdict = check_readers(tmp_path, "id")
    assert (verdict.committed_files, verdict.committed_rows, verdict.files_seen, verdict.rows_seen) == (2, 3, 3, 6)
    assert verdict.uncommitted == ("first-attempt.parquet",)
    assert not verdict.is_clean
    assert verdict.ids is not None
    [seen] = verdict.ids.sinks
    assert [finding.text for finding in (*seen.doubled.listed, *seen.foreign.listed)] == ["2", "3", "4"]
    assert audit(Given([1, 2, 3]), f"parquet:{tmp_path}?id=id").is_clean


def test_a_committed_file_that_is_gone_is_named_and_no_audit_goes_on_without_it(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", 1)
    log(tmp_path, "0", "a.parquet", "gone.parquet")
    verdict = check_readers(tmp_path, "id")
    assert (verdict.missing, verdict.is_clean) == (("gone.parquet",), False)
    assert "committed and not there: 1 file" in verdict.summary
    with pytest.raises(AuditFailed, match=r"gone\.parquet"):
        audit(Given([1]), f"parquet:{tmp_path}?id=id")


def test_a_directory_without_a_log_is_the_same_to_everybody(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", 1, 1)
    verdict = check_readers(tmp_path)
    assert (verdict.has_log, verdict.is_clean, verdict.rows_seen) == (False, True, 2)
