"""A Spark session with the settings that the pipeline needs. No setting of the user is overridden.

These count as set by the user: the argument `config`, `spark-defaults.conf`, the options of `spark-submit`,
PYSPARK_SUBMIT_ARGS, the environment, and a session that runs already. This file must never set anything that changes
the result of a query, except the time zone; the comment there says why.
"""

import contextlib
import importlib.metadata
import importlib.util
import locale
import os
import shlex
import socket
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from semel.spark.errors import end_with_the_sentence
from semel.spark.java import find_java, java_environment
from semel.spark.python import python_for_spark
from semel.spark.scratch import scratch

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

# What glibc and other C libraries call the encoding of the locales C and POSIX.
_ASCII: Final = ("ANSI_X3.4-1968", "US-ASCII", "646")
_LOOPBACK: Final = "127.0.0.1"
PANDAS_MAX: Final = 2
# Spark takes no longer path of a directory for its sockets.
_SOCKETS_PATH_MAX: Final = 60
# A name as long as those that Spark gives its sockets.
_SOCKET_NAME: Final = ".01234567-89ab-cdef-0123-456789abcdef.sock"
# One thread at a time begins a session: the environment is another one meanwhile.
_beginning: Final = threading.Lock()
# These settings choose the kind of session, and do not configure it: the JVM must not see them.
_OF_THE_CLIENT: Final = ("spark.remote", "spark.api.mode")
_STATE_STORE: Final = "spark.sql.streaming.stateStore.providerClass"
_STATE_STORE_OF_SPARK: Final = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"

# For every master.
_DEFAULTS: Final = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # A batch that is replayed on a machine in another time zone must give the same rows, dates included, also on a day
    # that has 23 hours in one of the zones.
    "spark.sql.session.timeZone": "UTC",
    # Deduplication needs a state store that keeps several column families, and a micro-batch should write only the
    # state that has changed, not all of it.
    _STATE_STORE: "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.ui.enabled": "false",
}
# Where driver and workers are one process on one machine.
_LOCAL_DEFAULTS: Final = {
    # Spark's default is 200, and each would cost a task and a state store in every micro-batch.
    "spark.sql.shuffle.partitions": "2",
    # No other machine has to reach the driver, and a machine without a network, or whose name cannot be resolved, has
    # no other address.
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
}
# Spark keeps data for its UI even if the UI is off: 25 MB and more for the last minutes of a query.
_WITHOUT_UI_DEFAULTS: Final = {
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "50",
}
# Only errors, on standard error. A program that wants more brings its own log4j2.properties, or sets `spark.log.level`.
_QUIET: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = error
"""


def session(
    name: str = "semel",
    *,
    master: str | None = None,
    remote: str | None = None,
    ui: bool = False,
    config: Mapping[str, str] | None = None,
) -> "SparkSession":
    """A session that runs this Python in its workers, hands rows over as Arrow, and knows `format("semel")`.

    `master` is Spark's own (`local[*]` by default); `remote` is the address of a Spark Connect server,
    `sc://host:15002`. A session that runs already is returned with `config` applied to it, and otherwise unchanged. A
    thread of your own that reads or writes has to call this first, because Spark looks up formats in the session of the
    calling thread. A program that ends by an error of Spark's logs, as its last line, the sentence that `error_of`
    finds in it.
    """
    _check_packages()
    with _beginning:
        began = _session(name, master, remote, ui, config or {})
    # Spark finds the source by itself if semel is installed, but not if semel was shipped with the job. Only the name
    # of the class is registered, so every process that runs the plan must be able to import it.
    from semel.spark.data_source import SemelDataSource
    from semel.spark.versions import register

    register(began, SemelDataSource)
    _make_active(began)
    end_with_the_sentence()
    return began


def _make_active(began: "SparkSession") -> None:
    """Spark looks for a format in the session of the thread that plans, and a thread of Python's own has none: there
    `format("semel")` would be unknown unless semel is installed."""
    from pyspark.sql.utils import is_remote

    if not is_remote():
        began._get_j_spark_session_class(began._jvm).setActiveSession(began._jsparkSession)


def _session(name: str, master: str | None, remote: str | None, ui: bool, config: Mapping[str, str]) -> "SparkSession":
    settings = dict(config)
    if ui:
        settings.setdefault("spark.ui.enabled", "true")
    if master is not None:
        settings["spark.master"] = master
    if remote is not None:
        settings["spark.remote"] = remote
    if "spark.master" in settings and "spark.remote" in settings:
        raise ValueError("a session has a master or is remote, not both")
    server = settings.get("spark.remote") or os.environ.get("SPARK_REMOTE", "")
    if server.startswith("sc://"):
        return _connected(name, settings)
    running = _running_master()
    if running is not None:
        if settings.get("spark.master", running) != running:
            raise ValueError(f"a session runs already, on {running}, not on {settings['spark.master']}: stop it first")
        return _built(name, settings)
    has_chosen_python = "PYSPARK_PYTHON" in os.environ
    with _environment(_variables()):
        known = _known(settings)
        if _is_local(known) and not has_chosen_python:
            os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"]
        return _built(name, {**_defaults(known), **settings})


def _check_packages() -> None:
    for package in ("pandas", "pyarrow"):
        if importlib.util.find_spec(package) is None:
            raise ImportError(f"PySpark hands rows to Python through {package}: pip install 'semel[spark]'")
    pandas = importlib.metadata.version("pandas")
    if int(pandas.partition(".")[0]) > PANDAS_MAX:
        raise ImportError(
            f"PySpark works with pandas {PANDAS_MAX}, and this is {pandas}: pip install 'pandas<{PANDAS_MAX + 1}'"
        )


def _running_master() -> str | None:
    """The master of the session that runs in this process already."""
    from pyspark.util import is_remote_only

    if is_remote_only():
        raise ImportError("this PySpark can only be a client: give the server as remote='sc://...', or install pyspark")
    from pyspark import SparkContext

    running = SparkContext._active_spark_context
    return None if running is None else running.master


def _built(name: str, settings: Mapping[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _connected(name: str, settings: Mapping[str, str]) -> "SparkSession":
    """A session on a server: the server's settings stay, except for a state store that could not deduplicate."""
    if importlib.util.find_spec("grpc") is None:
        raise ImportError("Spark Connect needs more of PySpark: pip install 'pyspark[connect]'")
    connected = _built(name, settings)
    if connected.conf.get(_STATE_STORE) == _STATE_STORE_OF_SPARK:
        connected.conf.set(_STATE_STORE, _DEFAULTS[_STATE_STORE])
    return connected


def _known(settings: Mapping[str, str]) -> "SparkConf":
    """Starts the JVM, and asks it what the user has set in any way."""
    from pyspark import SparkConf, SparkContext

    asked_of_the_jvm = [(key, value) for key, value in settings.items() if key not in _OF_THE_CLIENT]
    with _environment({"SPARK_REMOTE": None}):
        SparkContext._ensure_initialized(conf=SparkConf().setAll(asked_of_the_jvm))
    return SparkConf()


def _is_local(known: "SparkConf") -> bool:
    return (known.get("spark.master") or "local").startswith("local")


def _defaults(known: "SparkConf") -> dict[str, str]:
    """The settings that the user has left out."""
    is_ours = "PYSPARK_GATEWAY_PORT" not in os.environ
    defaults = dict(_DEFAULTS)
    if known.get("spark.ui.enabled", _DEFAULTS["spark.ui.enabled"]) == "false":
        defaults |= _WITHOUT_UI_DEFAULTS
    if _is_local(known):
        defaults |= _LOCAL_DEFAULTS | _unix_sockets(scratch())
        # Without a persistent catalog, Spark forgets a table when the session ends, and its files should then be
        # deleted too.
        if known.get("spark.sql.catalogImplementation", "in-memory") == "in-memory":
            defaults["spark.sql.warehouse.dir"] = str(scratch() / "warehouse")
    defaults = {key: value for key, value in defaults.items() if not known.contains(key)}
    if is_ours:
        # Spark takes a JVM that Python started for a shell, and turns its progress bar on.
        defaults["spark.ui.showConsoleProgress"] = "false"
    return defaults


def _unix_sockets(directory: Path) -> dict[str, str]:
    """Has the JVM and its Python processes talk through Unix sockets in this directory. Not if the path is too long,
    the file system has no sockets, or this process may make none; nor if the environment says what to do.

    Over TCP, which is Spark's default, a task stands still for 40 ms: the JVM's kernel keeps the second part of what it
    hands over until Python's kernel has acknowledged the first one, and that one waits for an answer to send along.
    """
    is_short = len(os.fsencode(directory)) <= _SOCKETS_PATH_MAX
    if "PYSPARK_UDS_MODE" in os.environ or not (is_short and _may_bind(directory / _SOCKET_NAME)):
        return {}
    name = "spark.python.unix.domain.socket"
    return {f"{name}.enabled": "true", f"{name}.dir": str(directory)}


def _may_bind(path: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.bind(str(path))
        path.unlink()
    except (OSError, AttributeError):
        return False
    return True


def _variables() -> dict[str, str | None]:
    """The environment variables to change while Spark starts; None stands for a variable to unset."""
    # A JVM that has started this process has its environment already.
    is_ours = "PYSPARK_GATEWAY_PORT" not in os.environ
    python: dict[str, str | None] = {
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        # The user cannot choose this one: this process is the driver, and in this one Spark looks up formats.
        "PYSPARK_DRIVER_PYTHON": python_for_spark() if is_ours else sys.executable,
    }
    from pyspark import SparkContext

    if not is_ours or SparkContext._gateway is not None:
        return python
    java = find_java()
    if java.passed_over:
        warnings.warn(f"Spark runs on Java {java}: {java.passed_over}", stacklevel=3)
    variables = python | java_environment(java)
    if not _has_logging():
        quiet = scratch() / "log4j2.properties"
        quiet.write_text(_QUIET)
        options = [os.environ.get("SPARK_SUBMIT_OPTS", ""), shlex.quote(f"-Dlog4j2.configurationFile={quiet.as_uri()}")]
        variables["SPARK_SUBMIT_OPTS"] = " ".join(options).strip()
    if locale.getencoding() in _ASCII:
        # Java would find no file whose name has another character.
        variables["LC_ALL"] = "C.UTF-8"
    try:
        socket.gethostbyname(socket.gethostname())
    except OSError:
        # Spark would not start on a machine that does not know its own name, whatever the settings say.
        variables["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", _LOOPBACK)
    return variables


def _has_logging() -> bool:
    """Whether the user has configured logging."""
    from pyspark.find_spark_home import _find_spark_home

    directory = Path(os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf"))
    return any(directory.glob("log4j2.*")) or "log4j" in os.environ.get("SPARK_SUBMIT_OPTS", "")


@contextlib.contextmanager
def _environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    _export(variables)
    try:
        yield
    finally:
        _export(before)


def _export(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
