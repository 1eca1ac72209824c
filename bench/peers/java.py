"""What peers in Java need: a Java, and jars from Maven Central, which mvn fetches into the cache. It must never leave
half of what was asked for there: what is fetched is handed over as a whole, to be put in its place in one step."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bench.peers.process import SkipReason, cache_dir

JAVA_MAJOR_MIN: Final = 17
_ALONE: Final = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


class Artifact(NamedTuple):
    """A jar, by the names that Maven has for it."""

    group: str
    name: str
    version: str


def require_java() -> str:
    """The path of a Java that Kafka can run on, from `JAVA_HOME` or `PATH`."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        raise SkipReason(f"Kafka needs Java {JAVA_MAJOR_MIN} or newer, and there is no java on PATH")
    text = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    quoted = text.split('"')
    major = quoted[1].split(".")[0] if len(quoted) > 1 else ""
    if not major.isdigit() or int(major) < JAVA_MAJOR_MIN:
        raise SkipReason(f"Kafka needs Java {JAVA_MAJOR_MIN} or newer, and {java} is {major or 'unknown'}")
    return java


@contextlib.contextmanager
def fetched(what: str, artifacts: Sequence[Artifact], *, alone: bool = False) -> Iterator[Path]:
    """A directory in the cache with these jars, and all they depend on unless they are to be alone. What is not taken
    from there is gone afterwards."""
    java = require_java()
    if shutil.which("mvn") is None:
        raise SkipReason(f"{what} is not in {cache_dir()} and mvn, which fetches it, is not on PATH")
    cache_dir().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetching-", dir=cache_dir()) as staging:
        Path(staging, "pom.xml").write_text(_pom(artifacts, alone))
        jars = Path(staging, "jars")
        kinds = "-DexcludeTransitive=true" if alone else "-DincludeScope=runtime"
        result = subprocess.run(
            ["mvn", "-B", "-q", "dependency:copy-dependencies", kinds, f"-DoutputDirectory={jars}"],
            cwd=staging,
            env={**os.environ, "JAVA_HOME": str(Path(java).resolve().parent.parent)},
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode != 0:
            raise SkipReason(f"mvn could not fetch {what}: {(result.stdout + result.stderr)[-500:]}")
        yield jars


def put(fetched_path: Path, place: Path) -> None:
    """Another run may have been faster; then its own is as good."""
    place.parent.mkdir(exist_ok=True)
    if not place.exists():
        fetched_path.rename(place)


def _pom(artifacts: Sequence[Artifact], alone: bool) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{artifact.group}</groupId><artifactId>{artifact.name}</artifactId>"
        f"<version>{artifact.version}</version>{_ALONE if alone else ''}</dependency>"
        for artifact in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>semel.bench</groupId><artifactId>peers</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
