"""What the whole of `semel demo` promises: every payment is one row in every sink, whoever is killed on the way."""

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from left_behind import processes_about
from semel.ui.demo.main_job import why_no_spark
from semel_command import SEMEL, started

# Two starts of Spark and seven micro-batches, on a machine that may be busy.
SECONDS_MAX = 600.0
FEW = ("--seed", "3", "--seconds", "4.5", "--per-second", "800")
SENT = round(4.5 * 800)

pytestmark = [
    pytest.mark.timeout(SECONDS_MAX + 30),
    pytest.mark.skipif(bool(why_no_spark()), reason=why_no_spark() or "Spark can run"),
]


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the demo makes all that it makes, which has to be gone when it has ended. PostgreSQL runs as somebody else
    where the tests run as root, who may not look into pytest's directories."""
    with tempfile.TemporaryDirectory(prefix="semel-demo-test-") as name:
        place = Path(name)
        place.chmod(0o755)
        monkeypatch.setenv("TMPDIR", name)
        yield place
        assert os.listdir(place) == []
        assert processes_about(place) == []


@pytest.mark.slow
def test_every_payment_is_one_row_in_every_sink_whoever_is_killed(scratch: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    done = subprocess.run(
        [SEMEL, "demo", *FEW, "--report", str(page)], capture_output=True, text=True, timeout=SECONDS_MAX
    )
    print(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    rows = (re.split(r"\s{2,}", line.strip()) for line in done.stdout.splitlines())
    table = {row[0]: row[1:] for row in rows if len(row) == 8}
    sinks = {name: cells for name, cells in table.items() if cells[-1] == "audit clean"}
    assert [name.split()[0] for name in sinks] == ["topic", "payments", "balances", "Parquet"]
    for name, (sent, stored, lost, doubled, *_) in sinks.items():
        assert (lost, doubled) == ("0", "0"), name
        assert sent == stored, name
        assert sent == f"{SENT:,}" or name.startswith("balances"), name
    doubles = int(table["at-least-once"][3].replace(",", ""))
    assert table["deduplicated"][:4] == [f"{SENT:,}", f"{SENT:,}", "0", "0"]
    assert table["deduplicated"][4].split()[0] == f"{doubles:,}"
    for deed in ("of a task", "of the broker", "of the driver"):
        assert done.stdout.count(f"kill -9 {deed}") == 1
        assert f"kill -9 {deed}" in page.read_text()
    assert "it is replayed" in done.stdout
    for name in ("topic", "payments", "balances"):
        [absorbed] = [cells[4] for sink, cells in sinks.items() if sink.startswith(name)]
        assert int(absorbed.split()[0]) >= 1, f"{name} took the replayed batch for a new one"


def test_a_database_that_cannot_be_used_is_refused_before_anything_is_sent(scratch: Path) -> None:
    for url, complaint in (
        ("mysql://here/demo", "it begins with postgresql:// or sqlite:///"),
        ("sqlite:////nowhere/demo.db", "unable to open database file"),
        ("postgresql://nobody@127.0.0.1:1/demo", "connection"),
    ):
        done = subprocess.run([SEMEL, "demo", "--database", url], capture_output=True, text=True, timeout=SECONDS_MAX)
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1
        assert complaint in done.stderr
        assert "payments, " not in done.stdout


def test_ctrl_c_ends_spark_and_all_the_others(scratch: Path, tmp_path: Path) -> None:
    demo = started("demo", *FEW, "--report", str(tmp_path / "report.html"))
    assert demo.stdout is not None
    while "the driver starts" not in demo.stdout.readline():
        assert demo.poll() is None
    demo.send_signal(signal.SIGINT)
    demo.communicate(timeout=SECONDS_MAX)
    assert demo.returncode == 130
