"""A name and a topic of the test's own, and publishers of that name, on any cluster."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest
from publishers import Publishers

from cluster_under_test import CLIENT
from committed_records import make_topic
from semel.publish import Publisher

_numbers = itertools.count(1)


@pytest.fixture
def name() -> str:
    return f"test-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def topic(bootstrap: str, name: str) -> str:
    make_topic(bootstrap, f"{name}-records", partitions=2)
    return f"{name}-records"


@pytest.fixture
def publishers(bootstrap: str, name: str) -> Iterator[Publishers]:
    """Makes publishers of one name; each is a start of the program."""
    made: list[Publisher] = []

    def make(**options: object) -> Publisher:
        settled = {"timeout_seconds": 30.0, **options}
        address = str(settled.pop("bootstrap", bootstrap))
        settled["client"] = {**CLIENT, **settled.get("client", {})}  # type: ignore[dict-item]
        made.append(Publisher(address, name, **settled))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for publisher in made:
        publisher.close()
