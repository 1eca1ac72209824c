"""A log that is shorter than what was read of it, for good or for a moment: nothing of it is read twice, and a loss is
reported only if it lasts."""

import pytest
from late_leader import LateLeader
from log_under_test import LogUnderTest
from small_driver import SmallDriver, query, values

from asking import Asker
from relayed_cluster import KAFKA_2_0, RelayedCluster
from semel.client import NO_ID, Slice, Topic
from semel.spark.source.errors import DataLoss
from semel.spark.source.options import SourceOptions, read_options
from semel.spark.source.reader import read
from semel.testing.broker import FaultyBroker
from semel.wire.records import Record

RECORDS = 200
WANTED = Slice(Topic("payments", NO_ID, 1), 0, 50, RECORDS)


def filled(broker: FaultyBroker, batches: int) -> None:
    ask = Asker(broker.bootstrap)
    ask.create("payments", 1)
    for number in range(batches):
        ask.produce("payments", [Record(b"%d" % (number * 10 + place), timestamp_ms=1000) for place in range(10)])
    ask.close()


def options_of(cluster: RelayedCluster, fails: bool, looks_again: int = 3) -> SourceOptions:
    return read_options(
        {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "kafka.retry.backoff.ms": "10",
            "kafka.max.partition.fetch.bytes": "500",
            "subscribe": "payments",
            "failOnDataLoss": str(fails),
            "fetchOffset.numRetries": str(looks_again),
            "fetchOffset.retryIntervalMs": "0",
        }
    )


@pytest.mark.parametrize("looks_again", [0, 3])
@pytest.mark.parametrize("fails", [True, False])
def test_a_log_that_is_cut_below_what_was_read_gives_no_record_twice(fails: bool, looks_again: int) -> None:
    """The slice begins before the cut and was read beyond it. Its client knows no ids, as of old brokers."""
    found: list[int] = []
    with FaultyBroker() as whole, FaultyBroker() as cut:
        filled(whole, RECORDS // 10)
        filled(cut, 8)
        with RelayedCluster(whole.bootstrap, versions=KAFKA_2_0) as cluster:
            reading = read(WANTED, ["offset"], options_of(cluster, fails, looks_again))

            def go_on() -> None:
                for batch in reading:
                    found.extend(batch.column(0).to_pylist())
                    if found[-1] > 100:
                        cluster.become(cut.bootstrap)

            if not fails:
                go_on()
            else:
                with pytest.raises(DataLoss, match=r"payments-0 ends at offset 80, and 1\d\d to 200 were to be read"):
                    go_on()
    assert found == list(range(50, 50 + len(found)))
    assert 100 < found[-1] < RECORDS - 1


@pytest.mark.parametrize("looks", [1, 3])
def test_a_leader_that_does_not_know_its_end_for_a_moment_costs_no_record_and_gives_none_twice(looks: int) -> None:
    found: list[int] = []
    with FaultyBroker() as whole, FaultyBroker() as cut:
        filled(whole, RECORDS // 10)
        filled(cut, 8)
        with LateLeader(whole.bootstrap, versions=KAFKA_2_0) as cluster:
            for batch in read(WANTED, ["offset"], options_of(cluster, fails=True)):
                found.extend(batch.column(0).to_pylist())
                if found[-1] > 100 and not cluster.has_been_late:
                    # A task asks for the beginning and for the end, each time that it looks.
                    cluster.be_late(cut.bootstrap, answers=2 * looks)
    assert cluster.answers_left == 0
    assert found == list(range(50, RECORDS))


def test_a_leader_that_does_not_know_its_end_for_longer_is_a_loss() -> None:
    with FaultyBroker() as whole, FaultyBroker() as cut:
        filled(whole, RECORDS // 10)
        filled(cut, 8)
        with LateLeader(whole.bootstrap, versions=KAFKA_2_0) as cluster:
            reading = read(WANTED, ["offset"], options_of(cluster, fails=True, looks_again=2))
            # How much a batch holds depends on the time that it takes.
            while next(reading).column(0)[-1].as_py() <= 100:
                pass
            cluster.be_late(cut.bootstrap, answers=1000)
            with pytest.raises(DataLoss, match="payments-0 ends at offset 80"):
                list(reading)
    assert cluster.answers_left == 1000 - 2 * 3


@pytest.mark.parametrize(("looks", "is_loss"), [(1, False), (3, False), (4, True)])
def test_a_query_looks_again_before_it_reports_that_the_log_lost_its_end(
    broker: FaultyBroker, looks: int, is_loss: bool
) -> None:
    log = LogUnderTest(broker.bootstrap)
    topic = log.make()
    log.put(topic, *"abcde")
    with LateLeader(broker.bootstrap) as cluster:
        driver = SmallDriver({**query(log, topic), "kafka.bootstrap.servers": cluster.bootstrap})
        assert values(driver.batch()) == [*"abcde"]
        # A query asks where committed records end, and then where the log does.
        cluster.show_ends_late(3, answers=2 * looks)
        if is_loss:
            with pytest.raises(DataLoss, match=f"{topic}-0 ends at offset 3, and the query has come to 5"):
                driver.batch()
        else:
            assert driver.batch() is None
            log.put(topic, "f")
            assert values(driver.batch()) == ["f"]
        assert cluster.answers_left == 0
