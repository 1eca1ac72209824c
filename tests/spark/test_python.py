"""Spark's Python processes find PySpark as it is installed, compiled; where that is another one, Spark's archive."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from semel.spark.python import python_for_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYSPARK = pytest.importorskip("pyspark").__file__
ARCHIVES = "/spark/python/lib/pyspark.zip:/spark/python/lib/py4j-0.10.9.9-src.zip"


def test_a_task_imports_the_pyspark_that_is_compiled(spark: SparkSession) -> None:
    import pyarrow

    def run_by(batches: object) -> object:
        import pyspark

        yield pyarrow.RecordBatch.from_pydict({"place": [pyspark.__file__]})

    assert spark.range(1).mapInArrow(run_by, "place string").collect()[0].place == PYSPARK  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "left"),
    [
        (f"{ARCHIVES}:/spark/jars/spark-core.jar:/own", "/spark/jars/spark-core.jar:/own"),
        ("/own:/other", "/own:/other"),
        ("", ""),
    ],
)
def test_the_archives_are_left_out_and_what_the_user_has_on_the_path_stays(
    path: str, left: str, tmp_path: Path
) -> None:
    told = "import os, sys; print(os.environ['PYTHONPATH'], sys.executable)"
    directory = tmp_path / "with a space"
    directory.mkdir()
    python = python_for_spark(directory)
    said = subprocess.run([python, "-c", told], env={"PYTHONPATH": path}, capture_output=True, text=True, check=True)
    assert said.stdout == f"{left} {sys.executable}\n"
    assert python != sys.executable


def test_where_another_spark_runs_its_archive_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert python_for_spark(tmp_path) == sys.executable


def test_where_pyspark_is_on_the_path_of_this_process_alone_its_archive_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("site.getsitepackages", lambda: [str(tmp_path)])
    assert python_for_spark(tmp_path) == sys.executable


def test_where_no_script_may_be_run_this_python_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As on a file system that is mounted with `noexec`."""
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.X_OK)
    assert python_for_spark(tmp_path) == sys.executable
