"""One Spark session for all tests of this folder, for it takes seconds to start; and the log that they run on."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from driver_process import with_scratch
from log_under_test import LogUnderTest

from cluster_under_test import FOREIGN_CLUSTER
from fast_spark import fast_java
from semel.ui.demo.main_job import why_no_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# On a machine with other work a session may take more than a minute to start, and its first query another one.
TIMEOUT_SECONDS = 900
FOLDER = "tests/spark/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(FOLDER) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def runs_spark() -> None:
    """Skips where Spark cannot run, with what `semel doctor` says of it."""
    if why_not := why_no_spark():
        pytest.skip(why_not)


@pytest.fixture(scope="session")
def spark(runs_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session; a query without a checkpoint location of its own, and a table without a path, gets a new one under
    the directory of the tests."""
    from semel.spark import session

    scratch = tmp_path_factory.mktemp("spark")
    config = {
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.streaming.checkpointLocation": str(scratch / "checkpoints"),
        "spark.local.dir": str(scratch / "local"),
    }
    # In it are Unix sockets, whose paths have to be short.
    with tempfile.TemporaryDirectory(prefix="semel-spark-", ignore_cleanup_errors=True) as temporary:
        with pytest.MonkeyPatch.context() as environment:
            for name, value in with_scratch(fast_java(), temporary).items():
                environment.setenv(name, value)
            began = session("semel-tests", master="local[2]", config=config)
        yield began
        began.stop()


@pytest.fixture
def log(request: pytest.FixtureRequest) -> LogUnderTest:
    """A broker of semel's, or the cluster that SEMEL_TEST_BOOTSTRAP names."""
    return LogUnderTest(FOREIGN_CLUSTER or request.getfixturevalue("semel_broker").bootstrap)
