"""One broker process and one client of each library for the whole session; every test gets a topic name of its own.

    SEMEL_TEST_BOOTSTRAP=127.0.0.1:9092 pytest tests/clients

runs the same promises against any other cluster. What needs a broker of its own is skipped then.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from client_contract import Client
from client_kinds import CLIENTS

from cluster_under_test import FOREIGN_CLUSTER
from semel.testing.served import ServedBroker

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if FOREIGN_CLUSTER is not None:
        yield FOREIGN_CLUSTER
        return
    with ServedBroker(tmp_path_factory.mktemp("clients") / "data") as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session", params=CLIENTS.values(), ids=CLIENTS)
def client(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[Client]:
    kind: type[Client] = request.param
    with kind(bootstrap) as client:
        yield client


@pytest.fixture(params=CLIENTS.values(), ids=CLIENTS)
def kind_of_client(request: pytest.FixtureRequest) -> type[Client]:
    """For tests that start a broker of their own."""
    kind: type[Client] = request.param
    return kind


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., ServedBroker]]:
    """Starts a broker of the test's own, with any options of the command line."""
    if FOREIGN_CLUSTER is not None:
        pytest.skip("needs a broker of its own")
    numbers = itertools.count()
    with contextlib.ExitStack() as running:
        yield lambda *options: running.enter_context(ServedBroker(tmp_path / f"data-{next(numbers)}", *options))


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no test has used: of this run, of this process."""
    return f"clients-{os.getpid()}-{next(_numbers)}"
