"""The places of all engines, one for each module of tests."""

from collections.abc import Iterator

import pytest
from stores_under_test import ENGINES, Place


@pytest.fixture(scope="module", params=ENGINES)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with ENGINES[request.param](request, tmp_path_factory.mktemp("stores")) as opened:
        yield opened
