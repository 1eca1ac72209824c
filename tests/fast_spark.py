"""What lets the Java of a Spark of tests start in half the time: archives of its classes.

    PYTHONPATH=tests python -m fast_spark

makes them below `build`, and is part of `make setup`; else the first test that asks does it, and others wait. A start
takes 9 s of two cores as Spark is, and 4 to 5 s so. This must never change what Spark does, only how soon.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import importlib.metadata
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from semel.ui.demo.main_job import why_no_spark

if TYPE_CHECKING:
    from semel.spark.java import Java

ROOT = Path(__file__).parent.parent
# An archive of two hundred megabytes is written as well.
TRAINING_SECONDS_MAX = 500.0
# Short lives: what the second compiler would gain comes too late, and other collectors want threads of their own. An
# archive that does not fit is not used, and nothing is said.
_FLAGS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xlog:disable")
# Every kind of thing that the tests do: the classes that it loads are those of the archive.
_TRAINING = """
import sys
from semel.spark import session

spark = session("semel-driver", master="local[2]", config={"spark.sql.warehouse.dir": f"{sys.argv[1]}/warehouse"})
spark.range(100).mapInArrow(lambda batches: batches, "id long").write.parquet(f"{sys.argv[1]}/rows")
stream = spark.readStream.schema("id long").parquet(f"{sys.argv[1]}/rows").groupBy("id").count()
writing = stream.writeStream.outputMode("update").foreachBatch(lambda rows, batch: rows.collect())
writing.option("checkpointLocation", f"{sys.argv[1]}/checkpoint").trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""


@cache
def fast_java() -> dict[str, str]:
    """What the environment of a session says for that: archives of classes that were loaded and checked once for all.
    The first who asks makes them. Skips the test where Spark cannot run."""
    if why_not := why_no_spark():
        pytest.skip(why_not)
    java, own, spark = _archives()
    with (own.parent / "lock").open("w") as lock:
        # One makes them, and all others wait.
        fcntl.flock(lock, fcntl.LOCK_EX)
        # A Java that keeps no such archives, or a disk that is full: it starts more slowly, and that is all.
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            _make(java, own, spark)
            return _options(own, spark)
    return _options()


def java_made_before() -> dict[str, str]:
    """The same where nothing has to be made for it; nothing otherwise."""
    if why_no_spark():
        return {}
    _, *archives = _archives()
    return _options(*archives) if all(archive.exists() for archive in archives) else {}


def _options(*archives: Path) -> dict[str, str]:
    shared = [f"-XX:SharedArchiveFile={':'.join(map(str, archives))}"] if archives else []
    return {"SPARK_SUBMIT_OPTS": shlex.join([*_FLAGS, *shared])}


def _make(java: Java, own: Path, spark: Path) -> None:
    if not own.exists():
        with _in_one_step(own) as written:
            dump = [f"-XX:SharedArchiveFile={written}", "-Xshare:dump"]
            subprocess.run([java.executable, *_FLAGS, *dump], check=True, capture_output=True)
    if not spark.exists():
        with _in_one_step(spark) as written:
            _train([*_FLAGS, f"-XX:SharedArchiveFile={own}", f"-XX:ArchiveClassesAtExit={written}"])


def _archives() -> tuple[Java, Path, Path]:
    """The Java that Spark gets, its own classes, which not every JRE brings with it in such a form, and on top of them
    those of Spark. The upper archive names the lower one by its path."""
    from semel.spark.java import find_java

    java = find_java()
    about = f"{java} {importlib.metadata.version('pyspark')} {_FLAGS} {_TRAINING}"
    name = hashlib.sha256(about.encode()).hexdigest()[:16]
    return java, _workshop() / f"java-{name}.jsa", _workshop() / f"spark-{name}.jsa"


def _train(options: list[str]) -> None:
    """Let a session do a little of everything; its Java writes the archive as it ends."""
    with tempfile.TemporaryDirectory(prefix="semel-training-") as scratch:
        options = [*options, f"-Djava.io.tmpdir={scratch}"]
        environment = {**os.environ, "SPARK_SUBMIT_OPTS": shlex.join(options), "TMPDIR": scratch}
        # Java ends after Python, and has the other end of the pipe until then.
        subprocess.run(
            [sys.executable, "-c", _TRAINING, scratch],
            env=environment,
            check=True,
            capture_output=True,
            timeout=TRAINING_SECONDS_MAX,
            start_new_session=True,
        )


@cache
def _workshop() -> Path:
    """Where what is made once for all goes: `build`, which keeps it for the next run, or where nobody may write there a
    directory that goes with this process."""
    directory = ROOT / "build" / "spark"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError:
        directory = Path(tempfile.mkdtemp(prefix="semel-build-"))
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


@contextlib.contextmanager
def _in_one_step(path: Path) -> Iterator[Path]:
    """Where to write a file that is there as a whole, or not at all."""
    written = path.with_name(f"unfinished-{path.name}")
    yield written
    written.rename(path)


if __name__ == "__main__" and not why_no_spark():
    fast_java()
