"""What a recorded step costs beside DBOS, on one PostgreSQL: `python -m bench.steps`, after `pip install dbos`.

Either side runs workflows of ten steps that do nothing, one after the other, in turns; the ratio is that of the medians
of all rounds, per step. A workflow's own beginning and end are in it.
"""

from __future__ import annotations

import logging
import statistics
import sys
import time
from collections.abc import Callable
from typing import Final

from semel.database import engine_of
from semel.steps import Run, Worker, metadata, start, workflow
from semel.testing.postgres import PostgresServer

ROUNDS: Final = 15
WORKFLOWS: Final = 10
STEPS: Final = 10


def of_semel(url: str) -> Callable[[], None]:
    engine = engine_of(url)
    metadata.create_all(engine)

    @workflow
    def ten(run: Run) -> int:
        return sum(run.call(f"step-{number}", lambda key: 1) for number in range(STEPS))

    worker = Worker(engine, [ten])

    def work() -> None:
        with engine.begin() as connection:
            for _ in range(WORKFLOWS):
                start(connection, ten)
        assert worker.drain() == WORKFLOWS

    return work


def of_dbos(url: str) -> Callable[[], None]:
    from dbos import DBOS

    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "ERROR"})

    @DBOS.step()
    def one() -> int:
        return 1

    @DBOS.workflow()
    def ten() -> int:
        return sum(one() for _ in range(STEPS))

    DBOS.launch()

    def work() -> None:
        for _ in range(WORKFLOWS):
            assert ten() == STEPS

    return work


def main() -> int:
    logging.disable()
    try:
        import dbos
    except ImportError:
        print("bench.steps compares with DBOS, which is missing: pip install dbos")
        return 1
    server = PostgresServer()
    try:
        sides = {"semel": of_semel(server.new_database()), "dbos": of_dbos(server.new_database())}
        took: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(ROUNDS + 1):
            for name, work in sides.items():
                began = time.perf_counter()
                work()
                # The first round compiles statements and opens connections.
                if number:
                    took[name].append((time.perf_counter() - began) / WORKFLOWS / STEPS * 1000)
        medians = {name: statistics.median(times) for name, times in took.items()}
        for name, median in medians.items():
            print(f"{name:<6} {median:6.2f} ms for a step, {min(took[name]):.2f} to {max(took[name]):.2f}")
        print(f"ratio  {medians['semel'] / medians['dbos']:.2f}", flush=True)
    finally:
        if "dbos" in sys.modules:
            dbos.DBOS.destroy()
        server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
