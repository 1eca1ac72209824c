"""The pipeline on a cluster: semel comes along with a job as a file, or is installed and reached over Spark Connect."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from driver_process import ROOT, DriverProcess
from local_cluster import LocalCluster

import semel
from chapters import chapter
from producing import deliver, idempotent_producer
from semel.testing.broker import FaultyBroker

# A cluster and what is submitted to it are eight processes, and each is a Java or a Python.
RECORDS = 500
VALUES = [f"order {number}".encode() for number in range(RECORDS)]
GUIDE = chapter("spark-pipeline", "Run it")
# The job, and the line that changes for Spark Connect.
JOB, CONNECTED = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
# What a reader of the guide does not need to see: a batch as well, and whose semel the workers have.
PROOF = """
import pyarrow
import semel

def where(batches):
    for _ in batches:
        pass
    yield pyarrow.RecordBatch.from_pydict({"file": [semel.__file__]})

source = {"kafka.bootstrap.servers": bootstrap, "subscribe": "copies"}
print(spark.read.format("semel").options(**source).load().count())
print(sorted({row.file for row in spark.range(2, numPartitions=2).mapInArrow(where, "file string").collect()}))
spark.stop()
"""


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(runs_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def broker(semel_broker: FaultyBroker) -> FaultyBroker:
    """With a topic that has something in it."""
    deliver(idempotent_producer(semel_broker), "orders", VALUES)
    return semel_broker


@pytest.fixture
def zipped(tmp_path: Path) -> Path:
    """semel as a job brings it along: its wheel, under a name that Spark takes for Python."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=ROOT, check=True)
    [wheel] = tmp_path.glob("semel-*.whl")
    return wheel.rename(tmp_path / "semel.zip")


@pytest.fixture
def python_without_semel(tmp_path: Path) -> Path:
    """A Python that has what semel needs and not semel. Paths that are named in the environment have no .pth files, by
    which the semel of this checkout is found."""
    python = tmp_path / "python"
    packages = sysconfig.get_path("purelib")
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec "{sys._base_executable}" "$@"\n')
    python.chmod(0o755)
    assert subprocess.run([python, "-c", "import cramjam, pyspark"]).returncode == 0
    assert subprocess.run([python, "-c", "import semel"], stderr=subprocess.DEVNULL).returncode != 0
    return python


def assert_copied(broker: FaultyBroker) -> None:
    copies = broker.log("copies", committed_only=True)
    assert sorted(record.value or b"" for record in copies) == sorted(VALUES)


def test_a_job_brings_semel_along_to_workers_that_do_not_have_it(
    cluster: LocalCluster, broker: FaultyBroker, zipped: Path, python_without_semel: Path, tmp_path: Path
) -> None:
    (tmp_path / "job.py").write_text(JOB + PROOF)
    said = cluster.run(
        *("--py-files", zipped, tmp_path / "job.py", broker.bootstrap, tmp_path / "checkpoint"),
        PYSPARK_PYTHON=str(python_without_semel),
        PYTHONPATH=str(zipped),
    )
    assert said[-2:] == [str(RECORDS), "['./semel.zip/semel/__init__.py']"]
    assert_copied(broker)


def test_a_client_of_spark_connect_reads_and_writes_on_a_cluster_where_semel_is_installed(
    cluster: LocalCluster, broker: FaultyBroker, tmp_path: Path
) -> None:
    with cluster.connect_server(PYSPARK_PYTHON=sys.executable) as remote:
        own = 'session("copy orders")'
        assert own in JOB
        job = JOB.replace(f"spark = {own}\n", CONNECTED.replace("sc://head:15002", remote)) + PROOF
        with DriverProcess(job, broker.bootstrap, tmp_path / "checkpoint") as client:
            said = client.finish()
    assert said == [str(RECORDS), f"['{semel.__file__}']"]
    assert_copied(broker)
