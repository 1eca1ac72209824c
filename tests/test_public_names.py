"""Holds what a program gets from `import semel`: the same names, whatever it imports before and after."""

import subprocess
import sys

import pytest


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


@pytest.mark.parametrize(
    "before",
    [
        "pass",
        "semel.Broker",
        "semel.EmbeddedBroker",
        "semel.broker",
        "import semel.broker.broker",
        "from semel import broker",
        "semel.broker()",
    ],
)
def test_the_broker_is_callable_and_a_room_whatever_was_imported_before(before: str) -> None:
    ran = run(
        f"import semel\n{before}\n"
        "with semel.broker() as running: assert running.bootstrap\n"
        "import semel.broker.limits as limits\n"
        "from semel.broker import limits as the_same\n"
        "assert limits is the_same\n"
    )
    assert ran.returncode == 0, ran.stderr


def test_importing_semel_starts_nothing_and_loads_no_broker() -> None:
    ran = run("import sys, semel; sys.exit('semel.broker' in sys.modules or 'asyncio' in sys.modules)")
    assert ran.returncode == 0


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    ran = run("import semel\ntry: semel.once\nexcept AttributeError: pass")
    assert ran.returncode == 0, ran.stderr
