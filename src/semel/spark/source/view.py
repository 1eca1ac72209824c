"""The present state of the log, as far as one query reads it: which topics exist, and where they begin and end.

A plan gets all its facts from here, in as few requests as possible. This file must never decide what to read: that is
planning.
"""

from collections.abc import Iterable, Mapping
from uuid import UUID

from semel.client.client import LogClient
from semel.client.errors import UnknownTopic
from semel.client.places import EARLIEST, LATEST, Edge, Isolation, Topic, TopicPartition
from semel.client.topics import near, partitions_of
from semel.spark.source.bounds import AtEdge, AtOffsets, AtTimestamp, AtTimestamps, Bound
from semel.spark.source.errors import OptionRefused
from semel.spark.source.offsets import Offsets
from semel.spark.source.options import SourceOptions, Subscription


class Observer:
    def __init__(self, client: LogClient, options: SourceOptions) -> None:
        self._client = client
        self._subscription: Subscription = options.subscription
        self._isolation: Isolation = options.isolation
        self._without_time_at_latest = options.without_time_at_latest

    def look(self) -> Offsets:
        """The present end of each partition; topics that do not exist are left out."""
        topics = self._topics()
        return Offsets(ids_of(topics), self._edge(self._read(topics), LATEST))

    def glance(self) -> Offsets:
        """The partitions that exist now, without asking where they end."""
        topics = self._topics()
        return Offsets(ids_of(topics), dict.fromkeys(self._read(topics), 0))

    def begins(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that still exists in each of these partitions."""
        return self._edge(partitions, EARLIEST)

    def log_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the log ends in each of these partitions, open transactions included."""
        return self._client.offsets(partitions, LATEST, Isolation.READ_UNCOMMITTED)

    def topics_that_exist(self) -> dict[str, Topic]:
        """The topics of a query that begins. A topic that is named and does not exist is a mistake: the query does not
        wait for it."""
        topics = self._topics()
        missing = [name for name in self._subscription.topics if name not in topics]
        if missing:
            meant = self._client.patiently(lambda: near(self._client.cluster, missing[0]))
            raise UnknownTopic(f"there is no topic {', '.join(missing)}: make it before the query starts{meant}")
        for place in sorted(self._subscription.partitions):
            if place.partition >= (count := topics[place.topic].partitions):
                raise OptionRefused(f"option assign names {place}, and topic {place.topic} has {count} partitions")
        return topics

    def starting(self, topics: Mapping[str, Topic], bound: Bound) -> dict[TopicPartition, int]:
        """Where a query begins."""
        return self._resolve(self._read(topics), bound, is_start=True)

    def ending(self, topics: Mapping[str, Topic], bound: Bound) -> dict[TopicPartition, int]:
        """Where a batch read ends."""
        return self._resolve(self._read(topics), bound, is_start=False)

    def _topics(self) -> dict[str, Topic]:
        if self._subscription.pattern is not None:
            return self._client.topics_matching(self._subscription.pattern)
        return self._client.topics(self._subscription.topics)

    def _read(self, topics: Mapping[str, Topic]) -> list[TopicPartition]:
        every = [place for topic in topics.values() for place in partitions_of(topic)]
        wanted = self._subscription.partitions
        return [place for place in every if place in wanted] if wanted else every

    def _edge(self, partitions: Iterable[TopicPartition], edge: Edge) -> dict[TopicPartition, int]:
        return self._client.offsets(partitions, edge, self._isolation)

    def _resolve(self, partitions: list[TopicPartition], bound: Bound, *, is_start: bool) -> dict[TopicPartition, int]:
        match bound:
            case AtEdge(edge):
                return self._edge(partitions, edge)
            case AtOffsets(positions):
                self._check_named(partitions, positions)
                return self._at_positions(positions, is_start=is_start)
            case AtTimestamp(timestamp_ms):
                return self._at_times(dict.fromkeys(partitions, timestamp_ms), is_start=is_start)
            case AtTimestamps(timestamps_ms):
                self._check_named(partitions, timestamps_ms)
                return self._at_times(timestamps_ms, is_start=is_start)

    def _check_named(self, partitions: Iterable[TopicPartition], named: Iterable[TopicPartition]) -> None:
        missing, strange = sorted(set(partitions) - set(named)), sorted(set(named) - set(partitions))
        if missing:
            raise OptionRefused(
                f"offsets and times have to name every partition that is read; missing: {', '.join(map(str, missing))}"
            )
        if strange:
            raise OptionRefused(f"offsets and times name what is not read: {', '.join(map(str, strange))}")

    def _at_positions(
        self, positions: Mapping[TopicPartition, Edge | int], *, is_start: bool
    ) -> dict[TopicPartition, int]:
        """A query may begin inside an open transaction, because it waits until that ends; a batch must not end inside
        one, because nobody knows yet whether it commits."""
        ends = self._edge(positions, LATEST)
        begins = self._edge([place for place, position in positions.items() if position is EARLIEST], EARLIEST)
        offsets = {
            place: position if isinstance(position, int) else begins.get(place, ends[place])
            for place, position in positions.items()
        }
        ahead = [place for place, offset in offsets.items() if offset > ends[place]]
        log_ends = self.log_ends(ahead) if ahead else {}
        for place in ahead:
            if offsets[place] > log_ends[place]:
                raise OptionRefused(
                    f"{place} ends at offset {log_ends[place]}, and the options name offset {offsets[place]}"
                )
            if not is_start:
                raise OptionRefused(
                    f"{place} ends at offset {ends[place]} for committed records, where a transaction is open, and the "
                    f"options name offset {offsets[place]}: read up to latest, or read again when it is over"
                )
        return offsets

    def _at_times(self, timestamps_ms: Mapping[TopicPartition, int], *, is_start: bool) -> dict[TopicPartition, int]:
        offsets: dict[TopicPartition, int | None] = {}
        for timestamp_ms in sorted(set(timestamps_ms.values())):
            partitions = [place for place, wanted_ms in timestamps_ms.items() if wanted_ms == timestamp_ms]
            offsets |= self._client.offsets(partitions, timestamp_ms, self._isolation)
        late = [place for place, offset in offsets.items() if offset is None]
        if late and is_start and not self._without_time_at_latest:
            raise OptionRefused(
                f"{late[0]} has no record as late as {timestamps_ms[late[0]]} (ms since 1970): set "
                "startingOffsetsByTimestampStrategy=latest to begin at its end"
            )
        ends = self._edge(late, LATEST) if late else {}
        return {place: ends[place] if offset is None else offset for place, offset in offsets.items()}


def ids_of(topics: Mapping[str, Topic]) -> dict[str, UUID]:
    return {name: topic.id for name, topic in topics.items()}
