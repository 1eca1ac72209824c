"""A slice whose last records compaction took: it has been read when all up to its end is decided, and not before."""

from __future__ import annotations

import pytest

from asking import Asker
from relayed_cluster import RelayedCluster, Upstream
from semel.client import Isolation, LogClient, LogError, Slice, from_options
from semel.testing.broker import FaultyBroker
from semel.wire import fetch
from semel.wire.frames import RequestHeader
from semel.wire.versions import FETCH

END = 5


class Emptied(RelayedCluster):
    """Has no records any more, and says of each fetch in turn up to where all is decided; the last of it stays so."""

    stable_ends: tuple[int, ...] = (END,)

    def answer(self, number: int, header: RequestHeader, frame: bytes, ask_upstream: Upstream) -> bytes:
        if header.api_key != FETCH:
            return super().answer(number, header, frame, ask_upstream)
        stable_end, *later = self.stable_ends
        self.stable_ends = (*later,) or self.stable_ends
        (topic,) = fetch.decode_request(frame[header.body :], header.api_version).topics
        given = fetch.FetchPartitionAnswer(0, 0, 2 * END, stable_end, 0, [])
        self.asked[FETCH, -1] += 1
        topics = [(topic.name, topic.topic_id, [given])]
        return b"".join(fetch.encode_response(header.api_version, header.correlation_id, 0, 0, topics))


def fetched(broker: FaultyBroker, ask: Asker, cluster: Emptied, isolation: Isolation, *, may_lack: bool) -> int:
    """How many fetches it took to hear that there is nothing."""
    ask.create("markers")
    options = {"kafka.default.api.timeout.ms": "200", "kafka.retry.backoff.ms": "1"}
    with LogClient(from_options({"kafka.bootstrap.servers": cluster.bootstrap, **options})) as client:
        wanted = Slice(client.topics(["markers"])["markers"], 0, 0, END)
        assert list(client.fetches(wanted, isolation, may_lack_its_end=may_lack)) == []
    return cluster.asked[FETCH, -1]


def test_a_slice_that_is_decided_to_its_end_and_has_no_records_is_read(broker: FaultyBroker, ask: Asker) -> None:
    with Emptied(broker.bootstrap) as cluster:
        assert fetched(broker, ask, cluster, Isolation.READ_COMMITTED, may_lack=True) == 1


def test_a_broker_that_is_behind_is_asked_again_until_all_is_decided(broker: FaultyBroker, ask: Asker) -> None:
    """It may have been cut off from the true leader: what lies between its end and that of the slice is unseen."""
    with Emptied(broker.bootstrap) as cluster:
        cluster.stable_ends = (0, END - 1, END)
        assert fetched(broker, ask, cluster, Isolation.READ_COMMITTED, may_lack=True) == 3


@pytest.mark.parametrize(
    ("isolation", "may_lack"), [(Isolation.READ_UNCOMMITTED, True), (Isolation.READ_COMMITTED, False)]
)
def test_records_that_must_be_there_are_never_taken_for_compacted(
    broker: FaultyBroker, ask: Asker, isolation: Isolation, may_lack: bool
) -> None:
    with Emptied(broker.bootstrap) as cluster, pytest.raises(LogError, match="gives no records from offset 0 on"):
        fetched(broker, ask, cluster, isolation, may_lack=may_lack)
