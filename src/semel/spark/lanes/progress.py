"""The progress topic: where a sink keeps the markers of its lanes, one partition for each lane.

Only the lane's writer writes to its partition, so the open transaction of another lane never hides a marker. The number
of partitions fixes the number of lanes before the first row is written: a topic is made as a whole or not at all, so
two drivers cannot make it with different numbers. A marker must never be trusted before the fence.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import Final

from semel.client import (
    EARLIEST,
    LATEST,
    Isolation,
    LogClient,
    LogError,
    Slice,
    Topic,
    TopicPartition,
    admin,
    transactional_ids,
)
from semel.client.arrow import read_slice
from semel.client.errors import AuthenticationFailed, RefusedByBroker
from semel.client.one_fetch import fetched
from semel.client.patience import Concluding, Moved, Patience
from semel.client.settings import ClientSettings
from semel.client.topics import partitions_of
from semel.spark.lanes.protocol import Digest, Marker, Order, Written
from semel.wire.errors import ErrorCode

_POLICY: Final = "cleanup.policy"
# Small segments, compacted early, because only the last record is needed.
TOPIC_CONFIGS: Final = {
    _POLICY: "compact",
    "segment.ms": "600000",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.1",
}
# How many offsets before the end are searched for a marker first: only aborted transactions may come after it.
TAIL_OFFSETS: Final = 64
_FORMAT: Final = 3


class ProgressRefused(LogError):
    """The progress topic does not fit this sink."""


def prepare(settings: ClientSettings, name: str, lanes: int, *, may_grow: bool, address_is_new: bool = False) -> Topic:
    """The progress topic with a partition for each lane; makes it if it is missing.

    Where batches follow each other, the number of lanes must not change: a batch that is half written would have other
    rows in its lanes. With `may_grow`, for single writes, a write may have more lanes than those before, or fewer.
    """
    with LogClient(settings, address_is_new=address_is_new) as client:
        topic = client.topics([name]).get(name)
        if topic is None:
            _make(client, name, lanes)
            topic = _await(client, name, 1)
        elif may_grow and topic.partitions < lanes:
            _grow(client, name, lanes)
            topic = _await(client, name, lanes)
        _check_kept(client, name)
        _check_readable(client, topic)
    if topic.partitions != lanes and not (may_grow and topic.partitions > lanes):
        raise ProgressRefused(
            f"the sink has {topic.partitions} lanes (partitions of {name!r}), and now {lanes}: rows would change their "
            f"lane, and those of a batch that is half written would be lost or doubled. Go back to {topic.partitions}, "
            "or end the query when its last batch is committed and go on under a new sinkId with option acceptAfter"
        )
    return topic


def peek_marker(client: LogClient, topic: Topic, lane: int, sink_id: str) -> Marker | None:
    """The lane's last committed marker, for a reader that has not fenced the lane: a transaction that a dead writer
    left open stays open until its successor comes, and waiting here would hold up that successor."""
    where = TopicPartition(topic.name, lane)
    return _last_marker(client, topic, lane, sink_id, client.offsets([where], LATEST, Isolation.READ_COMMITTED)[where])


def await_commit(client: LogClient, topic: Topic, lane: int, transactional_id: str) -> None:
    """Returns when the lane's partition shows the transaction that was committed under this id: Apache Kafka first
    tells the writer that it is committed, and then writes that to the partitions. An open transaction is not waited
    for."""
    where = TopicPartition(topic.name, lane)
    end = client.offsets([where], LATEST, Isolation.READ_UNCOMMITTED)[where]
    patience = Patience(client.settings)
    while client.offsets([where], LATEST, Isolation.READ_COMMITTED)[where] < end:
        if not client.patiently(partial(transactional_ids.is_committing, client.cluster, transactional_id)):
            break
        patience.wait(Concluding(f"the transaction of {transactional_id!r} is being committed"))
    patience.end()


def read_marker(client: LogClient, topic: Topic, lane: int, sink_id: str) -> Marker | None:
    """The lane's last marker. The caller has claimed the lane's id, so that id has no open transaction."""
    return _last_marker(client, topic, lane, sink_id, _stable_end(client, TopicPartition(topic.name, lane)))


def marker_below(client: LogClient, topic: Topic, lane: int, sink_id: str, offset: int) -> Marker | None:
    """The lane's last marker below `offset`, the offset of a record that this writer has written and the leader has
    acknowledged. A former leader does not have this offset, so reading up to it waits for the true leader."""
    return _last_marker(client, topic, lane, sink_id, offset)


def _last_marker(client: LogClient, topic: Topic, lane: int, sink_id: str, end: int) -> Marker | None:
    where = TopicPartition(topic.name, lane)
    start = client.offsets([where], EARLIEST, Isolation.READ_COMMITTED)[where]
    length = TAIL_OFFSETS
    while True:
        begin = max(start, end - length)
        value = _last_value(client, Slice(topic, lane, begin, end)) if begin < end else None
        if value is not None:
            return _checked(decode(value), lane, sink_id, topic.name)
        if begin == start:
            return None
        length *= 16


def _check_kept(client: LogClient, name: str) -> None:
    """Refuses a topic that deletes markers after some time: a sink that was idle for longer would take its last batch
    for new. Also refuses if the user may not read the topic's configuration.
    """
    try:
        policy = client.config_of(name, _POLICY)
    except AuthenticationFailed as error:
        raise ProgressRefused(
            f"progress topic {name!r} may forget markers, and this user cannot see whether it does: {error}"
        ) from None
    if policy != TOPIC_CONFIGS[_POLICY]:
        raise ProgressRefused(
            f"progress topic {name!r} has {_POLICY}={policy} and would lose the markers of lanes that are idle: set it "
            f"to {TOPIC_CONFIGS[_POLICY]}"
        )


def _check_readable(client: LogClient, topic: Topic) -> None:
    """Refuses a user who may not read markers. Without it, the first batch would be written, because there is none to
    read, and the second one would fail."""
    where = TopicPartition(topic.name, 0)

    def attempt() -> None:
        answer = fetched(client.cluster, topic, where, 0, Isolation.READ_COMMITTED, bytes_max=1)
        if answer.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            client.cluster.check(where, answer.error_code, "Read")

    try:
        client.patiently(attempt)
    except AuthenticationFailed as error:
        raise ProgressRefused(f"the markers in progress topic {topic.name!r} cannot be read: {error}") from None


def encode(marker: Marker) -> bytes:
    """The value of a marker's record."""
    return json.dumps(
        {
            "format": _FORMAT,
            "sinkId": marker.sink_id,
            "lane": marker.lane,
            "laneCount": marker.lane_count,
            "order": marker.order.value,
            "topicId": marker.topic_id,
            "written": [
                {"queryId": one.query_id, "batchId": one.batch_id, "rows": one.digest.rows, "sum": one.digest.sum}
                for one in marker.written
            ],
        },
        separators=(",", ":"),
    ).encode()


def decode(value: bytes) -> Marker:
    """A marker from its record. Raises for anything else, because an unknown state is no reason to write."""
    try:
        marker = json.loads(value)
        if marker["format"] != _FORMAT:
            raise ProgressRefused(f"a marker has format {marker['format']}, and this version of semel knows {_FORMAT}")
        return Marker(
            marker["sinkId"],
            marker["lane"],
            marker["laneCount"],
            Order(marker["order"]),
            tuple(Written(w["queryId"], w["batchId"], Digest(w["rows"], w["sum"])) for w in marker["written"]),
            marker["topicId"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ProgressRefused(f"a record in the progress topic is no marker: {error!r}") from None


def key_of(sink_id: str, lane: int) -> bytes:
    """The key of a lane's markers, of which compaction keeps the last one."""
    return f"{sink_id}/{lane}".encode()


def _stable_end(client: LogClient, where: TopicPartition) -> int:
    """The end of the partition, after all transactions before it have ended. Normally they have."""
    end = client.offsets([where], LATEST, Isolation.READ_UNCOMMITTED)[where]
    patience = Patience(client.settings)
    while client.offsets([where], LATEST, Isolation.READ_COMMITTED)[where] < end:
        patience.wait(Moved(f"a transaction that is not this lane's is open in {where}"))
    patience.end()
    return end


def _last_value(client: LogClient, tail: Slice) -> bytes | None:
    value: bytes | None = None
    # Compaction may have removed the aborted records at the end of the slice.
    for batch in read_slice(client, tail, ["value"], Isolation.READ_COMMITTED, may_lack_its_end=True):
        if batch.num_rows:
            value = batch.column(0)[-1].as_py()
    return value


def _checked(marker: Marker, lane: int, sink_id: str, topic: str) -> Marker:
    if (marker.sink_id, marker.lane) != (sink_id, lane):
        raise ProgressRefused(
            f"partition {lane} of {topic!r} has a marker of lane {marker.lane} of sink {marker.sink_id!r}: each sink "
            "needs a progress topic of its own"
        )
    return marker


def _make(client: LogClient, name: str, lanes: int) -> None:
    what = f"progress topic {name!r} cannot be made"
    create = partial(admin.create_topic, client.cluster, name, lanes, TOPIC_CONFIGS)
    _unless_done(client, create, ErrorCode.TOPIC_ALREADY_EXISTS, what)


def _grow(client: LogClient, name: str, lanes: int) -> None:
    grow = partial(admin.grow_topic, client.cluster, name, lanes)
    _unless_done(client, grow, ErrorCode.INVALID_PARTITIONS, "lanes cannot be added to the progress topic")


def _unless_done(client: LogClient, change: Callable[[], object], done: ErrorCode, what: str) -> None:
    """Makes a change, with retries. The code `done` is no error: it says that this driver or another one has made the
    change already."""
    try:
        client.patiently(change)
    except AuthenticationFailed as error:
        raise ProgressRefused(f"{what}: {error}") from None
    except RefusedByBroker as error:
        if error.code != done:
            raise ProgressRefused(f"{what}: {error}") from None


def _await(client: LogClient, name: str, lanes: int) -> Topic:
    """The topic, after the brokers know that it has `lanes` partitions and each of them has a leader."""
    patience = Patience(client.settings)
    while True:
        topic = client.topics([name]).get(name)
        if topic is not None and topic.partitions >= lanes:
            client.offsets(partitions_of(topic), LATEST, Isolation.READ_COMMITTED)
            return topic
        patience.wait(Moved(f"progress topic {name!r} is being made"))
