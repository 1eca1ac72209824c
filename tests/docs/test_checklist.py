"""The checklist is one program, whose lines print what stands behind them, and each step names what does it here."""

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

import semel

ROOT: Final = Path(__file__).parent.parent.parent
PAGE: Final = ROOT / "docs/explanation/the-checklist.md"
ADDRESS: Final = "127.0.0.1:9092"
STEPS: Final = (
    "Classify",
    "Decide which problem",
    "Require the key",
    "Scope",
    "Claim atomically",
    "Fingerprint",
    "Concurrent retries",
    "Persist the response",
    "Derived keys",
    "Expiry",
    "Inbox in the effect's transaction",
    "Identity",
    "Offsets after effects",
    "Know the perimeter",
    "Reconcile and count",
)

_, *SECTIONS = re.split(r"^## (?=\d)", PAGE.read_text(), flags=re.MULTILINE)
NAMED: Final = re.findall(r"\[`(semel\.[\w.]+)`\]\(([^)]+)\)", PAGE.read_text())


def blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_there_are_the_fifteen_steps_in_their_order() -> None:
    assert [section.splitlines()[0] for section in SECTIONS] == [
        f"{number}. {step}" for number, step in enumerate(STEPS, start=1)
    ]


@pytest.mark.parametrize("section", SECTIONS, ids=STEPS)
def test_a_step_says_what_goes_wrong_what_to_do_and_where_it_is_done(section: str) -> None:
    assert "\n**Without it** " in section
    assert "\n**Do** " in section
    assert len(blocks(section)) == 1
    assert "\nIn the source: [`semel." in section


def named_object(name: str) -> Any:
    """What a dotted name stands for: a module, and in it names within names."""
    parts = name.split(".")
    value: Any = semel
    for number, part in enumerate(parts[1:], start=2):
        try:
            value = importlib.import_module(".".join(parts[:number]))
        except ModuleNotFoundError:
            value = getattr(value, part)
    return value


@pytest.mark.parametrize(("name", "link"), NAMED, ids=[name for name, _ in NAMED])
def test_a_name_is_in_the_file_that_it_leads_to(name: str, link: str) -> None:
    value = named_object(name)
    if isinstance(value, property):
        value = value.fget
    assert Path(inspect.getfile(value)).resolve() == (PAGE.parent / link).resolve()


def test_the_program_prints_what_it_says(tmp_path: Path) -> None:
    program = "\n".join(blocks(PAGE.read_text()))
    promised = re.findall(r"^ *print\(.*\)(?:  |\n)# (.*)$", program, re.MULTILINE)
    assert len(promised) == len(re.findall(r"^ *print\(", program, re.MULTILINE))
    with semel.broker() as broker:
        result = subprocess.run(
            [sys.executable, "-c", program.replace(ADDRESS, broker.bootstrap)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
    # On standard error librdkafka may say that it tries again, on a machine that is busy.
    assert (result.stdout.splitlines(), result.returncode) == (promised, 0), result.stderr
