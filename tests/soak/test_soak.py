"""What a soak promises: that every fault it names strikes, that growth is seen, and that what is wrong fails it."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from left_behind import processes_about
from semel import audit
from semel.ui.demo.main_job import why_no_spark
from soak.memory import JUDGED_SECONDS_MIN, MB, WARM_UP_SECONDS, Point, Samples, own_bytes, trend
from soak.plan import PLACES, WHOLE_SECONDS, Kind, kinds, plan
from soak.run import complaints
from soak.soaking import Figures
from soak.watching import ALLOWED_MB_PER_MINUTE, BROKER, Watched

TESTS = Path(__file__).parent.parent
# One start of Spark and a few micro-batches, on a machine that may be busy.
SECONDS_MAX = 600.0
LONG_SECONDS = WARM_UP_SECONDS + 2 * JUDGED_SECONDS_MIN

needs_spark = pytest.mark.skipif(bool(why_no_spark()), reason=why_no_spark() or "Spark can run")


# -- the plan ------------------------------------------------------------------------------------------------------


@given(seed=st.integers(), seconds=st.floats(1, 7200))
@settings(max_examples=50)
def test_every_kind_of_fault_strikes_in_every_place_and_within_the_soak(seed: int, seconds: float) -> None:
    strikes = plan(seed, seconds)
    struck = {(strike.kind, strike.where) for strike in strikes}
    assert struck == {(kind, where) for kind in kinds(seconds) for where in PLACES[kind]}
    assert all(0 <= strike.at_seconds <= seconds for strike in strikes)
    assert strikes == sorted(strikes)
    assert strikes == plan(seed, seconds)


def test_only_a_soak_too_short_for_it_leaves_the_driver_alive() -> None:
    assert kinds(WHOLE_SECONDS) == list(Kind)
    assert set(Kind) - set(kinds(WHOLE_SECONDS - 1)) == {Kind.DRIVER}


# -- memory --------------------------------------------------------------------------------------------------------


def life(mb_per_minute: float, seconds: float = LONG_SECONDS, seed: int = 1) -> list[Point]:
    """A process that grows while it warms up, and then as it is said, with noise and now and then a peak."""
    chance = random.Random(seed)
    points = []
    for second in range(0, round(seconds), 2):
        warming = 40 * min(second / WARM_UP_SECONDS, 1.0)
        peak = 100 if chance.random() < 0.1 else 0
        points.append((float(second), (100 + warming + peak + chance.gauss(0, 1) + mb_per_minute * second / 60) * MB))
    return points


@given(leak=st.floats(8, 500), seed=st.integers())
@settings(max_examples=25)
def test_a_leak_is_seen_through_noise_and_peaks(leak: float, seed: int) -> None:
    found = trend(life(leak, seed=seed))
    assert found is not None
    assert leak / 2 < found.mb_per_minute < leak * 2


@given(seed=st.integers())
@settings(max_examples=25)
def test_what_a_process_takes_while_it_warms_up_is_no_leak(seed: int) -> None:
    found = trend(life(0.0, seed=seed))
    assert found is not None
    assert found.mb_per_minute < 2


@given(at_share=st.floats(0, 1), seed=st.integers())
@settings(max_examples=25)
def test_what_a_process_takes_once_is_no_leak_whenever_it_does(at_share: float, seed: int) -> None:
    step_at = at_share * LONG_SECONDS
    stepped = [(at, of_bytes + (60 * MB if at >= step_at else 0)) for at, of_bytes in life(0.0, seed=seed)]
    found = trend(stepped)
    assert found is not None
    assert found.mb_per_minute < 2


def test_a_short_life_is_not_called_flat() -> None:
    assert trend(life(50.0, seconds=WARM_UP_SECONDS + JUDGED_SECONDS_MIN - 2)) is None


def test_a_process_that_starts_again_is_counted_from_there() -> None:
    samples = Samples()
    for life_number in range(2):
        for at_seconds, held in life(0.0):
            # The second one is larger from its beginning on, and stays so.
            samples.add(at_seconds + life_number * LONG_SECONDS, BROKER, life_number, held + life_number * 200 * MB)
    verdict = samples.verdict(BROKER, 2.0)
    assert (verdict.lives, verdict.judged, verdict.is_flat) == (2, 2, True)


def test_one_life_that_grows_is_enough_for_a_verdict() -> None:
    samples = Samples()
    for life_number, leak in enumerate((0.0, 10.0, 0.0)):
        for at_seconds, held in life(leak):
            samples.add(at_seconds, BROKER, life_number, held)
    assert not samples.verdict(BROKER, 2.0).is_flat


def test_a_process_is_measured_by_what_is_its_own_and_a_dead_one_not_at_all() -> None:
    # In a process of its own: here, 64 MB may be left over from an earlier test.
    program = f"held = bytearray(b'x') * {64 * MB}; print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert 64 * MB < own_bytes(holder.pid) < 96 * MB
        holder.communicate(b"\n")
    assert own_bytes(holder.pid) == 0


# -- the verdict ---------------------------------------------------------------------------------------------------


def passed(directory: Path) -> Figures:
    """What came of a soak in which all went well."""
    figures = Figures(seed=1, seconds=600.0, watched=Watched(directory), sent=3, acknowledged=3)
    figures.struck = Counter(dict.fromkeys(Kind, 1))
    figures.verdicts = [("a sink", held("a", "b", "c"))]
    for kind in ALLOWED_MB_PER_MINUTE:
        for at_seconds, of_bytes in life(0.0):
            figures.watched.samples.add(at_seconds, kind, 1, of_bytes)
    return figures


def held(*ids: str) -> audit.Verdict:
    """What an audit says of these payments where a, b and c were sent."""
    rows = [audit.Given(pa.table({"payment": list(names)}), id="payment") for names in ("abc", ids)]
    return audit.audit(rows[0], rows[1])


def test_a_soak_in_which_all_went_well_passes(tmp_path: Path) -> None:
    assert complaints(passed(tmp_path)) == []


@pytest.mark.parametrize(
    ("ids", "said"), [(("a", "b"), "1 lost"), (("a", "b", "c", "c"), "1 doubled"), (("a", "b", "c", "x"), "1 foreign")]
)
def test_a_payment_lost_doubled_or_foreign_fails_it(tmp_path: Path, ids: tuple[str, ...], said: str) -> None:
    figures = passed(tmp_path)
    figures.verdicts.append(("another sink", held(*ids)))
    assert complaints(figures) == [f"another sink: {said}"]


def test_a_fault_that_never_struck_a_driver_that_gave_up_and_a_lost_ack_fail_it(tmp_path: Path) -> None:
    figures = passed(tmp_path)
    figures.struck[Kind.HANG] = 0
    figures.given_up.append("out of patience")
    figures.acknowledged = 2
    assert [complaint.split(":")[0] for complaint in complaints(figures)] == [
        "of 3 payments 2 were acknowledged",
        "hangs of the network",
        "the driver gave up by itself",
    ]


def test_memory_that_grows_fails_it(tmp_path: Path) -> None:
    figures = passed(tmp_path)
    for at_seconds, of_bytes in life(3 * ALLOWED_MB_PER_MINUTE[BROKER]):
        figures.watched.samples.add(at_seconds, BROKER, 2, of_bytes)
    [complaint] = complaints(figures)
    assert complaint.startswith("broker: grows by ")


def test_a_whole_soak_that_could_not_judge_memory_fails_and_a_short_one_says_so(tmp_path: Path) -> None:
    figures = passed(tmp_path)
    figures.watched.samples.points.pop((BROKER, 1))
    [complaint] = complaints(figures)
    assert complaint.startswith("broker: its memory could not be judged")
    figures.seconds = WHOLE_SECONDS
    assert complaints(figures) == []


# -- the whole of it -----------------------------------------------------------------------------------------------


def soak(place: Path, *words: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(TESTS),
        "TMPDIR": str(place),
        "SEMEL_FIGURES": str(place.parent / "figures.json"),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "soak.run", *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    place = tmp_path / "scratch"
    place.mkdir()
    return place


@needs_spark
@pytest.mark.slow
@pytest.mark.timeout(SECONDS_MAX + 30)
def test_a_short_soak_strikes_audits_and_leaves_nothing_behind(scratch: Path) -> None:
    process = soak(scratch, "--minutes", "0.05", "--seed", "2", "--per-second", "300")
    said, errors = process.communicate(timeout=SECONDS_MAX)
    print(said)
    assert (process.returncode, errors) == (0, "")
    figures = json.loads((scratch.parent / "figures.json").read_text())
    assert figures["payments"] == 900
    assert set(figures["wrong"].values()) == {0}
    assert all(figures["struck"].values()), figures["struck"]
    assert set(figures["batches"]) == {"enriching", "tables"}
    assert re.search(r"driver killed +0 +0 +too short for it", said)
    assert list(scratch.iterdir()) == []
    assert processes_about(scratch) == []


@pytest.mark.slow
@needs_spark
@pytest.mark.timeout(SECONDS_MAX + 30)
def test_whoever_interrupts_a_soak_finds_no_process_of_it(scratch: Path) -> None:
    process = soak(scratch, "--minutes", "60")
    assert process.stdout is not None
    process.stdout.readline()
    assert processes_about(scratch) != []
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, errors) == (130, "soak: interrupted\n")
    assert list(scratch.iterdir()) == []
    assert processes_about(scratch) == []
