"""Spark's Python processes find PySpark as it is installed, compiled; where that is another one, Spark's archive."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.machinery import ModuleSpec
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING

import pytest

from file_names import NEEDS_MORE_THAN_ASCII
from semel.spark import python as module
from semel.spark.python import python_for_spark
from semel.spark.scripts import is_word

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYSPARK = Path(pytest.importorskip("pyspark").__file__)
ARCHIVES = ":".join(map(str, sorted(PYSPARK.parent.glob("python/lib/*.zip"), reverse=True)))
TELLS = "import os, sys; print(os.environ['PYTHONPATH'], sys.executable)"


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Where Spark takes a path as it is: the tests' own directory may have a space in it."""
    with ExitStack() as stack:
        place = tmp_path if is_word(tmp_path) else Path(stack.enter_context(TemporaryDirectory(dir="/tmp")))
        monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        yield place / "cache"


def said_by(python: str, code: str, environment: dict[str, str]) -> str:
    return subprocess.run([python, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout


def test_a_task_imports_the_pyspark_that_is_compiled(spark: SparkSession) -> None:
    import pyarrow

    def run_by(batches: object) -> object:
        import pyspark

        yield pyarrow.RecordBatch.from_pydict({"place": [os.path.realpath(pyspark.__file__)]})

    place = spark.range(1).mapInArrow(run_by, "place string").collect()[0].place  # type: ignore[arg-type]
    assert place == str(PYSPARK.resolve())


@pytest.mark.parametrize(
    ("path", "left"),
    [
        (f"{ARCHIVES}:/spark/jars/spark-core.jar:/own", "PACKAGES:/spark/jars/spark-core.jar:/own"),
        # Where Spark looks up formats, it names them twice.
        (f"{ARCHIVES}:/own:{ARCHIVES}", "PACKAGES:/own"),
        ("/own:/spark/pyspark.zip", "/own:/spark/pyspark.zip"),
        ("", ""),
    ],
)
def test_the_installed_packages_take_the_place_of_the_archives_and_the_rest_stays(
    path: str, left: str, cache: Path
) -> None:
    python = python_for_spark()
    assert python != sys.executable
    packages = Path(python).parent / "packages"
    assert {link.name for link in packages.iterdir()} == {"py4j", "pyspark"}
    left = left.replace("PACKAGES", str(packages))
    assert said_by(python, TELLS, {"PYTHONPATH": path}) == f"{left} {sys.executable}\n"


def test_another_pyspark_on_the_path_is_not_taken_nor_are_variables_lost(cache: Path, tmp_path: Path) -> None:
    """The archives, too, would come first. A shell would drop the variable, whose name is none for it."""
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").touch()
    environment = {"PYTHONPATH": f"{ARCHIVES}:{tmp_path}", "spark.own": "kept"}
    code = "import os, pyspark; print(os.path.realpath(pyspark.__file__), os.environ['spark.own'])"
    assert said_by(python_for_spark(), code, environment) == f"{PYSPARK.resolve()} kept\n"


def test_the_script_is_kept_for_the_next_process(cache: Path) -> None:
    """Whoever deletes old temporary files does not stop a stream that begins later."""
    assert python_for_spark() == python_for_spark()
    assert python_for_spark().startswith(str(cache))


@pytest.mark.parametrize("open_one", ["", "semel", "semel/python"])
def test_no_script_is_taken_from_where_others_could_change_it(open_one: str, cache: Path) -> None:
    assert python_for_spark().startswith(str(cache))
    (cache / open_one).chmod(0o777)
    assert not python_for_spark().startswith(str(cache))


def test_a_script_that_others_could_change_is_not_taken(cache: Path) -> None:
    Path(python_for_spark()).chmod(0o777)
    assert not python_for_spark().startswith(str(cache))


def test_it_is_kept_where_the_group_may_change_what_a_user_makes(cache: Path) -> None:
    """As on systems on which each user has a group of his own."""
    usual = os.umask(0o002)
    try:
        assert python_for_spark().startswith(str(cache))
    finally:
        os.umask(usual)


def test_what_is_missing_of_it_is_written_again(cache: Path) -> None:
    script = Path(python_for_spark())
    (script.parent / "packages" / "pyspark").unlink()
    script.unlink()
    assert python_for_spark() == str(script)
    assert said_by(str(script), "import pyspark; print('found')", {"PYTHONPATH": ARCHIVES}) == "found\n"


def test_where_another_spark_runs_its_archive_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert python_for_spark() == sys.executable


def found_at(place: Path) -> Callable[[str], ModuleSpec | None]:
    """A PySpark that this process has found there."""
    spec = ModuleSpec("pyspark", None, origin=str(place / "pyspark" / "__init__.py"))
    return lambda name: spec if name == "pyspark" else importlib.util.find_spec(name)


def test_a_pyspark_without_spark_ends_no_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cluster gives it to a driver as an archive. PySpark's own search for Spark would end the program."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr(module, "find_spec", found_at(tmp_path / "pyspark.zip"))
    monkeypatch.setattr("pyspark.find_spark_home._find_spark_home", lambda: sys.exit(-1))
    assert python_for_spark() == sys.executable


@pytest.mark.skipif(not is_word(Path(gettempdir())), reason="no other place has a path that Spark takes")
@pytest.mark.parametrize("name", ["with a space", "$HOME", "it's", pytest.param("schön", marks=NEEDS_MORE_THAN_ASCII)])
def test_a_script_whose_path_a_shell_reads_otherwise_is_not_given_to_spark(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spark gives it to a shell unquoted, and then finds no format of any package."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
    script = python_for_spark()
    assert script != sys.executable
    assert name not in script
    assert not (tmp_path / name).exists()


@pytest.mark.parametrize("symlinks", [True, False], ids=["linked", "copied"])
@pytest.mark.parametrize("name", ["with a space", pytest.param("schön", marks=NEEDS_MORE_THAN_ASCII), "long" * 40])
def test_the_python_behind_the_script_may_have_any_path(
    name: str, symlinks: bool, cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in a clone below a directory of any name, whose environment has a link to Python or a copy of it."""
    environment = tmp_path / name
    venv.create(environment, symlinks=symlinks)
    python = str(environment / "bin" / "python")
    monkeypatch.setattr(sys, "executable", python)
    script = python_for_spark()
    assert script != python
    assert said_by(script, "import sys; print(sys.executable)", {}) == f"{python}\n"


def test_where_no_script_may_be_run_this_python_is_taken(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """As on a file system that is mounted with `noexec`."""
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.X_OK)
    assert python_for_spark() == sys.executable
