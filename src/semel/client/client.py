"""A client of the log for planning and for tasks: which topics there are, where they begin and end, and their records.

It blocks, holds one connection to each broker that it talks to, and follows partitions to the brokers that lead them. A
broker that is away is asked again until a deadline; what no retry will mend is one of the errors of
`semel.client.errors`. It joins no group, commits nothing, and makes no topic. It must never be shared by threads.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, NamedTuple, TypeVar, overload
from uuid import UUID

from semel.client import codes
from semel.client.connection import Connection, ConnectionLost
from semel.client.errors import (
    CorruptRecords,
    OffsetOutOfRange,
    TopicMadeAnew,
    UnknownTopic,
)
from semel.client.patience import MENDABLE, Moved, Patience
from semel.client.places import EARLIEST, LATEST, NO_ID, Edge, Isolation, Position, Slice, Topic, TopicPartition
from semel.client.settings import Address, ClientSettings
from semel.wire import fetching
from semel.wire.errors import ErrorCode, ProtocolError
from semel.wire.fetch import FetchPartitionAnswer
from semel.wire.messages import topic_id_bytes
from semel.wire.reading import NO_TOPIC_ID
from semel.wire.records import next_offset
from semel.wire.versions import DESCRIBE_CONFIGS, LIST_OFFSETS, METADATA

T = TypeVar("T")

# What the protocol calls a topic among the things that have configurations.
_TOPIC: Final = 2


class Fetched(NamedTuple):
    """Whole batches of one partition, the transactions among them that were aborted, and the offset behind them."""

    records: memoryview
    aborted: list[tuple[int, int]]
    next_offset: int


class LogClient:
    """One for each task, and one for planning. Close it, or use it in a `with` block."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._connections: dict[Address, Connection] = {}
        self._brokers: set[Address] = set()
        self._topics: dict[str, Topic] = {}
        # Of each topic that is known, by partition.
        self._leaders: dict[str, dict[int, Address | None]] = {}
        # The topics that are written to: who may not see them is told what that takes.
        self._written: set[str] = set()

    def __enter__(self) -> "LogClient":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        while self._connections:
            self._connections.popitem()[1].close()

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of these topics that exist."""
        wanted = list(dict.fromkeys(names))
        return self.patiently(lambda: self._describe(wanted)) if wanted else {}

    def topic_to_write(self, name: str) -> Topic:
        """The topic, made by the broker if it is not there and brokers make topics that somebody writes to."""

        self._written.add(name)

        def attempt() -> Topic:
            found = self._describe([name], may_make=True).get(name)
            if found is None:
                raise UnknownTopic(f"there is no topic {name!r}, and the broker does not make it")
            return found

        return self.patiently(attempt)

    def topics_matching(self, pattern: str) -> dict[str, Topic]:
        """The topics in whose names the regular expression is found, without those that are the brokers' own."""
        matcher = re.compile(pattern)
        every = self.patiently(lambda: self._describe(None))
        return {name: topic for name, topic in every.items() if matcher.search(name)}

    @overload
    def offsets(
        self, partitions: Iterable[TopicPartition], at: Edge, isolation: Isolation
    ) -> dict[TopicPartition, int]: ...

    @overload
    def offsets(
        self, partitions: Iterable[TopicPartition], at: int, isolation: Isolation
    ) -> dict[TopicPartition, int | None]: ...

    def offsets(
        self, partitions: Iterable[TopicPartition], at: Position, isolation: Isolation
    ) -> dict[TopicPartition, Any]:
        """Where each partition begins, where it ends, or where its first record of a time (in ms) or later is.

        The end of what is committed is the last stable offset. A partition that has no record so late has None.
        """
        place = at.value if isinstance(at, Edge) else max(at, 0)
        found: dict[TopicPartition, int | None] = {}
        left = dict.fromkeys(partitions)

        def attempt() -> None:
            for address, led in self._by_leader(left).items():
                for where, offset in self._list_offsets(address, led, place, isolation).items():
                    found[where] = None if offset < 0 else offset
                    del left[where]

        self.patiently(attempt)
        return found

    def config_of(self, topic: str, name: str) -> str | None:
        """How one configuration of a topic is; None where brokers have none of that name."""

        def attempt() -> str | None:
            asked = {"resource_type": _TOPIC, "resource_name": topic, "configuration_keys": [name]}
            answer = self.ask_any(
                DESCRIBE_CONFIGS, resources=[asked], include_synonyms=False, include_documentation=False
            )
            [found] = answer.results
            if found.error_code in codes.UNKNOWN:
                raise UnknownTopic(f"there is no topic {topic!r}")
            if found.error_code in codes.MOVED:
                raise Moved(f"topic {topic!r} does not say how it is kept now ({codes.name_of(found.error_code)})")
            if found.error_code:
                right = f"DescribeConfigs on topic {topic!r}"
                raise codes.refusal(f"topic {topic!r}", found.error_code, found.error_message, right=right)
            return next((one.value for one in found.configs if one.name == name), None)

        return self.patiently(attempt)

    def fetches(self, wanted: Slice, isolation: Isolation, *, may_lack_its_end: bool = False) -> Iterator[Fetched]:
        """The batches that hold a slice, in answers of a few megabytes, each asked for while the one before is in use.

        The first and the last batch may reach beyond the slice. A connection serves nobody else meanwhile. Where
        compaction may have taken the end of the slice, say so: then an answer without records is believed if all of
        the slice is decided. From elsewhere it is not, for a broker may also be slow to get at what it has.
        """
        return _Fetching(self, wanted, isolation, may_lack_its_end).run()

    def patiently(self, attempt: Callable[[], T], patience: Patience | None = None) -> T:
        """What an attempt gives, which is made again as long as that may mend what is wrong."""
        patience = patience or Patience(self.settings)
        while True:
            try:
                found = attempt()
                patience.end()
                return found
            except MENDABLE as reason:
                patience.wait(reason)

    def ask(self, address: Address, api_key: int, /, **values: object) -> Any:
        """The answer of one broker."""
        connection = self.lease(address)
        try:
            answer = connection.ask(api_key, **values)
        except BaseException:
            connection.close()
            raise
        self.give_back(address, connection)
        return answer

    def ask_any(self, api_key: int, /, **values: object) -> Any:
        """The answer of the first broker that gives one: those connected to, those known, those told of."""
        lost: ConnectionLost | None = None
        for address in dict.fromkeys([*self._connections, *self._brokers, *self.settings.bootstrap]):
            try:
                return self.ask(address, api_key, **values)
            except ConnectionLost as reason:
                lost = lost or reason
        raise lost or ConnectionLost("no broker is known")

    def lease(self, address: Address) -> Connection:
        """A connection for the caller alone, to be given back in order."""
        return self._connections.pop(address, None) or Connection(address, self.settings)

    def give_back(self, address: Address, connection: Connection) -> None:
        """Take back a connection over which nothing is under way."""
        if self._connections.setdefault(address, connection) is not connection:
            connection.close()

    def leader_of(self, where: TopicPartition, topic_id: UUID = NO_ID) -> Address:
        """The broker that leads a partition, of the very topic that has this id if one is given."""
        if not self._is_known(where):
            self._describe([where.topic])
        topic = self._topics.get(where.topic)
        if topic is None:
            raise UnknownTopic(f"there is no topic {where.topic!r}")
        if topic_id not in (NO_ID, topic.id) and topic.id != NO_ID:
            raise TopicMadeAnew(
                f"topic {where.topic!r} was deleted and made anew: its id was {topic_id} and is {topic.id}"
            )
        if not self._is_known(where):
            raise UnknownTopic(f"there is no partition {where.partition} of topic {where.topic!r}")
        leader = self._leaders[where.topic][where.partition]
        if leader is None:
            self.forget(where.topic)
            raise Moved(f"partition {where} has no leader now")
        return leader

    def forget(self, topic: str) -> None:
        """What was known of a topic is no longer so; it is asked for again when it is needed."""
        self._topics.pop(topic, None)
        self._leaders.pop(topic, None)

    def check(self, where: TopicPartition, code: int, operation: str) -> None:
        """Raise what an error code about a partition means."""
        try:
            codes.check_partition(where, code, operation=operation)
        except MENDABLE:
            self.forget(where.topic)
            raise

    def _is_known(self, where: TopicPartition) -> bool:
        return where.partition in self._leaders.get(where.topic, ())

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[Address, list[TopicPartition]]:
        missing = {where.topic for where in partitions if not self._is_known(where)}
        if missing:
            self._describe(sorted(missing))
        led: dict[Address, list[TopicPartition]] = {}
        for where in partitions:
            led.setdefault(self.leader_of(where), []).append(where)
        return led

    def _list_offsets(
        self, address: Address, partitions: list[TopicPartition], place: int, isolation: Isolation
    ) -> dict[TopicPartition, int]:
        asked: dict[str, list[dict[str, int]]] = {}
        for where in partitions:
            asked.setdefault(where.topic, []).append(
                {"partition_index": where.partition, "current_leader_epoch": -1, "timestamp": place}
            )
        topics = [{"name": name, "partitions": wanted} for name, wanted in asked.items()]
        try:
            answer = self.ask(address, LIST_OFFSETS, replica_id=-1, isolation_level=isolation, topics=topics)
        except ConnectionLost:
            for name in asked:
                self.forget(name)
            raise
        found = {}
        for topic in answer.topics:
            for one in topic.partitions:
                where = TopicPartition(topic.name, one.partition_index)
                self.check(where, one.error_code, "Read")
                found[where] = one.offset
        if found.keys() != set(partitions):
            raise Moved(f"the broker at {address[0]}:{address[1]} did not answer for all partitions")
        return found

    def _describe(self, names: list[str] | None, *, may_make: bool = False) -> dict[str, Topic]:
        """Ask for topics, or for all; remembers their ids and who leads their partitions."""
        wanted = None if names is None else [{"topic_id": NO_TOPIC_ID, "name": name} for name in names]
        answer = self.ask_any(
            METADATA,
            topics=wanted,
            allow_auto_topic_creation=may_make,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        self._brokers = set(addresses.values())
        found = {}
        for topic in answer.topics:
            self.forget(topic.name)
            if topic.error_code in codes.UNKNOWN or (names is None and (topic.error_code or topic.is_internal)):
                continue
            if topic.error_code in codes.MOVED:
                raise Moved(f"topic {topic.name!r} has no leaders yet ({codes.name_of(topic.error_code)})")
            if topic.error_code:
                # Each of the two implies that it may be seen.
                right = f"{'Write' if topic.name in self._written else 'Read'} on topic {topic.name!r}"
                raise codes.refusal(f"topic {topic.name!r}", topic.error_code, right=right)
            topic_id = UUID(bytes=topic_id_bytes(getattr(topic, "topic_id", None)))
            found[topic.name] = self._topics[topic.name] = Topic(topic.name, topic_id, len(topic.partitions))
            self._leaders[topic.name] = {
                partition.partition_index: addresses.get(partition.leader_id) for partition in topic.partitions
            }
        return found


class _Fetching:
    """One slice on its way, with one request under way ahead of what is being used."""

    def __init__(self, client: LogClient, wanted: Slice, isolation: Isolation, may_lack_its_end: bool) -> None:
        self._client = client
        self._wanted = wanted
        self._isolation = isolation
        self._may_lack_its_end = may_lack_its_end
        self._where = wanted.topic_partition
        self._offset = wanted.start
        self._patience = Patience(client.settings)
        self._leader: Address | None = None
        self._connection: Connection | None = None
        self._version = fetching.SPOKEN.min
        self._is_asked = False

    def run(self) -> Iterator[Fetched]:
        try:
            while self._offset < self._wanted.end:
                fetched = self._next()
                if fetched is not None:
                    yield fetched
                    # What Spark took its time over is not held against the brokers.
                    self._patience.progress()
        finally:
            self._leave()

    def _next(self) -> Fetched | None:
        """What comes next, or None where asking again is all that can be done."""
        try:
            if not self._is_asked:
                self._ask()
            answer = self._receive()
            self._check(answer)
            fetched = self._taken(answer)
            if fetched is None:
                if self._is_empty_to_the_end(answer):
                    self._offset = self._wanted.end
                    return None
                # Who gives nothing may not be the leader any more.
                self._leave()
                self._client.forget(self._where.topic)
                self._patience.wait(Moved(self._silence(answer)))
                return None
        except MENDABLE as reason:
            self._leave()
            self._patience.wait(reason)
            return None
        if self._offset < self._wanted.end:
            # If this is lost, so is the answer, and the next turn finds out.
            with suppress(ConnectionLost):
                self._ask()
        return fetched

    def _ask(self) -> None:
        settings = self._client.settings
        if self._connection is None:
            self._leader = self._client.leader_of(self._where, self._wanted.topic.id)
            self._connection = self._client.lease(self._leader)
            version = self._connection.fetch_version
            has_id = self._wanted.topic.id != NO_ID
            self._version = version if has_id else min(version, fetching.NAMED_LAST)
        asked = fetching.PartitionFetch(
            self._wanted.topic.name,
            self._wanted.topic.id.bytes,
            self._wanted.partition,
            self._offset,
            self._isolation,
            settings.fetch_wait_ms_max,
            settings.fetch_bytes_min,
            settings.fetch_bytes_max,
            settings.partition_bytes_max,
        )
        self._is_asked = True
        self._connection.send_fetch(self._version, asked)

    def _receive(self) -> FetchPartitionAnswer:
        assert self._connection is not None
        try:
            answer = self._connection.receive_fetch(self._version)
        except ConnectionLost:
            # Its partitions may be led by another broker by now.
            self._client.forget(self._where.topic)
            raise
        self._is_asked = False
        return answer

    def _check(self, answer: FetchPartitionAnswer) -> None:
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._check_range()
        self._client.check(self._where, answer.error_code, "Read")
        if answer.partition != self._where.partition:
            raise ConnectionLost(f"an answer about partition {answer.partition} instead of {self._where}")

    def _check_range(self) -> None:
        begin = self._client.offsets([self._where], EARLIEST, self._isolation)[self._where]
        # Of the log, and not of what is committed in it, which may well end before the offset.
        end = self._client.offsets([self._where], LATEST, Isolation.READ_UNCOMMITTED)[self._where]
        if begin <= self._offset <= end:
            raise Moved(f"partition {self._where} had no offset {self._offset} a moment ago")
        raise OffsetOutOfRange(
            f"partition {self._where} has no offset {self._offset}: it begins at {begin} and ends at {end}",
            self._offset,
            begin,
            end,
        )

    def _taken(self, answer: FetchPartitionAnswer) -> Fetched | None:
        """The batches of an answer, if there are any; moves on behind them."""
        if not answer.records:
            return None
        records = memoryview(answer.records[0])
        try:
            behind = next_offset(records)
        except ProtocolError as error:
            raise CorruptRecords(f"partition {self._where} from offset {self._offset}: {error}") from None
        if behind <= self._offset:
            raise CorruptRecords(f"partition {self._where} from offset {self._offset}: records that end at {behind}")
        self._offset = behind
        return Fetched(records, list(answer.aborted_transactions or ()), behind)

    def _is_empty_to_the_end(self, answer: FetchPartitionAnswer) -> bool:
        committed_only = self._isolation is Isolation.READ_COMMITTED
        return self._may_lack_its_end and committed_only and answer.last_stable_offset >= self._wanted.end

    def _silence(self, answer: FetchPartitionAnswer) -> str:
        committed_only = self._isolation is Isolation.READ_COMMITTED
        until = answer.last_stable_offset if committed_only else answer.high_watermark
        return (
            f"partition {self._where} gives no records from offset {self._offset} on, and they were to go to "
            f"{self._wanted.end}; its end is {until} now"
        )

    def _leave(self) -> None:
        """Give the connection back, or end it where an answer is still under way."""
        if self._connection is None or self._leader is None:
            return
        if self._is_asked:
            self._connection.close()
        else:
            self._client.give_back(self._leader, self._connection)
        self._connection, self._is_asked = None, False
