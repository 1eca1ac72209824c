"""What holds for every test: a busy machine is not a wrong answer, a run tries the same examples as the run before, and
a failure can be replayed. With SEMEL_TEST_EXPLORE=1 the examples are new ones each time, or those of --hypothesis-seed.

Besides, the real databases and the cluster of whoever asks for one.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import logging
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

import forked
from cluster_under_test import FOREIGN_CLUSTER
from failures import Failures
from fast_spark import java_made_before
from left_running import left_running, running
from semel.ui.cli.process import memory_bytes, raise_open_files
from shares import BySize, in_order, niceness_of, too_small, unfit, workers_at_once

if TYPE_CHECKING:
    from asking import Asker
    from semel.testing.broker import FaultyBroker
    from semel.testing.postgres import PostgresServer
    from semel.testing.seaweedfs import SeaweedServer

# Here, before any module of tests is imported: their own settings take the rest from what is loaded when they are made.
# Examples are the same for the same code and the same tests: Hypothesis tries constants of all that has been imported.
# Where a test does not say how many, an exploring run tries Hypothesis' own hundred.
settings.register_profile("house", deadline=None, print_blob=True, derandomize=True, max_examples=40)
settings.register_profile("exploring", deadline=None, print_blob=True, derandomize=False)
settings.load_profile("exploring" if os.environ.get("SEMEL_TEST_EXPLORE") else "house")

RUNNING_BEFORE: pytest.StashKey[Counter[str]] = pytest.StashKey()
NICENESS_SO_FAR: pytest.StashKey[int] = pytest.StashKey()

# Nothing of what is loaded and collected goes before the end.
gc.disable()

# In the background or under nohup a run has signals ignored, and so would every command that a test starts and ends.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


# A make that a test starts is no part of the one that runs the tests, and says nothing of the directory that it enters.
for variable in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS"):
    os.environ.pop(variable, None)


# A proxy is for the world outside, and tests talk to this machine alone.
for variable in ("no_proxy", "NO_PROXY"):
    os.environ[variable] = ",".join(filter(None, [os.environ.get(variable), "127.0.0.1", "localhost", "::1"]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """A command that ran in a test handles signals from then on, and has them sent again until it has received them:
    not to a later test, nor to the worker itself."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        return (yield)
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) != handler:
                signal.signal(number, handler)
                signal.set_wakeup_fd(-1)


def pytest_configure(config: pytest.Config) -> None:
    """Every Spark that a test starts, by a command or a page as well, starts fast if it can without further ado. And
    where workers run side by side, the process that starts them starts one server of each kind for all of them."""
    if sys.flags.optimize:
        raise pytest.UsageError("Python leaves out assertions, so these tests would check little: unset PYTHONOPTIMIZE")
    if "SPARK_SUBMIT_OPTS" not in os.environ:
        os.environ |= java_made_before()
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures())
    if not config.getoption("numprocesses", None) or hasattr(config, "workerinput"):
        return
    forked.start()
    if "SEMEL_TEST_POSTGRES" in os.environ:
        return
    from semel.testing.postgres import PostgresMissing, PostgresServer

    # Without a server each test that needs one says why it cannot run.
    with contextlib.suppress(PostgresMissing):
        server = PostgresServer(settings={"max_connections": "300"})
        os.environ["SEMEL_TEST_POSTGRES"] = server.url()
        config.add_cleanup(server.stop)
    from mariadb_under_test import SHARED_MARIADB, MariadbMissing, MariadbServer

    if SHARED_MARIADB is None:
        with contextlib.suppress(MariadbMissing):
            mariadb = MariadbServer()
            os.environ["SEMEL_TEST_MARIADB"] = mariadb.url()
            config.add_cleanup(mariadb.stop)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = in_order(items)


def pytest_collection_finish() -> None:
    """The modules and the tests stay to the end: no garbage collection has to look through them, not even now."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> BySize:
    config.option.loadscopereorder = False
    return BySize(config, log)


def lacks_here(memory: int) -> str | None:
    """What this machine lacks for all tests, and what to do: else hundreds fail, and none says why."""
    temporary, (_, open_files) = Path(tempfile.gettempdir()), resource.getrlimit(resource.RLIMIT_NOFILE)
    may_run = not os.statvfs(temporary).f_flag & getattr(os, "ST_NOEXEC", 0)
    try:
        socket.gethostbyname("localhost")
    except OSError:
        return "this machine does not know localhost: add the line 127.0.0.1 localhost to /etc/hosts"
    free = shutil.disk_usage(temporary).free
    return too_small(memory, open_files) or unfit(temporary, free, runs_programs=may_run)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    memory = memory_bytes()
    if lacking := lacks_here(memory):
        raise pytest.UsageError(lacking)
    raise_open_files()
    return workers_at_once(len(os.sched_getaffinity(0)), memory)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    from semel.testing.virtual_loop import VirtualLoop

    names = inspect.signature(pyfuncitem.obj).parameters
    run = VirtualLoop().run if pyfuncitem.get_closest_marker("virtual_time") else asyncio.run
    run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A worker gives way to those with the longest shares. It does not come back, and need not: those begin first."""
    niceness = niceness_of(item.nodeid) if hasattr(item.config, "workerinput") else 0
    if (more := niceness - item.config.stash.get(NICENESS_SO_FAR, 0)) > 0:
        item.config.stash[NICENESS_SO_FAR] = niceness
        os.nice(more)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    item.stash[RUNNING_BEFORE] = running()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """A test fails if what it started goes on when it is over: what fixtures started before it may."""
    result = yield
    # An application may have its whole process log more, as one of Litestar does. Later tests would be shown what the
    # brokers of others do meanwhile.
    logging.root.setLevel(logging.WARNING)
    if RUNNING_BEFORE in item.stash and (left := left_running(item.stash[RUNNING_BEFORE])):
        pytest.fail(f"the test is over, and of what it started there still runs: {dict(left)}", pytrace=False)
    return result


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for the whole run, or for several runs; a test takes a `postgres.new_database()` for itself."""
    from postgres_under_test import SHARED_POSTGRES, SharedPostgres

    server = SharedPostgres(SHARED_POSTGRES) if SHARED_POSTGRES is not None else new_postgres()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[SeaweedServer]:
    """One store with the S3 protocol for the whole run, and the bucket `contract`; skipped where it is missing."""
    from semel.log.store import open_store
    from semel.testing.seaweedfs import SeaweedMissing, SeaweedServer

    try:
        server = SeaweedServer()
    except SeaweedMissing as missing:
        pytest.skip(str(missing))
    # It makes a bucket when something is put into it, and not when something is read.
    asyncio.run(open_store(server.url("contract/made")).create("made", b""))
    yield server
    server.stop()


@pytest.fixture
def postgres_to_crash() -> Iterator[PostgresServer]:
    """A server for one test alone, which it may crash."""
    server = new_postgres()
    yield server
    server.stop()


def new_postgres() -> PostgresServer:
    """A server; where the machine has none, the test is skipped."""
    from semel.testing.postgres import PostgresMissing, PostgresServer

    try:
        return PostgresServer()
    except PostgresMissing as missing:
        pytest.skip(str(missing))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes a database runs on each, unless it says on which."""
    names = [marker.args[0] for marker in metafunc.definition.iter_markers("parametrize")]
    own = {name.strip() for one in names for name in (one.split(",") if isinstance(one, str) else one)}
    if "url" in metafunc.fixturenames and "url" not in own:
        from databases import ON_SQLITE_ALONE
        from mariadb_under_test import ON_MARIADB

        path = "/".join(metafunc.definition.path.parts[-2:])
        others = [] if path in ON_SQLITE_ALONE else ["postgresql", *(["mariadb"] if path in ON_MARIADB else [])]
        metafunc.parametrize("url", ["sqlite", *others], indirect=True)


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database, of each kind in turn."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/test.db"
        return
    yield request.getfixturevalue("postgres_url" if request.param == "postgresql" else "mariadb_url")


@pytest.fixture(scope="session")
def mariadb() -> Iterator[str]:
    """The URL of one server for the whole run; where the machine has none, the test is skipped."""
    from mariadb_under_test import SHARED_MARIADB, MariadbMissing, MariadbServer

    if SHARED_MARIADB is not None:
        yield SHARED_MARIADB
        return
    try:
        server = MariadbServer()
    except MariadbMissing as missing:
        pytest.skip(str(missing))
    yield server.url()
    server.stop()


@pytest.fixture
def mariadb_url(mariadb: str) -> Iterator[str]:
    """The URL of an empty database of MariaDB."""
    from mariadb_under_test import lent_database

    with lent_database(mariadb) as url:
        yield url


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """The URL of an empty database of PostgreSQL."""
    from postgres_under_test import lent_database

    with lent_database(postgres) as url:
        yield url


@pytest.fixture
def pooled_url(postgres_url: str, tmp_path: Path) -> Iterator[str]:
    """The same database as `postgres_url`, through PgBouncer in transaction mode; skipped where that is missing."""
    from pooler import pooler

    with pooler(postgres_url, tmp_path) as url:
        yield url


@pytest.fixture
def bootstrap(request: pytest.FixtureRequest) -> str:
    """A broker of ours, or with SEMEL_TEST_BOOTSTRAP any cluster."""
    return FOREIGN_CLUSTER or str(request.getfixturevalue("semel_broker").bootstrap)


@pytest.fixture
def faulty(request: pytest.FixtureRequest) -> FaultyBroker:
    """The broker, for a test that lets it misbehave."""
    if FOREIGN_CLUSTER is not None:
        pytest.skip("needs a broker that misbehaves when it is told to")
    broker: FaultyBroker = request.getfixturevalue("semel_broker")
    return broker


@pytest.fixture
def broker() -> Iterator[FaultyBroker]:
    """A broker for one test alone, which it may break."""
    from semel.testing.broker import FaultyBroker

    with FaultyBroker() as started:
        yield started


@pytest.fixture
def ask(broker: FaultyBroker) -> Iterator[Asker]:
    """Who asks that broker for what the test needs."""
    from asking import Asker

    asker = Asker(broker.bootstrap)
    yield asker
    asker.close()
