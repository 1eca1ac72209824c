"""How many tests run side by side: a large machine is no reason to run out of memory, and a small one is told so."""

from pathlib import Path

import pytest

from shares import niceness_of, too_small, unfit, workers_at_once


@pytest.mark.parametrize(
    ("cores", "gigabytes", "workers"), [(2, 25, 8), (2, 4, 4), (1, 2, 2), (16, 16, 16), (2, 0.5, 1)]
)
def test_the_cores_are_busy_and_there_is_memory_for_each_worker(cores: int, gigabytes: float, workers: int) -> None:
    assert workers_at_once(cores, int(gigabytes * 1e9)) == workers


@pytest.mark.parametrize(
    ("gigabytes", "open_files", "said"),
    [(2, 4096, "need 3 GB of memory, and 2.0 GB are here"), (4, 256, "need 1024 open files, and 256 are allowed")],
)
def test_a_machine_that_is_too_small_is_told_what_it_lacks(gigabytes: int, open_files: int, said: str) -> None:
    """And does not fail at whatever test comes first."""
    assert said in (too_small(int(gigabytes * 1e9), open_files) or "")
    assert too_small(4_000_000_000, 1024) is None


def test_a_place_of_temporary_files_that_will_not_do_is_named_with_the_remedy() -> None:
    """Else Spark says so in a hundred tests, in its own words."""
    place = Path("/small")
    assert "no program may be run in /small (noexec): set TMPDIR" in str(unfit(place, 10**10, runs_programs=False))
    assert "need 1 GB in /small, and 0.2 GB are free: set TMPDIR" in str(unfit(place, 2 * 10**8, runs_programs=True))
    assert unfit(place, 10**9, runs_programs=True) is None


def test_the_longest_shares_do_not_wait_for_the_others() -> None:
    """They begin first and would end last: all others fit beside them."""
    assert niceness_of("tests/spark/tables/test_table_contract.py::test_it") == 0
    assert niceness_of("tests/spark/test_session.py::test_it") == 0
    assert niceness_of("tests/crash/test_matrix.py::test_it") > 0
    assert niceness_of("tests/wire/test_codec.py::test_it") > 0
