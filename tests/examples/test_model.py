"""The model in sixty lines answers what the log answers, whatever is sent to it."""

import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from semel.ui.cli.lab import Lab
from semel_command import semel_lines

ROOT: Final = Path(__file__).parent.parent.parent
MODEL: Final = ROOT / "examples/model/idempotence.py"

PRODUCERS: Final = st.sampled_from(["p", "q"])
# Small numbers, so that retries, gaps and what fell out of the window all come about.
COMMANDS: Final = st.one_of(
    st.builds("PRODUCE {} {} a {}".format, PRODUCERS, st.integers(0, 9), st.sampled_from(["lab", "orders:1"])),
    st.builds("FENCE {}".format, PRODUCERS),
    st.builds("INIT {}".format, PRODUCERS),
    st.sampled_from(["LOG_SIZE", "RESTART"]),
)
# In order for the most part, or hardly anything would be accepted.
RUNS: Final = st.integers(1, 9).map(lambda count: [f"PRODUCE p {number} a lab" for number in range(count)])


@given(RUNS, st.lists(COMMANDS, max_size=20))
def test_the_model_and_the_log_give_the_same_verdicts(run: list[str], commands: list[str]) -> None:
    model = runpy.run_path(str(MODEL))["Model"]()
    with tempfile.TemporaryDirectory() as directory:
        lab = Lab(directory)
        try:
            for line in ["INIT p", "INIT q", *run, *commands, "LOG_SIZE"]:
                answer = lab.answer(line)
                assert answer is not None
                assert model.answer(line) == answer.as_verdict(), line
        finally:
            lab.close()


def test_the_model_is_sixty_lines_and_answers_the_example_as_the_lab_does() -> None:
    assert len(MODEL.read_text().splitlines()) <= 60
    example = ROOT / "docs/examples/lab.txt"
    ran = subprocess.run([sys.executable, MODEL, example], capture_output=True, text=True, timeout=60)
    assert (ran.stdout.splitlines(), ran.stderr) == (semel_lines("lab", "--plain", str(example)), "")
