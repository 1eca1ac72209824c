"""`semel tail`: shows the records of a topic, with the numbers by which the broker finds duplicates.

It shows each record with its partition, offset, time and claim: producer id, epoch and sequence number. The same claim
twice in a partition would be a duplicate. It shows uncommitted records only on request. This command must never change
anything: it joins no group and commits no offset.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache, partial
from heapq import merge
from typing import Final, NamedTuple

from semel.client.aborted import batches
from semel.client.bad_batches import BadBatch, OnBadBatch, UnreadableBatch, refuse
from semel.client.cluster import Cluster
from semel.client.connection import ConnectionLost
from semel.client.patience import Moved
from semel.client.places import EARLIEST, LATEST, Isolation, Position, TopicPartition
from semel.client.settings import Address
from semel.client.topics import offsets_of, partitions_of, topic_of
from semel.ui.cli.cluster import add_bootstrap, cluster_at
from semel.ui.cli.display import as_field, printable
from semel.ui.cli.errors import Ended, Failure
from semel.ui.cli.subcommands import count
from semel.wire import kafka
from semel.wire.errors import ProtocolError
from semel.wire.records import Batch, Record
from semel.wire.sequences import advance

EXAMPLE: Final = """  semel tail payments --from latest --follow
  semel tail payments -n 10 --format json"""

_FETCH_BYTES: Final = 1024 * 1024
_WAIT_MS: Final = 500
# How long the command waits for a broker that is down.
_RECONNECT_SECONDS_MAX: Final = 60.0
_PAUSE_SECONDS: Final = 0.2
_ISOLATIONS: Final = {"committed": Isolation.READ_COMMITTED, "uncommitted": Isolation.READ_UNCOMMITTED}


class Shown(NamedTuple):
    """A record and its claim; -1 if its producer made none."""

    partition: int
    record: Record
    producer_id: int
    producer_epoch: int
    sequence: int


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="the topic to read")
    parser.add_argument(
        "--from",
        dest="begin",
        type=_begin,
        metavar="earliest|latest|OFFSET",
        help="where to begin (earliest)",
    )
    parser.add_argument("--partition", type=int, metavar="P", help="only this partition (all)")
    parser.add_argument("-f", "--follow", action="store_true", help="at the end, wait for more")
    parser.add_argument(
        "-n", dest="count", type=count, metavar="N", help="the last N records; the next N with --from or --follow"
    )
    parser.add_argument(
        "--isolation",
        choices=tuple(_ISOLATIONS),
        default="committed",
        help="uncommitted shows records of open and aborted transactions, too (committed)",
    )
    parser.add_argument(
        "--on-bad-batch",
        choices=[choice.value for choice in OnBadBatch],
        default=OnBadBatch.FAIL.value,
        help="what to do at a batch that cannot be read: stop, or say which it is and go on (fail)",
    )
    parser.add_argument("--format", choices=("line", "json"), default="line", help="one line each, or JSON (line)")
    add_bootstrap(parser)


def _begin(text: str) -> Position:
    names: dict[str, Position] = {"earliest": EARLIEST, "latest": LATEST}
    if text in names:
        return names[text]
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is neither earliest, latest nor an offset")
    return int(text)


def run(options: argparse.Namespace) -> int:
    show = _as_json if options.format == "json" else _as_line
    left = options.count
    is_last = left is not None and options.begin is None and not options.follow
    try:
        with cluster_at(options) as cluster:
            isolation = _ISOLATIONS[options.isolation]
            on_bad_batch = OnBadBatch(options.on_bad_batch)
            begin = EARLIEST if options.begin is None else options.begin
            reader = _Reader(cluster, options.topic, options.partition, begin, options.follow, isolation, on_bad_batch)
            for batch in () if left == 0 else [reader.last(left)] if is_last else reader.batches():
                shown = batch[:left]
                # One write for many lines, because a write for each line would take longer than everything else.
                sys.stdout.write("".join([f"{show(record)}\n" for record in shown]))
                if left is not None:
                    left -= len(shown)
                    if left == 0:
                        break
    except Ended:
        # Ctrl-C is the normal end of this command.
        if not options.follow:
            raise
    return 0


class _Reader:
    """Reads partitions from the beginning that the user chose, up to their present end, or for ever."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        partition: int | None,
        begin: Position,
        follow: bool,
        isolation: Isolation,
        on_bad_batch: OnBadBatch,
    ) -> None:
        self._cluster = cluster
        self._on_bad_batch = on_bad_batch
        self._follow = follow
        self._isolation = isolation
        self._topic = name
        topic = topic_of(cluster, name)
        partitions = partitions_of(topic) if partition is None else [TopicPartition(name, partition)]
        first = offsets_of(cluster, partitions, EARLIEST)
        self._ends = offsets_of(cluster, partitions, LATEST, isolation)
        self._next = dict(first if begin is EARLIEST else self._ends)
        if isinstance(begin, int):
            self._next = {where: min(max(begin, first[where]), self._ends[where]) for where in partitions}
            # An offset beyond the end is an error for a single partition only: of several, some may be shorter.
            if len(partitions) == 1 and begin != self._next[partitions[0]]:
                [where] = partitions
                raise Failure(
                    f"partition {where.partition} of topic {name!r} has no offset {begin}: "
                    f"it goes from {first[where]} to {self._ends[where]}"
                )
        self._waiting_since: float | None = None

    def batches(self) -> Iterator[list[Shown]]:
        """The records, batch by batch, in order within each partition."""
        while wanted := self._wanted():
            try:
                leaders = self._cluster.by_leader(wanted)
                for leader, partitions in leaders.items():
                    for answer in self._fetch(leader, partitions, _WAIT_MS // len(leaders)):
                        yield from self._take(answer)
                self._waiting_since = None
            except (ConnectionLost, Moved) as reason:
                self._wait_for_return(reason)
            sys.stdout.flush()

    def last(self, count: int) -> list[Shown]:
        """The last records by their times; those of one partition stay in their order. Markers of transactions take
        offsets as well, so this looks further and further back in a partition until it has enough records.
        """
        first, begins = dict(self._next), dict(self._ends)
        found: dict[TopicPartition, list[Shown]] = {where: [] for where in first}
        step = count
        while lacking := [at for at in first if len(found[at]) < count and begins[at] > first[at]]:
            begins |= {where: max(first[where], self._ends[where] - step) for where in lacking}
            self._next = {where: begins[where] for where in lacking}
            latest: dict[int, deque[Shown]] = {where.partition: deque(maxlen=count) for where in lacking}
            for batch in self.batches():
                for shown in batch:
                    latest[shown.partition].append(shown)
            found |= {where: list(latest[where.partition]) for where in lacking}
            step *= 4
        return list(deque(merge(*found.values(), key=lambda shown: shown.record.timestamp_ms), maxlen=count))

    def _wanted(self) -> list[TopicPartition]:
        if self._follow:
            return list(self._next)
        return [where for where, offset in self._next.items() if offset < self._ends[where]]

    def _fetch(
        self, leader: Address, partitions: list[TopicPartition], wait_ms: int
    ) -> list[kafka.fetch.PartitionData]:
        api = kafka.fetch
        wanted = [
            api.FetchPartition(
                partition=where.partition, fetch_offset=self._next[where], partition_max_bytes=_FETCH_BYTES
            )
            for where in partitions
        ]
        request = api.FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            isolation_level=self._isolation,
            topics=[api.FetchTopic(topic=self._topic, partitions=wanted)],
        )
        answer = self._cluster.ask(leader, request)
        return [partition for topic in answer.responses for partition in topic.partitions]

    def _take(self, answer: kafka.fetch.PartitionData) -> Iterator[list[Shown]]:
        """The records in the answer about one partition, from the present position on."""
        where = TopicPartition(self._topic, answer.partition_index)
        self._cluster.check(where, answer.error_code, "Read")
        try:
            # For a fetch of uncommitted records the broker names no aborted transactions, so all batches are shown.
            aborted = [(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()]
            for batch, is_aborted in batches(answer.records or b"", aborted, partial(self._pass, where)):
                begin = self._next[where]
                self._next[where] = max(begin, batch.base_offset + batch.last_offset_delta + 1)
                if not batch.is_control and not is_aborted:
                    yield [_shown(where.partition, batch, record) for record in batch.records if record.offset >= begin]
        except UnreadableBatch as error:
            raise Failure(f"partition {where}: {error}; --on-bad-batch=quarantine goes on after it") from None
        except ProtocolError as error:
            raise Failure(f"partition {where} from offset {self._next[where]}: {error}") from None

    def _pass(self, where: TopicPartition, bad: BadBatch) -> None:
        """Go on after a batch that cannot be read, if that is wanted."""
        if bad.last < self._next[where]:
            return
        if self._on_bad_batch is OnBadBatch.FAIL:
            refuse(bad)
        print(f"semel: partition {where}: {printable(str(bad))}; it is left out", file=sys.stderr)
        self._next[where] = bad.last + 1

    def _wait_for_return(self, reason: ConnectionLost | Moved) -> None:
        now = time.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
            print(f"semel: {printable(str(reason))}; trying again", file=sys.stderr)
        elif now - self._waiting_since > _RECONNECT_SECONDS_MAX:
            raise reason
        self._cluster.close()
        self._cluster.forget(self._topic)
        time.sleep(_PAUSE_SECONDS)


def _shown(partition: int, batch: Batch, record: Record) -> Shown:
    if batch.producer_id < 0:
        return Shown(partition, record, -1, -1, -1)
    # Compaction may have removed records; the offset still gives the record's place in the original batch.
    sequence = advance(batch.base_sequence, record.offset - batch.base_offset)
    return Shown(partition, record, batch.producer_id, batch.producer_epoch, sequence)


def _as_line(shown: Shown) -> str:
    record = shown.record
    parts = [f"{shown.partition}@{record.offset}", _time_text(record.timestamp_ms)]
    if shown.producer_id >= 0:
        parts.append(f"producer={shown.producer_id}/{shown.producer_epoch} sequence={shown.sequence}")
    else:
        parts.append("producer=none")
    if record.key is not None:
        parts.append(f"key={_text(record.key)}")
    parts += [f"header.{_text(name.encode())}={_text(value)}" for name, value in record.headers]
    parts.append(f"value={_text(record.value)}")
    return " ".join(parts)


@lru_cache(maxsize=1024)
def _time_text(time_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03}Z"
    except (ValueError, OverflowError):
        # Producers may write any number.
        return f"{time_ms}ms"


def _text(data: bytes | None) -> str:
    """Text for a terminal: unprintable characters are escaped, so that a record cannot break lines or send commands."""
    if data is None:
        return "null"
    return printable(data.decode(errors="backslashreplace"))


def _as_json(shown: Shown) -> str:
    record = shown.record
    return json.dumps(
        {
            "partition": shown.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "producer_id": shown.producer_id,
            "producer_epoch": shown.producer_epoch,
            "sequence": shown.sequence,
            **as_field("key", record.key),
            **as_field("value", record.value),
            "headers": [{"name": name, **as_field("value", value)} for name, value in record.headers],
        }
    )
