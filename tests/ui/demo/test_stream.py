"""What the stream of `semel demo` promises: the same faults for the same seed, and figures that were counted."""

import html
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forked import SECONDS_MAX
from semel.chaos.plan import Fault
from semel.settings import Semantics
from semel.ui.demo.payments import copies, payments
from semel.ui.demo.stage import CountedBroker
from semel.ui.demo.stream import flow
from semel.ui.demo.timetable import HANG_SECONDS, SECONDS_MIN, Strike, timetable
from semel_command import semel, semel_failure, started

SHORT = ("--seconds", "4.5", "--per-second", "1500", "--no-spark")


@given(st.integers(), st.floats(SECONDS_MIN, 120))
def test_every_seed_has_enough_of_each_fault_and_none_while_nothing_passes(seed: int, seconds: float) -> None:
    strikes = timetable(seed, seconds)
    assert strikes == timetable(seed, seconds)
    assert [strike.at_seconds for strike in strikes] == sorted(strike.at_seconds for strike in strikes)
    assert all(0 <= strike.at_seconds < seconds for strike in strikes)
    [hang] = [strike.at_seconds for strike in strikes if strike.fault is Fault.HANG]
    others = [strike for strike in strikes if strike.fault is not Fault.HANG]
    assert not any(hang <= strike.at_seconds <= hang + HANG_SECONDS for strike in others)
    assert sum(strike.fault is Fault.DROP_ACK for strike in others) >= 4
    assert sum(strike.fault is Fault.CUT for strike in others) >= 4


@settings(max_examples=20)
@given(st.integers(), st.integers(1, 200), st.data())
def test_each_payment_is_known_again_wherever_it_turns_up(seed: int, count: int, data: st.DataObject) -> None:
    sent = payments(seed, count)
    assert sent == payments(seed, count)
    wanted = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    values = [payment.encoded() for payment, times in zip(sent, wanted, strict=True) for _ in range(times)]
    assert copies(values, count) == wanted


def test_faults_strike_payments_and_not_what_a_client_asks_first(tmp_path: Path) -> None:
    """On a busy machine all faults of a short stream can be due when its clients connect, and a client may connect only
    when all payments are sent: here they are due at once."""
    strikes = [Strike(0.0, Fault.DROP_ACK), Strike(0.0, Fault.CUT), Strike(0.0, Fault.CUT)]
    with CountedBroker(str(tmp_path), partitions=1) as broker:
        stream = flow(broker, payments(1, 200), 1_000_000, strikes, lambda sample, strike: None)
    assert {run.semantics: run.kept_its_promise for run in stream.runs} == dict.fromkeys(Semantics, True)


def table_of(lines: list[str]) -> dict[str, list[str]]:
    """The cells of the table at the end, by the name of the row."""
    rows = (re.split(r"\s{2,}", line.strip()) for line in lines)
    return {row[0]: row[1:] for row in rows if len(row) == 8}


def test_each_semantic_keeps_the_promise_in_its_name_and_the_report_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    page = tmp_path / "report.html"
    done = semel("demo", "--seed", "2", "--report", str(page), *SHORT)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    lines = done.stdout.splitlines()
    table = table_of(lines)
    counts = {name: [int(cell.replace(",", "")) for cell in cells[:4]] for name, cells in table.items()}
    sent = round(4.5 * 1500)
    assert counts.keys() == {"at-most-once", "at-least-once", "exactly-once"}
    for name, (row_sent, stored, lost, doubled) in counts.items():
        assert row_sent == sent == stored + lost - doubled, name
    assert counts["at-most-once"][2] > 0
    assert counts["at-least-once"][2] == 0 < counts["at-least-once"][3]
    assert counts["exactly-once"] == [sent, sent, 0, 0]
    assert re.fullmatch(r"\d+ batches", table["exactly-once"][4])
    assert any("must be set <= 5 when `enable.idempotence` is true" in line for line in lines)
    said_first = lines.index("   The pipeline on Spark is left out: --no-spark.")
    assert lines[said_first + 1] == "   The answer comes in about 8 s."
    assert said_first < next(place for place, line in enumerate(lines) if "How the clients are set" in line)
    assert not any("\x1b" in line for line in lines), "colours and bars are for terminals"
    assert lines[-1].endswith("semel demo --seed 2 --seconds 4.5 --per-second 1500 --no-spark")
    assert os.listdir(scratch) == []

    text = page.read_text()
    figures = json.loads(re.search(r'id="figures">(.*?)</script>', text)[1])  # type: ignore[index]
    assert {row["name"]: list(row.values())[2:] for row in figures["table"]} == table
    for cells in table.values():
        assert all(f">{html.escape(cell)}</td>" in text for cell in cells)
    for name, _, lost, doubled in ((name, *cells[1:]) for name, cells in counts.items()):
        [run] = [run for run in figures["runs"] if run["semantics"] == name]
        assert sum(column["lost"] for column in run["columns"]) == lost
        assert sum(column["doubled"] for column in run["columns"]) == doubled
    assert not re.search(r"""<(?!a )[^<>]*(?:src|href)=["'](?!data:)|@import|url\(""", text), (
        "it needs nothing from elsewhere"
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--seconds", "1"), "the faults need 4 at least"),
        (("--per-second", "0"), "it has to be 1 or more"),
        (("--report", "/nowhere/report.html"), "there is no directory /nowhere"),
        (("--report", "/tmp"), "Is a directory"),
        (("--report", "/proc/report.html"), "No such file or directory"),
        (("--no-spark", "--database", "sqlite:///demo.db"), "--no-spark leaves out"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(words: tuple[str, ...], complaint: str) -> None:
    assert complaint in semel_failure("demo", *words)


def test_a_report_that_cannot_be_written_here_is_written_elsewhere_and_the_demo_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    # Not even root writes a file where there is a directory.
    (here / "demo-report.html").mkdir(parents=True)
    elsewhere.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("TMPDIR", str(elsewhere))
    done = semel("demo", "--seconds", "4", "--per-second", "100", "--no-spark")
    assert (done.returncode, done.stderr) == (0, "")
    [report] = elsewhere.rglob("*.html")
    assert f"{report}: the same with charts" in done.stdout
    assert "</html>" in report.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_demo_that_is_ended_leaves_nothing_behind(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    demo = started("demo", "--report", str(tmp_path / "report.html"), *SHORT)
    assert demo.stdout is not None
    while (runs := re.search(r"runs as process (\d+)", demo.stdout.readline())) is None:
        pass
    while "an ACK is lost" not in demo.stdout.readline():
        pass
    demo.send_signal(number)
    demo.communicate(timeout=SECONDS_MAX)
    assert demo.returncode == 128 + number
    with pytest.raises(ProcessLookupError):
        os.kill(int(runs[1]), 0)
    assert os.listdir(tmp_path) == []


def test_where_spark_cannot_run_it_says_what_to_install() -> None:
    without = "import sys; sys.modules['pyspark'] = None; from semel.ui.demo.main_job import why_no_spark"
    done = subprocess.run(
        [sys.executable, "-c", f"{without}; print(why_no_spark())"], capture_output=True, text=True, timeout=SECONDS_MAX
    )
    assert done.stdout == "pyspark is not installed: pip install 'semel[spark]'\n"
