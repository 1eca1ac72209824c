"""What semel needs of a machine: the same everywhere it is named, and `make setup` says in one line what is missing."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def look_for_python(name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-euc", '. tools/python.sh; echo "$python"'],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHON": name},
        capture_output=True,
        text=True,
    )


def pretend(path: Path, *, version_fits: bool, makes_environments: bool) -> str:
    """A Python that answers only the two questions that set-up asks of it."""
    answers = {True: "0", False: "1"}
    path.write_text(
        f'#!/bin/sh\ncase "$2" in\n*version_info*) exit {answers[version_fits]} ;;\n'
        f"*ensurepip*) exit {answers[makes_environments]} ;;\nesac\n"
    )
    path.chmod(0o755)
    return str(path)


def test_a_python_that_fits_is_taken(tmp_path: Path) -> None:
    (tmp_path / "a place").mkdir()
    python = pretend(tmp_path / "a place" / "python3", version_fits=True, makes_environments=True)
    assert look_for_python(python).stdout == f"{python}\n"


@pytest.mark.parametrize("name", ["/nowhere/python3", "too old"])
def test_without_a_python_that_fits_one_line_says_how_to_name_one(name: str, tmp_path: Path) -> None:
    if name == "too old":
        name = pretend(tmp_path / "python3", version_fits=False, makes_environments=True)
    result = look_for_python(name)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert "make setup PYTHON=" in result.stderr


def test_a_python_without_its_venv_module_is_named_with_the_cure(tmp_path: Path) -> None:
    python = pretend(tmp_path / "python3", version_fits=True, makes_environments=False)
    result = look_for_python(python)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert python in result.stderr
    assert "python3-venv" in result.stderr


def test_every_place_that_names_the_versions_of_python_names_the_same() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = re.findall(r"Programming Language :: Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert project["requires-python"] == f">={versions[0]}"
    for page in ("README.md", "CONTRIBUTING.md", "Makefile", "tools/setup.py"):
        assert f"{versions[0]} to {versions[-1]}" in (ROOT / page).read_text(), page


def test_every_page_that_names_the_version_of_spark_names_the_one_that_is_installed() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [version] = re.findall(r"pyspark>=([\d.]+),", " ".join(extras["spark"]))
    for page in ("README.md", "docs/how-to/spark-cluster.md", "docs/how-to/spark-source.md"):
        assert re.findall(r"PySpark \(?([\d.]+) or newer", (ROOT / page).read_text()) == [version], page
