"""A session is made that works, and nothing that somebody set himself is overridden."""

from __future__ import annotations

import contextlib
import locale
import os
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from driver_process import DriverProcess

from semel.spark import session
from semel.spark.session import _unix_sockets, _variables
from semel.spark.versions import STREAMS_INTO_PYTHON

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULTS = """
spark.master local[1]
spark.sql.shuffle.partitions=7
spark.sql.session.timeZone   Europe/Rome
spark.ui.retainedJobs 70
"""


def is_running(process_id: int) -> bool:
    """A zombie, whom nobody has asked how it ended, has no command line any more."""
    command = Path(f"/proc/{process_id}/cmdline")
    return command.exists() and command.read_bytes() != b""


def test_a_session_counts(spark: SparkSession) -> None:
    assert spark.range(1000).selectExpr("sum(id)").collect()[0][0] == 499_500


def test_its_workers_run_this_python(spark: SparkSession) -> None:
    import pyarrow

    def run_by(batches: object) -> object:
        yield pyarrow.RecordBatch.from_pydict({"python": [sys.executable]})

    assert spark.range(1).mapInArrow(run_by, "python string").collect()[0].python == sys.executable  # type: ignore[arg-type]


@pytest.mark.skipif(not STREAMS_INTO_PYTHON, reason="Spark 4.0 has no unix sockets for its workers")
def test_it_talks_to_its_workers_through_unix_sockets_and_no_task_waits_for_an_acknowledgement(
    spark: SparkSession,
) -> None:
    import pyarrow

    def run_by(batches: object) -> object:
        families = set()
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as one:
                families.add(one.family.name)
        yield pyarrow.RecordBatch.from_pydict({"families": [" ".join(families)]})

    assert spark.range(1).mapInArrow(run_by, "families string").collect()[0].families == "AF_UNIX"  # type: ignore[arg-type]


def test_where_no_socket_can_be_bound_none_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        assert _unix_sockets(Path(short))["spark.python.unix.domain.socket.enabled"] == "true"
        assert os.listdir(short) == []
        # Spark refuses it, although a socket there could have a name.
        too_long = Path(short, (61 - len(short) - 1) * "t")
        too_long.mkdir()
        assert _unix_sockets(too_long) == {}
        assert _unix_sockets(Path(short, "missing")) == {}
        monkeypatch.setenv("PYSPARK_UDS_MODE", "false")
        assert _unix_sockets(Path(short)) == {}, "that was the user's choice"


def test_a_day_begins_at_the_same_moment_on_every_machine(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sql("SELECT hour(timestamp_seconds(0))").collect()[0][0] == 0


def test_the_environment_is_as_it_was(spark: SparkSession) -> None:
    assert "PYSPARK_DRIVER_PYTHON" not in os.environ


def test_a_session_that_runs_is_returned_with_what_is_asked_applied_to_it(spark: SparkSession) -> None:
    spark.conf.set("spark.sql.shuffle.partitions", "5")
    same = session(config={"spark.semel.asked": "for"})
    assert same is spark
    assert (spark.conf.get("spark.semel.asked"), spark.conf.get("spark.sql.shuffle.partitions")) == ("for", "5")
    spark.conf.set("spark.sql.shuffle.partitions", "2")


def test_a_thread_that_asks_for_the_session_may_write_to_what_is_registered_there(spark: SparkSession) -> None:
    """Spark looks for where to write in the session of the thread, and a new thread has none."""
    from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage

    class Nowhere(DataSource):
        @classmethod
        def name(cls) -> str:
            return "nowhere_of_a_test"

        def writer(self, schema: object, overwrite: bool) -> DataSourceWriter:
            class Writer(DataSourceWriter):
                def write(self, iterator: object) -> WriterCommitMessage:
                    return WriterCommitMessage()

            return Writer()

    spark.dataSource.register(Nowhere)
    rows = spark.range(1)

    def write() -> None:
        session()
        rows.write.format("nowhere_of_a_test").mode("append").save()

    with ThreadPoolExecutor(1) as threads:
        threads.submit(write).result()


def test_a_second_session_on_another_master_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match=r"a session runs already, on local\[2\], not on local\[3\]: stop it first"):
        session(master="local[3]")


def test_a_session_is_on_a_master_or_remote() -> None:
    with pytest.raises(ValueError, match="not both"):
        session(master="local[2]", remote="sc://localhost")


def test_a_pandas_that_pyspark_does_not_know_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda package: "3.0.1")
    with pytest.raises(ImportError, match=r"works with pandas 2, and this is 3\.0\.1: pip install 'pandas<3'"):
        session()


def test_without_pyspark_the_import_says_what_to_install() -> None:
    script = (
        "import importlib.util as found; real = found.find_spec\n"
        "found.find_spec = lambda name, *rest: None if name == 'pyspark' else real(name, *rest)\n"
        "import semel.spark"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert last == "ImportError: semel.spark needs PySpark, which is missing: pip install 'semel[spark]'"


def test_a_machine_that_does_not_know_its_own_name_starts_spark_all_the_same(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(name: str) -> str:
        raise socket.gaierror(f"{name} is not known")

    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    monkeypatch.setattr("socket.gethostbyname", unknown)
    assert _variables()["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_java_finds_files_of_any_name_where_python_was_started_without_a_language(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by cron: Java takes names of files to be in the encoding of the language, and that one has ASCII alone."""
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    usual = locale.setlocale(locale.LC_CTYPE)
    try:
        locale.setlocale(locale.LC_CTYPE, "POSIX")
        assert _variables()["LC_ALL"] == "C.UTF-8"
        locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
        assert "LC_ALL" not in _variables()
    finally:
        locale.setlocale(locale.LC_CTYPE, usual)


@pytest.mark.slow
def test_what_the_user_has_set_stands_and_nothing_is_left_where_he_works(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(DEFAULTS)
    (tmp_path / "work").mkdir()
    script = """
        import os, sys

        os.environ["SPARK_CONF_DIR"] = sys.argv[1]
        os.environ["PYSPARK_SUBMIT_ARGS"] = "--conf spark.sql.ansi.enabled=false pyspark-shell"
        os.chdir(sys.argv[2])
        from semel.spark import session

        spark = session(config={"spark.sql.execution.arrow.pyspark.enabled": "false", "spark.driver.memory": "700m"})
        spark.sql("CREATE TABLE rows AS SELECT 17 AS id")
        print(spark.table("rows").collect())
        for name in ("shuffle.partitions", "session.timeZone", "ansi.enabled", "execution.arrow.pyspark.enabled"):
            print(spark.conf.get(f"spark.sql.{name}"))
        print(spark.sparkContext.master)
        print(spark.conf.get("spark.ui.retainedJobs"), spark.conf.get("spark.sql.ui.retainedExecutions"))
        print(spark.sparkContext._jvm.Runtime.getRuntime().maxMemory() <= 700 << 20)
        print(os.listdir("."))
    """
    with DriverProcess(script, tmp_path / "conf", tmp_path / "work") as driver:
        said = driver.finish()
        # What the Java says for itself aside, there is nothing to say.
        errors = [line for line in driver.errors.splitlines() if not line.startswith("WARNING: ")]
    assert said == ["[Row(id=17)]", "7", "Europe/Rome", "false", "false", "local[1]", "70 50", "True", "[]"]
    assert errors == []


@pytest.mark.slow
def test_a_driver_that_is_killed_takes_all_its_processes_along(tmp_path: Path) -> None:
    """Which every test of a killed driver relies on, and those are slow, too: a Python worker that went on would be no
    crash."""
    script = """
        import os, sys, threading
        from pathlib import Path
        from driver_process import driver_session

        here = sys.argv[1]

        def work(batches):
            Path(here, str(os.getpid())).touch()
            threading.Event().wait()
            yield

        driver_session().range(2, numPartitions=2).mapInArrow(work, "id long").collect()
    """
    with DriverProcess(script, tmp_path) as driver:
        driver.wait_until(lambda: len(list(tmp_path.iterdir())) == 2, "did not begin to work")
        workers = [int(path.name) for path in tmp_path.iterdir()]
        driver.kill()
    assert [worker for worker in workers if is_running(worker)] == []
