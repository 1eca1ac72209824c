"""Holds what a program gets from `import semel`: the same names, whatever it imports before and after."""

import subprocess
import sys

import pytest


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)


# Every path of `docs/reference/python.md`, and the others that pages name: they stay, wherever the code lies.
PATHS = [
    *(
        "semel.settings",
        "semel.publish",
        "semel.outbox",
        "semel.inbox",
        "semel.offsets",
        "semel.http",
        "semel.http.client",
    ),
    *("semel.http.django", "semel.http.django.middleware", "semel.django.inbox", "semel.django.outbox"),
    *(
        "semel.steps",
        "semel.retries",
        "semel.metrics",
        "semel.watch",
        "semel.schema",
        "semel.database",
        "semel.spark",
        "semel.audit",
    ),
    *("semel.testing.broker", "semel.testing.security", "semel.testing.certificates", "semel.testing.served"),
    *("semel.testing.clock", "semel.testing.stores", "semel.testing.virtual_loop", "semel.testing.checkers"),
    *("semel.testing.faulty", "semel.testing.plugin", "semel.chaos.proxy", "semel.chaos.plan", "semel.chaos.plan_file"),
    "pyspark_semel",
]


def test_each_public_path_is_there() -> None:
    ran = run("\n".join(f"import {path}" for path in PATHS) + "\nimport semel.spark; semel.spark.sql_sink")
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    "before", ["pass", "semel.Broker", "semel.EmbeddedBroker", "semel.broker", "from semel import broker"]
)
def test_the_broker_is_one_function_whatever_was_imported_before(before: str) -> None:
    ran = run(
        f"import semel\n{before}\n"
        "with semel.broker() as running: assert running.bootstrap\n"
        "from semel import broker\n"
        "assert broker is semel.broker\n"
    )
    assert ran.returncode == 0, ran.stderr


def test_importing_semel_starts_nothing_and_loads_no_broker() -> None:
    ran = run("import sys, semel; sys.exit('semel.log' in sys.modules or 'asyncio' in sys.modules)")
    assert ran.returncode == 0


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    ran = run("import semel\ntry: semel.once\nexcept AttributeError: pass")
    assert ran.returncode == 0, ran.stderr
