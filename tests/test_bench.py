"""Holds the measures of the application kit to it that they run: a bench that breaks is found out on the day on which
its figures are wanted. What the figures say is of no interest here."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from bench import __main__ as main
from bench import measures, results
from bench.measures.copy import Copy
from bench.measures.latency import Latency
from bench.measures.measure import Kind, Target

ROOT = Path(__file__).parent.parent
NOTHING = "-"
PAGES = sorted((ROOT / "docs").glob("BENCHMARKS*.md"))


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


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a copy without its history")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_figures_of_a_page_are_those_of_a_commit_in_the_history(page: Path) -> None:
    """So that others can measure the same program."""
    [commit] = re.findall(r"^- commit: (\S+)$", page.read_text(), re.MULTILINE)
    assert results.why_not_a_commit(commit) is None, commit


def test_a_work_tree_with_changes_is_no_commit() -> None:
    assert results.why_not_a_commit(f"0123456789{results.DIRTY}") == "the work tree has changes: commit them first"


def test_each_measure_is_on_one_page_and_each_page_is_there() -> None:
    """One run writes them all, so that all are of one commit and one machine."""
    names = [measure.name for of_page in measures.PAGES.values() for measure in of_page]
    names += [measure.name for measure in measures.WITHOUT_PAGE]
    assert len(set(names)) == len(names) == len(measures.MEASURES)
    assert sorted(measures.PAGES) == [page.name for page in PAGES]
    written = main.pages(main.DOCUMENTS, measures.MEASURES)
    assert {page.name: tuple(of_page) for page, of_page in written.items()} == measures.PAGES


def test_a_missed_target_is_on_its_page_with_its_reason_and_a_note_on_the_page_of_its_measure() -> None:
    latency, copy = Latency(), Copy()
    found = results.Results()
    for contender, figure in (("semel os", 3.0), ("kafka", 2.0)):
        found.add(latency, contender, {"p50_us": figure})
    found.note("the client was slow", latency)
    found.note("there was no Kafka", copy)
    page = results.as_markdown("make bench", [latency], found, {})
    [row] = [row for row in latency.rows if row.semel == "semel os" and row.target]
    assert f"## Targets that do not hold, and why\n\n- latency, {row.title}: {row.reason}" in page
    assert "the client was slow" in page
    assert "there was no Kafka" not in page
    assert "## Targets that do not hold" not in results.as_markdown("make bench", [copy], found, {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_says_of_its_figures_what_their_measures_say_now(page: Path) -> None:
    """`make bench ARGS=--reword` writes it anew. A target that is missed has a reason."""
    text = page.read_text()
    assert text == results.reworded(text, measures.PAGES[page.name])
    assert results.REASON_UNKNOWN not in text


def test_the_words_of_a_page_change_without_its_figures() -> None:
    latency = Latency()
    found = results.Results()
    for row in latency.rows:
        for contender, figure in ((row.semel, 1_234.5), (row.kafka, 1_000.0)):
            found.add(latency, contender or "", {row.metric: figure})
    page = results.as_markdown("make bench", [latency], found, {"rounds": "3"})
    reasons = [row.reason for row in latency.rows if row.target]
    assert all(reason in page for reason in reasons)
    assert results.reworded(page.replace(reasons[0], results.REASON_UNKNOWN), [latency]) == page
    with pytest.raises(ValueError, match="measure them again"):
        results.reworded(page, [Copy()])


def test_a_page_is_written_on_a_quiet_machine_alone() -> None:
    assert results.why_not_quiet(0.1) is None
    assert results.why_not_quiet(7.62) == "the load of the last minute is 7.62: wait until it is 0.5"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_the_make_target_that_measures_it_again(page: Path) -> None:
    [arguments] = re.findall(r"Generated by `make bench ARGS='?([^`']*)'?`", " ".join(page.read_text().split()))
    assert arguments == "--write" or arguments.split()[-2:] == ["--write", f"docs/{page.name}"]
