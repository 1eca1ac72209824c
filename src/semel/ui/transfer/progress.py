"""The progress of a move: records in a topic of the target, written in the transactions that copy records. So records
and progress commit together or not at all, and a move that was killed continues exactly after its last transaction. The
topic is compacted and has one partition. A move first claims the transactional id and then reads the progress; before
each commit it checks whether another move has written meanwhile.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from semel.client import EARLIEST, LATEST, Isolation, LogClient, LogError, Slice, Topic, TopicPartition
from semel.client.patience import Moved, Patience
from semel.client.transaction import Records, Transaction
from semel.ui.transfer.pieces import pieces
from semel.wire.record_bodies import RecordBody, content_of, key_and_value, payload_of

# The prefix of the source's id, for the name of the topic and for the transactional id.
PREFIX: Final = "semel-move-"
TOPIC_CONFIGS: Final = {"cleanup.policy": "compact"}
# A batch is cut at this size, far below what any cluster refuses: groups may have thousands of offsets with metadata.
_BATCH_BYTES: Final = 256 * 1024
_STAGE: Final = "stage"
_PARTITION: Final = "partition"
_GROUP: Final = "group"


class MoveRefused(LogError):
    """The move cannot continue; the message, one line, says why and what to do."""


class Stage(Enum):
    """The stage of the whole move."""

    COPYING = "copying"
    # Both sides were compared; the offsets of the groups are stored.
    AUDITED = "audited"
    MOVED = "moved"


class Reached(NamedTuple):
    """The progress in a partition: the source's topic id, the first offset, and the next offset to copy."""

    topic_id: str
    first: int
    next: int


class Place(NamedTuple):
    """A group's committed offset in a partition: in the target, and in the source when both sides were compared."""

    offset: int
    source_offset: int
    note: str | None


# The places of a group.
Places = dict[TopicPartition, Place]


@dataclass
class Progress:
    """The progress according to the topic's records, the newest for each key."""

    topic: Topic
    stage: Stage = Stage.COPYING
    reached: dict[TopicPartition, Reached] = field(default_factory=dict)
    # For each group its offsets on both sides.
    places: dict[str, Places] = field(default_factory=dict)
    # Everything before this offset was read.
    known: int = 0

    @property
    def where(self) -> TopicPartition:
        return TopicPartition(self.topic.name, 0)

    def write(
        self,
        client: LogClient,
        transaction: Transaction,
        *,
        stage: Stage | None = None,
        reached: Mapping[TopicPartition, Reached] | None = None,
        places: Mapping[str, Places] | None = None,
    ) -> None:
        """Commit this together with everything that the transaction has written. Raises MoveRefused if another move
        came in between.
        """
        content = {
            **{_partition_key(where): one._asdict() for where, one in (reached or {}).items()},
            **{
                json.dumps([_GROUP, group, where.topic, where.partition]): one._asdict()
                for group, own in (places or {}).items()
                for where, one in own.items()
            },
            **({} if stage is None else {json.dumps([_STAGE]): stage.value}),
        }
        now_ms = round(time.time() * 1000)
        bodies = [RecordBody(0, now_ms, content_of(k.encode(), _json(v).encode())) for k, v in content.items()]
        transaction.join([self.where])
        for batch in _batches(bodies):
            transaction.write(self.where, Records(len(batch), payload_of(batch, now_ms, 0), now_ms, now_ms, 0))
        first = transaction.last_offset(self.where) - (len(bodies) - len(batch))
        # Everything that was committed before is below this offset and visible, because no other transaction is open.
        if any(True for _ in _bodies(client, self.topic, self.known, first)):
            transaction.abort()
            raise MoveRefused("another semel move from the same cluster is running: let only one of them continue")
        transaction.commit()
        self.known = first + len(bodies)
        self.stage = stage or self.stage
        self.reached |= reached or {}
        self.places |= places or {}


def read_progress(client: LogClient, topic: Topic) -> Progress:
    """The progress in the topic. The transactional id was claimed before, so all its transactions have ended."""
    progress = Progress(topic)
    patience = Patience(client.settings)
    while True:
        end = client.offsets([progress.where], LATEST, Isolation.READ_UNCOMMITTED)[progress.where]
        if client.offsets([progress.where], LATEST, Isolation.READ_COMMITTED)[progress.where] == end:
            break
        patience.wait(Moved(f"a transaction is open in {progress.where}"))
    patience.end()
    start = client.offsets([progress.where], EARLIEST, Isolation.READ_COMMITTED)[progress.where]
    for body in _bodies(client, topic, start, end):
        key, value = key_and_value(body.content)
        try:
            _take_in(progress, json.loads(key or b""), json.loads(value or b""))
        except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError) as error:
            raise MoveRefused(f"topic {topic.name!r} of the target is no record of a move: {error!r}") from None
    progress.known = end
    return progress


def _take_in(progress: Progress, key: list[Any], value: Any) -> None:
    if key[0] == _STAGE:
        progress.stage = Stage(value)
    elif key[0] == _PARTITION:
        progress.reached[TopicPartition(str(key[1]), int(key[2]))] = Reached(**value)
    elif key[0] == _GROUP:
        progress.places.setdefault(str(key[1]), {})[TopicPartition(str(key[2]), int(key[3]))] = Place(**value)
    else:
        raise ValueError(f"a key of a newer version: {key}")


def _partition_key(where: TopicPartition) -> str:
    return json.dumps([_PARTITION, where.topic, where.partition])


def _batches(bodies: Iterable[RecordBody]) -> Iterator[list[RecordBody]]:
    batch: list[RecordBody] = []
    size = 0
    for body in bodies:
        size += len(body.content)
        if batch and size > _BATCH_BYTES:
            yield batch
            batch, size = [], len(body.content)
        batch.append(body)
    yield batch


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _bodies(client: LogClient, topic: Topic, start: int, end: int) -> Iterator[RecordBody]:
    for piece in pieces(client, Slice(topic, 0, start, end), may_lack_its_end=True):
        yield from (body for body in piece.bodies() if body.offset < end)
