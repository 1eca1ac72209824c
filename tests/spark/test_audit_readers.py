"""Spark's own file sink, killed and replayed: who reads its log sees each row once, and `semel audit parquet` says what
everybody else would see."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from driver_process import DriverProcess
from sink_places import whole_files

from semel.audit import Given, audit
from semel.audit.reader_check import check_readers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_ROWS = 100
SCRIPT = """
import sys
from driver_process import driver_session
from test_audit_readers import write_files

write_files(driver_session(), *sys.argv[1:])
"""


def make_input(directory: Path, files: int) -> list[int]:
    directory.mkdir()
    for number in range(files):
        ids = list(range(number * FILE_ROWS, (number + 1) * FILE_ROWS))
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), directory / f"{number}.parquet")
    return list(range(files * FILE_ROWS))


def write_files(spark: SparkSession, directory: str, files_per_batch: str) -> None:
    """All input to files, so many of it in a batch; the task with row 0 reads `go` first, which may be a pipe."""
    from pathlib import Path

    def hold(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if 0 in batch["id"].to_pylist():
                Path(directory, "go").read_bytes()
            yield batch

    rows = spark.readStream.schema("id long").option("maxFilesPerTrigger", files_per_batch).parquet(f"{directory}/in")
    held = rows.mapInArrow(hold, "id long")
    writing = held.writeStream.format("parquet").option("checkpointLocation", f"{directory}/checkpoint")
    writing.trigger(availableNow=True).start(f"{directory}/out").awaitTermination()


def semel_audit(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("semel")), "audit", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_what_a_killed_batch_left_is_a_double_to_who_ignores_the_log(spark: SparkSession, tmp_path: Path) -> None:
    ids = make_input(tmp_path / "in", files=2)
    out = tmp_path / "out"
    os.mkfifo(tmp_path / "go")
    with DriverProcess(SCRIPT, tmp_path, "2") as driver:
        driver.wait_until(lambda: len(whole_files(out)) == 1, "never finished the task that is not held")
        driver.kill()
    (tmp_path / "go").unlink()
    (tmp_path / "go").touch()
    write_files(spark, str(tmp_path), "2")

    assert audit(Given(ids), f"parquet:{out}?id=id").is_clean
    verdict = check_readers(out, "id")
    assert (verdict.committed_rows, verdict.uncommitted_count, verdict.uncommitted_rows) == (200, 1, FILE_ROWS)
    assert verdict.ids is not None
    [seen] = verdict.ids.sinks
    assert (seen.doubled.rows, seen.foreign.rows, seen.lost.rows) == (FILE_ROWS, 0, 0)

    ran = semel_audit("parquet", out, "--id", "id", "--limit", "2")
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "100 of them doubled, 0 never committed" in ran.stdout
    left_over = out / verdict.uncommitted[0]
    left_over.unlink()
    assert semel_audit("parquet", out, "--id", "id").returncode == 0


def test_a_batch_that_is_replayed_leaves_nothing_and_a_compacted_log_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    ids = make_input(tmp_path / "in", files=5)
    (tmp_path / "go").touch()
    spark.conf.set("spark.sql.streaming.fileSink.log.compactInterval", "3")
    try:
        write_files(spark, str(tmp_path), "1")
        for name in ("4", ".4.crc"):
            (tmp_path / "checkpoint/commits" / name).unlink()
        write_files(spark, str(tmp_path), "1")
    finally:
        spark.conf.unset("spark.sql.streaming.fileSink.log.compactInterval")
    out = tmp_path / "out"
    assert (out / "_spark_metadata/2.compact").exists()
    assert audit(Given(ids), f"parquet:{out}?id=id").is_clean
    assert check_readers(out, "id").is_clean


def test_of_a_plain_directory_the_audit_reads_what_spark_reads(spark: SparkSession, tmp_path: Path) -> None:
    for number, directory in enumerate(("_day=1", "_day=2/.hidden", "_temporary/0", "_day=3/_hour=4", ".day=4")):
        (tmp_path / directory).mkdir(parents=True)
        pq.write_table(pa.table({"id": pa.array([number], pa.int64())}), tmp_path / directory / "part.parquet")
    read = [row["id"] for row in spark.read.option("recursiveFileLookup", True).parquet(str(tmp_path)).collect()]
    assert sorted(read) == [0, 3]
    assert audit(Given(read), f"parquet:{tmp_path}?id=id").is_clean
