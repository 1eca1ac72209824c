"""What `semel demo log` promises: the story comes to its end, its figures were counted, and nothing is left behind."""

import os
import re
import signal
from pathlib import Path

import pytest
from semel_command import SECONDS_MAX, semel_lines, started

SUM = re.compile(
    r"acknowledged ([\d,]+)   stored ([\d,]+)   lost ([\d,]+)   doubled ([\d,]+)   duplicates absorbed ([\d,]+) "
)


def test_the_story_keeps_every_promise_and_counts_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    told = semel_lines("demo", "log")
    assert [line.split(". ")[0] for line in told if re.match(r"\d\. ", line)] == list("1234567")
    assert sum(line.strip().startswith("ok  ") for line in told) == 7
    counted = SUM.match(told[-1])
    assert counted is not None
    acknowledged, stored, lost, doubled, absorbed = (int(number.replace(",", "")) for number in counted.groups())
    assert acknowledged == stored > 30_000
    assert (lost, doubled) == (0, 0)
    assert absorbed >= 6, "one lost answer, and the replays by hand, at the least"
    assert not any("\x1b" in line for line in told), "colours are for terminals"
    assert os.listdir(tmp_path) == []


def test_a_story_that_is_ended_leaves_no_broker_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    demo = started("demo", "log")
    assert demo.stdout is not None
    while (runs := re.search(r"runs as process (\d+)", demo.stdout.readline())) is None:
        pass
    demo.send_signal(signal.SIGTERM)
    demo.communicate(timeout=SECONDS_MAX)
    assert demo.returncode == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int(runs[1]), 0)
    assert os.listdir(tmp_path) == []
