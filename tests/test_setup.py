"""What semel needs of a machine: the same everywhere it is named, and `make setup` says in one line what is missing."""

import re
import runpy
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

from file_names import NEEDS_MORE_THAN_ASCII

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


@pytest.mark.parametrize(("version", "is_made_anew"), [("{0.major} {0.minor}", False), ("3 99", True)])
def test_an_environment_of_another_python_than_the_named_one_is_made_anew(
    tmp_path: Path, version: str, is_made_anew: bool
) -> None:
    for name in ("pyproject.toml", "locks/dev.txt", "tools/setup.sh", "tools/setup.py", ".venv/bin/python"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ".venv/set-up").write_text(f"{tmp_path}\n")
    (tmp_path / ".venv/bin/python").write_text(f"#!/bin/sh\necho {version.format(sys.version_info)}\n")
    (tmp_path / ".venv/bin/python").chmod(0o755)

    def makes_it_anew(named: str) -> bool:
        asked = ["make", "-n", "-f", ROOT / "Makefile", "demo", named]
        return "setup.sh" in subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert not makes_it_anew("PYTHON=")
    assert makes_it_anew(f"PYTHON={sys.executable}") is is_made_anew


@NEEDS_MORE_THAN_ASCII
def test_the_environment_finds_the_sources_below_a_path_of_any_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the language has ASCII alone, too: until 3.13, Python reads that file in the language's encoding."""
    clone = tmp_path / "semel clönē"
    environment = clone / ".venv"
    venv.create(environment, symlinks=True)
    [packages] = environment.glob("lib/python*/site-packages")
    (packages / "_semel.pth").write_text(str(clone / "src"), encoding="utf-8")
    (clone / "src").mkdir()
    (clone / "src" / "found.py").touch()
    monkeypatch.chdir(clone)
    runpy.run_path(str(ROOT / "tools/setup.py"))["name_sources_relatively"](environment)
    asked = [environment / "bin/python", "-c", "import found; print(ascii(found.__file__))"]
    ran = subprocess.run(asked, env={"LC_ALL": "POSIX"}, capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == (f"{str(clone / 'src/found.py')!a}\n", "")


def test_what_every_change_must_pass_runs_without_what_the_environment_happens_to_hold(tmp_path: Path) -> None:
    """Else a test that only holds by a variable is green there, and red for everybody else."""
    make = tmp_path / "make"
    make.write_text('#!/bin/sh\necho "made $1"\nenv\n')
    make.chmod(0o755)
    held = {"PIP_INDEX_URL": "https://packages.example/a b", "PIP_NO_INPUT": "1"}
    environment = {"HOME": "/home/anna", "PATH": f"{tmp_path}:/usr/bin:/bin", **held}
    dropped = {"PYTHONUNBUFFERED": "1", "CI": "true", "TERM": "xterm", "SPARK_HOME": "/spark", "http_proxy": "x"}
    ran = subprocess.run(["bash", ROOT / ".ci/run"], env={**environment, **dropped}, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    assert {line for line in lines if line.startswith("PIP_")} == {f"{name}={value}" for name, value in held.items()}
    assert {"HOME=/home/anna", "LANG=C.UTF-8"} <= set(lines)
    # A shell sets the other ones.
    names = {line.partition("=")[0] for line in lines if re.match(r"\w+=", line)}
    assert names == {"HOME", "PATH", "LANG", *held, "PWD", "OLDPWD", "SHLVL", "_"}
    made = [line.removeprefix("made ") for line in lines if line.startswith("made ")]
    assert "test" in made
    read_me = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [target for target in made if f"`make {target}`" not in read_me and f"make {target} " not in read_me] == []


def test_every_place_that_names_the_versions_of_python_names_the_same() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    versions = re.findall(r"Programming Language :: Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert project["requires-python"] == f">={versions[0]}"
    for page in ("README.md", "CONTRIBUTING.md", "Makefile", "tools/setup.py"):
        assert f"{versions[0]} to {versions[-1]}" in (ROOT / page).read_text(), page


def test_every_page_that_names_the_version_of_spark_names_the_one_that_is_installed() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [version] = re.findall(r"pyspark>=([\d.]+),", " ".join(extras["spark"]))
    for page in ("README.md", "docs/how-to/spark-pipeline.md", "docs/how-to/spark-source.md"):
        assert re.findall(r"PySpark \(?([\d.]+) or newer", (ROOT / page).read_text()) == [version], page


def test_a_run_of_the_tests_without_assertions_is_refused() -> None:
    """It would be green whatever is wrong."""
    command = [sys.executable, "-O", "-m", "pytest", "--collect-only", str(Path(__file__))]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == pytest.ExitCode.USAGE_ERROR
    assert "unset PYTHONOPTIMIZE" in ran.stderr
