"""What holds for the tests of the source."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def error_reports_stay_as_they_are() -> Iterator[None]:
    """An error of ours changes how a worker of Spark reports it, and a worker ends with that. The tests do not."""
    yield
    os.environ.pop("SPARK_HIDE_TRACEBACK", None)
