"""The sink into the log with places to break it: a data source `semel_faulty` that obeys files in a directory.

Everything in it is the real sink's; a fault only happens before, between or after what that does. A fault is a file, it
strikes once, and by that the file is gone. Workers import nothing of the tests, so this module goes to them by value.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.datasource import WriterCommitMessage

from semel.spark.data_source import SemelDataSource
from semel.spark.lanes import options as sink_options
from semel.spark.lanes.stream_writer import LaneStreamWriter
from semel.spark.lanes.writer import LaneMessage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

OPTION = "faults"
DIE_IN_TASK = "die in the middle of a task"
WAIT_IN_TASK = "wait in the middle of a task"
DIE_AFTER_COMMIT = "die after the commit of a lane"
HANG_IN_COMMIT = "hang when all tasks have committed"
FAIL_IN_COMMIT = "fail when all tasks have committed"
# Whoever waits makes both: a file that says so, and a pipe from which it reads until somebody has written.
REACHED = "reached"
GO_ON = "go on"


def register(spark: SparkSession) -> None:
    """Lets the session know `semel_faulty`."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark.dataSource.register(FaultySource)


class Faults:
    """The directory, from the side of who breaks and of who is broken."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def set(self, fault: str) -> None:
        self.directory.mkdir(exist_ok=True)
        (self.directory / fault).touch()

    def has_struck(self, fault: str) -> bool:
        return not (self.directory / fault).exists()

    def strikes(self, fault: str) -> bool:
        try:
            (self.directory / fault).unlink()
        except FileNotFoundError:
            return False
        return True

    def wait(self) -> None:
        """Say that a place was reached, and wait there until somebody lets it go on."""
        os.mkfifo(self.directory / GO_ON)
        self.set(REACHED)
        (self.directory / GO_ON).read_bytes()

    def go_on(self) -> None:
        """Let go on what waits."""
        (self.directory / GO_ON).write_bytes(b"")


class FaultySource(SemelDataSource):
    @classmethod
    def name(cls) -> str:
        return "semel_faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> LaneStreamWriter:
        options = {name: value for name, value in self.options.items() if name.lower() != OPTION}
        faults = Faults(Path(self.options[OPTION]))
        return FaultyWriter(sink_options.read_options(options), schema, overwrite, faults)


class FaultyWriter(LaneStreamWriter):
    def __init__(self, options: sink_options.SinkOptions, schema: StructType, overwrite: bool, faults: Faults) -> None:
        super().__init__(options, schema, overwrite)
        self._faults = faults

    def write(self, iterator: Iterator[Any]) -> LaneMessage:
        message = super().write(self._disturbed(iterator))
        if self._faults.strikes(DIE_AFTER_COMMIT):
            os._exit(9)
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if self._faults.strikes(HANG_IN_COMMIT):
            self._faults.wait()
        if self._faults.strikes(FAIL_IN_COMMIT):
            raise RuntimeError("the driver could not say that it is done")
        super().commit(messages, batchId)

    def _disturbed(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            if half and self._faults.strikes(DIE_IN_TASK):
                os._exit(9)
            if half and self._faults.strikes(WAIT_IN_TASK):
                self._faults.wait()
            yield batch.slice(half)
