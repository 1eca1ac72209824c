"""What the report promises: every figure of the table, words for what the charts show, and no error in a browser."""

import re
import shutil
import subprocess
from array import array
from pathlib import Path

import pytest

from semel.chaos.plan import Fault
from semel.settings import Semantics
from semel.ui.charts.drawing import HEIGHT, SENT_SHARE
from semel.ui.demo import charts, report
from semel.ui.demo.figures import Figures, Happening, Pipeline, Row
from semel.ui.demo.payments import payments
from semel.ui.demo.screen import table
from semel.ui.demo.stream import NEVER, Run, Stream
from semel.ui.demo.timetable import timetable

PER_SECOND = 100
COUNT = 500
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def run_of(semantics: Semantics) -> Run:
    """A run in which every tenth payment met a fault."""
    fate = {Semantics.AT_MOST_ONCE: 0, Semantics.AT_LEAST_ONCE: 2, Semantics.EXACTLY_ONCE: 1}[semantics]
    heard = array("d", [position / PER_SECOND + 0.02 for position in range(COUNT)])
    if fate == 0:
        heard[0::10] = array("d", [NEVER]) * (COUNT // 10)
    return Run(semantics, f"payments-{semantics}", heard, copies=[fate if n % 10 == 0 else 1 for n in range(COUNT)])


@pytest.fixture
def figures() -> Figures:
    runs = tuple(run_of(semantics) for semantics in Semantics)
    stream = Stream(payments(1, COUNT), PER_SECOND, timetable(1, COUNT / PER_SECOND), runs, absorbed=7)
    pipeline = Pipeline(
        rows=[Row("topic <enriched>", COUNT, COUNT, 0, 0, "audit clean", True, "1 batches", "2 times")],
        happenings=[
            Happening(0.0, "life", "the driver starts"),
            Happening(3.0, "kill", "kill -9 of the driver", "driver killed"),
        ],
        growth={"demo-enriched": [(2.0, 250), (5.0, 500)], "Parquet files": [(6.0, 500)]},
        seconds=8.0,
    )
    return Figures(1, stream, pipeline, refused=["acks=1 with <idempotence>"], refusal="`acks` must be `all`")


def cells_of(page: str) -> list[list[str]]:
    [shown] = re.findall(r"<table>(.*?)</table>", page)
    rows = re.findall(r'<th scope="row">(.*?)</th>(.*?)</tr>', shown)
    return [[name, *re.findall(r"<td[^>]*>(.*?)</td>", cells)] for name, cells in rows]


def test_the_table_is_that_of_the_terminal(figures: Figures) -> None:
    wanted = [[row.name, *row.cells()] for _, rows in figures.sections() for row in rows]
    shown = cells_of(report.write(figures, "semel demo"))
    assert shown == [[cell.replace("<", "&lt;").replace(">", "&gt;") for cell in row] for row in wanted]
    told = "\n".join(table(figures.sections()))
    assert all(cell in told for row in wanted for cell in row)


def test_what_was_counted_is_said_in_words_beside_every_chart(figures: Figures) -> None:
    page = report.write(figures, "semel demo --seed 1")
    assert f"{COUNT} payments, {len(figures.stream.strikes)} faults" in page
    assert "at-most-once: 500 payments, 50 lost, 0 records too many" in page
    assert "at-least-once: 500 payments, 0 lost, 50 records too many" in page
    assert "exactly-once: 500 payments, 0 lost, 0 records too many" in page
    assert page.count("an ACK is lost at") == sum(one.fault is Fault.DROP_ACK for one in figures.stream.strikes)
    assert "kill -9 of the driver" in page
    assert "acks=1 with &lt;idempotence&gt;" in page
    assert "<pre>semel demo --seed 1</pre>" in page
    assert "{{" not in page


def test_doubles_are_seen_beside_thousands_of_payments(figures: Figures) -> None:
    """One double in a tenth of a second was a pixel: the orange columns have a scale of their own."""
    [run] = [run for run in figures.stream.runs if run.semantics is Semantics.AT_LEAST_ONCE]
    run.copies = [1] * COUNT
    run.copies[7] = 2
    [drawn] = re.findall(r'<path class="doubled" d="([^"]*)"', charts.fate_chart(run, figures.stream))
    assert float(re.findall(r"v([\d.]+)", drawn)[0]) == pytest.approx(HEIGHT * (1 - SENT_SHARE))
    assert '<span class="scale is-doubled" style="top:0;transform:none">1 again</span>' in report.write(figures, "")


@pytest.mark.parametrize("seconds", [3_600.0, 3_601.0, 100_000.0, 10_000_000.0])
def test_a_chart_has_a_few_marks_however_long_the_demo_ran(seconds: float) -> None:
    marks = charts.ticks(seconds)
    assert 3 <= len(marks) <= 7
    assert marks == sorted(set(marks))
    assert marks[-1] <= seconds


def test_the_page_says_what_semel_is_and_what_was_killed_when(figures: Figures) -> None:
    page = report.write(figures, "semel demo")
    assert "semel is a log that speaks the Kafka protocol" in page
    assert re.search(r'class="deed" style="left:37.50%;top:0.0rem" title="[^"]*">driver killed</span>', page)
    anchors = re.findall(r'<a href="#([^"]+)"', page)
    assert anchors
    assert all(f'id="{anchor}"' in page for anchor in anchors)


def test_a_broken_promise_is_said_at_the_top(figures: Figures) -> None:
    assert "Exactly once from the log to the last row: 0 lost, 0 doubled" in report.write(figures, "semel demo")
    figures.stream.runs[-1].copies[3] = 2
    page = report.write(figures, "semel demo")
    assert not figures.held
    assert "A promise was broken" in page
    assert "NOT SO: 0 lost, 0 doubled" in page


def test_without_a_pipeline_it_says_why(figures: Figures) -> None:
    figures.pipeline, figures.why_no_pipeline = None, "pyspark is not installed: pip install 'semel[spark]'"
    page = report.write(figures, "semel demo")
    assert "did not run: pyspark is not installed: pip install &#x27;semel[spark]&#x27;." in page
    assert "the pipeline on Spark" not in page


# What somebody does who looks at the charts with the keyboard, and what they are told.
LOOKING = """<script>
document.querySelector('[data-chart="fate"] .plot').dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowRight"}));
</script></body>"""


def test_a_browser_shows_it_without_an_error(figures: Figures, tmp_path: Path) -> None:
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    page = tmp_path / "report.html"
    page.write_text(report.write(figures, "semel demo").replace("</body>", LOOKING))
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    options += [f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr", "--dump-dom"]
    shown = subprocess.run([browser, *options, page.as_uri()], capture_output=True, text=True, timeout=100)
    assert "CONSOLE" not in shown.stderr
    [told] = re.findall(r'<figcaption class="readout".*?>(.*?)</figcaption>', shown.stdout)
    assert told == (
        "at 0.05 s · at-most-once: 1 lost · at-least-once: 1 stored again · exactly-once: all 10 stored once"
    )
