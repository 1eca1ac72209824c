"""The sink into the log through each failure, with real streaming queries: every row once, or the loud refusal."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import faulty_sink
import pyarrow as pa
import pytest
from driver_process import DriverProcess
from lane_pipeline import SECONDS_MAX, Pipeline
from pyspark.errors import StreamingQueryException

from eventually import eventually
from semel.client import LogClient, from_options
from semel.spark import lanes
from semel.spark.lanes.lane import LaneFailed, LaneOutcome, LaneWriter
from semel.spark.lanes.protocol import LaneClaim

if TYPE_CHECKING:
    from log_under_test import LogUnderTest
    from pyspark.sql import DataFrame, SparkSession

    from semel.testing.broker import FaultyBroker

KILLED_DRIVER = """
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
import faulty_sink
from driver_process import driver_session
from lane_pipeline import LaneQuery, Names

spark = driver_session()
faulty_sink.register(spark)
LaneQuery(spark, Names(*sys.argv[3:]), Path(sys.argv[2])).run()
"""
MASTER = "spark.master"
REFUSES_SETTINGS_OF_THE_START = "spark.sql.legacy.setCommandRejectsSparkCoreConfs"


@pytest.fixture
def pipeline(spark: SparkSession, log: LogUnderTest, tmp_path: Path) -> Pipeline:
    faulty_sink.register(spark)
    return Pipeline(spark, log, tmp_path)


def test_a_task_that_dies_halfway_leaves_nothing_and_its_batch_is_written_once(pipeline: Pipeline) -> None:
    pipeline.feed(200)
    pipeline.faults.set(faulty_sink.DIE_IN_TASK)
    with pytest.raises(StreamingQueryException):
        pipeline.run()
    assert pipeline.faults.has_struck(faulty_sink.DIE_IN_TASK)
    pipeline.run()
    assert pipeline.verdict() == pipeline.once()


def test_a_task_that_dies_after_its_commit_is_found_to_have_written(pipeline: Pipeline) -> None:
    """For Spark it is the same as a commit whose answer was lost."""
    pipeline.feed(200)
    pipeline.faults.set(faulty_sink.DIE_AFTER_COMMIT)
    with pytest.raises(StreamingQueryException):
        pipeline.run()
    assert pipeline.faults.has_struck(faulty_sink.DIE_AFTER_COMMIT)
    pipeline.run()
    assert pipeline.verdict() == pipeline.once()


@pytest.mark.slow
def test_a_driver_killed_between_the_commits_of_tasks_and_batch_writes_once(pipeline: Pipeline, tmp_path: Path) -> None:
    """What it leaves in the log and in the checkpoint is what the next test looks at, in a driver of its own."""
    pipeline.feed(200)
    pipeline.faults.set(faulty_sink.HANG_IN_COMMIT)
    with DriverProcess(KILLED_DRIVER, Path(__file__).parent, tmp_path, *pipeline.names) as driver:
        driver.wait_for_file(pipeline.faults.directory / faulty_sink.REACHED)
        driver.kill()
    assert len(pipeline.stored()) == 200
    pipeline.feed(50)
    pipeline.run()
    assert pipeline.verdict() == pipeline.once()


def test_a_driver_that_fails_after_all_tasks_undoes_nothing(pipeline: Pipeline) -> None:
    """Spark calls `abort` then, though all lanes have committed."""
    pipeline.feed(200)
    pipeline.faults.set(faulty_sink.FAIL_IN_COMMIT)
    with pytest.raises(StreamingQueryException):
        pipeline.run()
    assert len(pipeline.stored()) == 200
    pipeline.feed(50)
    pipeline.run()
    assert pipeline.verdict() == pipeline.once()


def test_a_batch_whose_commit_spark_lost_is_not_written_again(pipeline: Pipeline) -> None:
    for _ in range(2):
        pipeline.feed(100)
        pipeline.run()
    pipeline.forget_last_commit()
    pipeline.feed(100)
    pipeline.run()
    assert pipeline.verdict() == pipeline.once()


def test_a_zombie_that_goes_on_after_its_batch_was_replayed_is_fenced(pipeline: Pipeline) -> None:
    def run() -> None:
        # In one lane, of which nothing is there when its task dies.
        pipeline.run(lanes(pipeline.rows(), 1))

    pipeline.feed(200)
    pipeline.faults.set(faulty_sink.DIE_IN_TASK)
    with pytest.raises(StreamingQueryException):
        run()
    zombie = Zombie(pipeline, lane_count=1)
    zombie.write_half()
    run()
    assert isinstance(zombie.finish(), LaneFailed)
    assert "taken over" in str(zombie.ending)
    assert pipeline.verdict() == pipeline.once()


@pytest.mark.slow
def test_a_zombie_that_begins_after_its_batch_was_replayed_writes_nothing(pipeline: Pipeline) -> None:
    pipeline.feed(200)
    pipeline.run()
    expected = pipeline.stored()
    zombie = Zombie(pipeline, lane_count=2)
    zombie.write_half()
    # It has not the rows of the lane, so it is refused and not even a duplicate.
    assert "has written batch 0" in str(zombie.finish())
    assert pipeline.stored() == expected


def test_a_broker_killed_in_the_middle_of_a_batch_has_its_rows_once(pipeline: Pipeline, faulty: FaultyBroker) -> None:
    pipeline.feed(2_000)
    pipeline.faults.set(faulty_sink.WAIT_IN_TASK)

    def kill_and_restart() -> None:
        assert eventually((pipeline.faults.directory / faulty_sink.REACHED).exists)
        faulty.kill()
        faulty.start()
        pipeline.faults.go_on()

    killer = threading.Thread(target=kill_and_restart)
    killer.start()
    try:
        pipeline.run()
    except StreamingQueryException:
        pipeline.run()
    killer.join()
    assert pipeline.verdict() == pipeline.once()


def test_lost_answers_of_the_broker_double_nothing(pipeline: Pipeline, faulty: FaultyBroker) -> None:
    pipeline.feed(2_000)
    faulty.drop_acks(2)
    pipeline.run()
    assert pipeline.verdict() == pipeline.once()


@pytest.mark.slow
def test_a_replay_under_other_shuffle_partitions_finds_its_lanes(pipeline: Pipeline) -> None:
    pipeline.feed(200)
    pipeline.faults.set(faulty_sink.DIE_AFTER_COMMIT)
    with pytest.raises(StreamingQueryException):
        pipeline.run()
    before = pipeline.spark.conf.get("spark.sql.shuffle.partitions")
    pipeline.spark.conf.set("spark.sql.shuffle.partitions", "5")
    try:
        pipeline.run()
    finally:
        pipeline.spark.conf.set("spark.sql.shuffle.partitions", before)
    assert pipeline.verdict() == pipeline.once()


@pytest.mark.slow
def test_another_number_of_lanes_is_refused_before_a_row_is_written(pipeline: Pipeline) -> None:
    pipeline.feed(200)
    pipeline.faults.set(faulty_sink.DIE_AFTER_COMMIT)
    with pytest.raises(StreamingQueryException):
        pipeline.run()
    assert "the sink has 2 lanes" in pipeline.refusal(lambda: pipeline.run(lanes(pipeline.rows(), 3)))
    # The driver refuses when it plans. A task of the run before may still have committed its lane meanwhile.
    assert pipeline.verdict().doubled == 0
    pipeline.run()
    assert pipeline.verdict() == pipeline.once()


@pytest.mark.slow
def test_partitions_as_lanes_are_compared_with_what_they_have_written(pipeline: Pipeline) -> None:
    """A replay in other partitions finds out, at the latest when the driver closes the batch."""
    pipeline.feed(200)
    pipeline.run(pipeline.rows().coalesce(1), lanes=4)
    assert pipeline.verdict() == pipeline.once()
    pipeline.forget_last_commit()
    assert "has written batch 0 as" in pipeline.refusal(lambda: pipeline.run(pipeline.rows(), lanes=4))
    pipeline.run(pipeline.rows().coalesce(1), lanes=4)
    assert pipeline.verdict() == pipeline.once()


@pytest.mark.slow
def test_a_lost_checkpoint_is_refused_and_a_new_sink_goes_on(pipeline: Pipeline) -> None:
    pipeline.feed(200)
    pipeline.run()
    pipeline.lose_checkpoint()
    pipeline.feed(100)
    refusal = pipeline.refusal()
    print(refusal)
    assert "the checkpoint was lost" in refusal
    assert len(pipeline.stored(committed_only=False)) == 200
    pipeline.lose_checkpoint()
    pipeline.run(_beginning_at(pipeline, 200), sinkId=f"{pipeline.names.sink}-another")
    assert pipeline.verdict() == pipeline.once()


@pytest.mark.slow
def test_a_restored_old_checkpoint_is_refused(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.feed(100)
    pipeline.run()
    shutil.copytree(pipeline.checkpoint, tmp_path / "old")
    for _ in range(2):
        pipeline.feed(100)
        pipeline.run()
    shutil.copytree(pipeline.checkpoint, tmp_path / "new")
    pipeline.lose_checkpoint()
    shutil.copytree(tmp_path / "old", pipeline.checkpoint)
    refusal = pipeline.refusal()
    print(refusal)
    assert "an old checkpoint was restored" in refusal
    assert len(pipeline.stored(committed_only=False)) == 300
    pipeline.lose_checkpoint()
    shutil.copytree(tmp_path / "new", pipeline.checkpoint)
    pipeline.feed(100)
    pipeline.run()
    assert pipeline.verdict() == pipeline.once()


@pytest.mark.slow
def test_a_query_goes_on_under_a_new_sink_only_if_told_with_which_batch(pipeline: Pipeline) -> None:
    pipeline.feed(100)
    pipeline.run()
    pipeline.feed(100)
    wider = f"{pipeline.names.sink}-wider"
    refusal = pipeline.refusal(lambda: pipeline.run(lanes(pipeline.rows(), 3), sinkId=wider))
    assert "set option acceptAfter=nothing-1" in refusal
    pipeline.run(lanes(pipeline.rows(), 3), sinkId=wider, acceptAfter="nothing-1")
    assert pipeline.verdict() == pipeline.once()


def test_speculation_is_refused(pipeline: Pipeline, spark: SparkSession) -> None:
    def master_told(batches: object) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        yield pa.RecordBatch.from_pydict({"master": [None if context is None else context.getLocalProperty(MASTER)]})

    # What a session is started with reaches its tasks, so that this one need not be started for its speculation.
    [row] = spark.range(1, numPartitions=1).mapInArrow(master_told, "master string").collect()  # type: ignore[arg-type]
    assert row.master == spark.sparkContext.master
    pipeline.feed(10)
    spark.conf.set(REFUSES_SETTINGS_OF_THE_START, "false")
    spark.conf.set("spark.speculation", "true")
    try:
        assert "spark.speculation=true" in pipeline.refusal()
    finally:
        spark.conf.unset("spark.speculation")
        spark.conf.unset(REFUSES_SETTINGS_OF_THE_START)
    assert pipeline.stored(committed_only=False) == []


class Zombie:
    """An attempt at lane 0 of batch 0 that goes on when its task has long been given up."""

    def __init__(self, pipeline: Pipeline, lane_count: int) -> None:
        names = pipeline.names
        client = from_options({"kafka.bootstrap.servers": names.bootstrap})
        with LogClient(client) as log:
            topic = log.topics([progress_name := f"semel-progress-{names.sink}"])[progress_name]
        self._writer = LaneWriter(client, topic, names.output, 60_000)
        self._claim = LaneClaim(names.sink, 0, lane_count, pipeline.query_id, 0)
        self._is_half_done = threading.Event()
        self._may_go_on = threading.Event()
        self.ending: LaneOutcome | Exception | None = None
        self._thread = threading.Thread(target=self._write)

    def write_half(self) -> None:
        self._thread.start()
        assert self._is_half_done.wait(SECONDS_MAX)

    def finish(self) -> LaneOutcome | Exception | None:
        self._may_go_on.set()
        self._thread.join()
        return self.ending

    def _write(self) -> None:
        try:
            self.ending = self._writer.write(self._claim, self._batches())
        except Exception as error:
            self.ending = error

    def _batches(self) -> Iterator[Any]:
        yield pa.record_batch({"value": pa.array([b"0", b"1"], pa.binary())})
        self._is_half_done.set()
        assert self._may_go_on.wait(SECONDS_MAX)
        yield pa.record_batch({"value": pa.array([b"2"], pa.binary())})


def _beginning_at(pipeline: Pipeline, number: int) -> DataFrame:
    """The rows from a number on: half of them in each partition, so that it is an offset as well."""
    offsets = {pipeline.names.input: {"0": number // 2, "1": number // 2}}
    return lanes(pipeline.rows(json.dumps(offsets)), 2)
