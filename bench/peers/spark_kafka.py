"""Spark's own Kafka connector as a peer: jars that the PySpark wheel does not hold, fetched from Maven Central into the
cache. It must never run untuned: out of the box every poll of 500 records throws away what was fetched ahead, so it is
given the one setting that mends that."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bench.peers.java import Artifact, fetched, put
from bench.peers.process import cache_dir

CONNECTOR_VERSION: Final = "4.2.0"
JARS: Final = (
    Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR_VERSION),
    # The token provider of the connector's own release is not available.
    Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1"),
    Artifact("org.apache.kafka", "kafka-clients", "3.9.2"),
    Artifact("org.apache.commons", "commons-pool2", "2.13.1"),
)
TUNED: Final[Mapping[str, str]] = {"kafka.max.poll.records": "100000"}


def version() -> str:
    return f"Spark's Kafka connector {CONNECTOR_VERSION}"


def install() -> list[Path]:
    """The jars, fetched if they are not there yet; what else they depend on is in PySpark."""
    directory = cache_dir() / f"spark-kafka-{CONNECTOR_VERSION}"
    if not directory.exists():
        with fetched(version(), JARS, alone=True) as jars:
            put(jars, directory)
    return sorted(directory.glob("*.jar"))
