"""How many tests run side by side: a large machine is no reason to run out of memory."""

import pytest

from shares import workers_at_once


@pytest.mark.parametrize(
    ("cores", "gigabytes", "workers"), [(2, 25, 8), (2, 4, 4), (1, 2, 2), (16, 16, 16), (2, 0.5, 1)]
)
def test_the_cores_are_busy_and_there_is_memory_for_each_worker(cores: int, gigabytes: float, workers: int) -> None:
    assert workers_at_once(cores, int(gigabytes * 1e9)) == workers
