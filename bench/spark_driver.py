"""A Spark driver in a process of its own, with two cores, that runs what it is handed for as long as a measure lasts: a
session takes seconds to start and some jobs to become warm, and two contenders must not share one."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from types import TracebackType
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from bench.clients import LoadFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

P = ParamSpec("P")
R = TypeVar("R")

MASTER: Final = "local[2]"
# What Java compiles while it runs takes a query or two.
WARM_TURNS: Final = 2
TURNS: Final = 2
JOB_SECONDS_MAX: Final = 600.0
END_SECONDS: Final = 30.0
FAILURE_CHARACTERS_MAX: Final = 500


class SparkDriver:
    """Use it in a `with` block."""

    def __init__(self, config: Mapping[str, str] | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, self._theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._theirs, dict(config or {})))

    def __enter__(self) -> SparkDriver:
        self._process.start()
        self._theirs.close()
        self._receive()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()
        self._process.join(END_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def run(self, job: Callable[Concatenate[SparkSession, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """What `job(session, ...)` gives in the driver; it has to be a function of a module."""
        self._connection.send((job, args, kwargs))
        result: R = self._receive()  # type: ignore[assignment]
        return result

    def _receive(self) -> object:
        if not self._connection.poll(JOB_SECONDS_MAX):
            raise LoadFailed(f"a job of Spark took more than {JOB_SECONDS_MAX:.0f} s")
        try:
            is_done, result = self._connection.recv()
        except EOFError:
            raise LoadFailed("a Spark driver died") from None
        if not is_done:
            raise LoadFailed(str(result))
        return result


def seconds_of_batches(query: StreamingQuery) -> float:
    """What the micro-batches of a query took, planning and commits included, as its progress says: a query is started
    once, and the time that this takes does not show how fast it goes."""
    progress = [json.loads(batch.json) for batch in query.recentProgress]
    took_ms: float = sum(batch["durationMs"]["triggerExecution"] for batch in progress)
    return took_ms / 1000


def _serve(connection: Connection, config: dict[str, str]) -> None:
    """Until the other end is closed, also because its process died."""
    from semel.spark import session
    from semel.spark.data_source import SemelDataSource

    spark = session("semel-bench", master=MASTER, config=config)
    try:
        spark.dataSource.register(SemelDataSource)
        connection.send((True, None))
        while True:
            job, args, kwargs = connection.recv()
            try:
                answer = (True, job(spark, *args, **kwargs))
            except Exception as failure:
                answer = (False, f"{type(failure).__name__}: {failure}"[:FAILURE_CHARACTERS_MAX])
            connection.send(answer)
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return
    finally:
        spark.stop()
