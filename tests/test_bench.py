"""Holds the measures of the application kit to it that they run: a bench that breaks is found out on the day on which
its figures are wanted. What the figures say is of no interest here."""

import subprocess
import sys
from pathlib import Path

import pytest
from bench.measures.measure import Kind, Target

ROOT = Path(__file__).parent.parent
NOTHING = "-"


@pytest.mark.usefixtures("postgres")
@pytest.mark.slow
@pytest.mark.parametrize("measure", ["inbox", "http", "outbox"])
def test_a_measure_of_the_application_kit_has_both_figures_in_each_of_its_rows(measure: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    run = subprocess.run(
        [sys.executable, "-m", "bench", "--only", measure, "--quick", "--write", str(page)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert run.returncode == 0, run.stderr
    table = [line.strip("| ").split(" | ") for line in page.read_text().splitlines() if line.startswith("| ")]
    rows = table[1:]
    assert len(rows) >= 4
    assert [row for row in rows if NOTHING in (row[1], row[2])] == []


def test_a_target_above_another_figure_counts_from_that_figure() -> None:
    target = Target(Kind.EXCESS_AT_MOST, 1000)
    assert str(target) == "<= + 1000"
    assert target.holds(2500, 1500)
    assert not target.holds(2501, 1500)
    assert target.holds(2500, None) is None
