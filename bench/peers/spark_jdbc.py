"""Spark's own JDBC sink as a peer: the driver of PostgreSQL, which the PySpark wheel does not hold, fetched from Maven
Central into the cache. Its rows are appended, at least once; it is run as it comes, and tuned."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench.peers.java import Artifact, fetched, put
from bench.peers.process import cache_dir

DRIVER_VERSION: Final = "42.7.7"
DRIVER_CLASS: Final = "org.postgresql.Driver"
JAR: Final = f"postgresql-{DRIVER_VERSION}.jar"


def install() -> Path:
    """The jar, fetched if it is not there yet."""
    place = cache_dir() / JAR
    if not place.exists():
        with fetched(JAR, [Artifact("org.postgresql", "postgresql", DRIVER_VERSION)], alone=True) as jars:
            put(jars / JAR, place)
    return place
