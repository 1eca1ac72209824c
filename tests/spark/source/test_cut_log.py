"""A log that is cut below what a slice was read to, as by a leader that lost its disk: nothing of it is read twice."""

import pytest

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


def options_of(cluster: RelayedCluster, fails: bool) -> SourceOptions:
    return read_options(
        {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "kafka.retry.backoff.ms": "10",
            "kafka.max.partition.fetch.bytes": "500",
            "subscribe": "payments",
            "failOnDataLoss": str(fails),
            "fetchOffset.numRetries": "0",
        }
    )


@pytest.mark.parametrize("fails", [True, False])
def test_a_log_that_is_cut_below_what_was_read_gives_no_record_twice(fails: bool) -> None:
    """The slice begins before the cut and was read beyond it. Its client knows no ids, as of old brokers."""
    found: list[int] = []
    with FaultyBroker() as whole, FaultyBroker() as cut:
        filled(whole, RECORDS // 10)
        filled(cut, 8)
        with RelayedCluster(whole.bootstrap, versions=KAFKA_2_0) as cluster:
            reading = read(WANTED, ["offset"], options_of(cluster, fails))

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
