"""A client for planning and for tasks: finds topics, their begin and end offsets, and fetches their records.

Its calls block, and go to the leaders of partitions. If a broker is down, the client retries until a deadline; for an
error that no retry can mend, it raises one of `semel.client.errors`. It joins no group, commits nothing, and creates no
topic. Threads must never share it.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, TypeVar, overload

from semel.client import admin
from semel.client.cluster import Cluster
from semel.client.connection import Connection, ConnectionLost
from semel.client.errors import CorruptRecords, OffsetOutOfRange
from semel.client.patience import MENDABLE, Moved, Patience
from semel.client.places import EARLIEST, LATEST, NO_ID, Edge, Isolation, Position, Slice, Topic, TopicPartition
from semel.client.settings import Address, ClientSettings
from semel.wire import fetch_client
from semel.wire.errors import ErrorCode, ProtocolError
from semel.wire.fetch import FetchPartitionAnswer
from semel.wire.records import next_offset

T = TypeVar("T")


class Fetched(NamedTuple):
    """Whole batches of one partition, the aborted transactions among them, and the offset after them."""

    records: memoryview
    aborted: list[tuple[int, int]]
    next_offset: int


class LogClient:
    """Each task has one, and the driver has one for planning. Close it, or use it in a `with` block."""

    def __init__(self, settings: ClientSettings, *, address_is_new: bool = False) -> None:
        """With `address_is_new`, a cluster that has not answered yet, and refuses connections, is not waited for."""
        self.settings = settings
        self.cluster = Cluster(settings, address_is_new=address_is_new)

    def __enter__(self) -> "LogClient":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.cluster.close()

    def topics(self, names: Iterable[str], *, to_write: bool = False) -> dict[str, Topic]:
        """The topics of these names that exist. A refusal names the right to read them, or to write to them."""
        wanted = list(names)
        return self.patiently(lambda: self.cluster.topics(wanted, to_write=to_write))

    def topic_to_write(self, name: str) -> Topic:
        """The topic; a broker that creates topics automatically creates it if it is missing."""
        return self.patiently(lambda: self.cluster.topic_to_write(name))

    def topics_matching(self, pattern: str) -> dict[str, Topic]:
        """The topics whose names the regular expression matches somewhere, without the brokers' internal ones."""
        matcher = re.compile(pattern)
        every = self.patiently(self.cluster.every_topic)
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
        """Where each partition begins, where it ends, or the offset of its first record from a time (in ms) on.

        With read_committed, a partition ends at its last stable offset. None for a partition without a record from that
        time on.
        """
        offsets: dict[TopicPartition, int | None] = {}
        left = dict.fromkeys(partitions)

        def attempt() -> None:
            for where, offset in self.cluster.offsets(left, at, isolation):
                offsets[where] = offset
                del left[where]

        self.patiently(attempt)
        return offsets

    def config_of(self, topic: str, name: str) -> str | None:
        """The value of one configuration of a topic; None if the brokers have none of that name."""
        configs = self.patiently(lambda: admin.configs_of(self.cluster, topic, [name]))
        return next((one.value for one in configs if one.name == name), None)

    def fetches(self, wanted: Slice, isolation: Isolation, *, may_lack_its_end: bool = False) -> Iterator[Fetched]:
        """The batches that hold a slice, in answers of a few megabytes, each requested while the caller uses the one
        before.

        The first and the last batch may reach beyond the slice. Meanwhile the connection serves no other request. Set
        `may_lack_its_end` if compaction may have removed the end of the slice: then an answer without records counts as
        the end if the last stable offset is after the slice. Otherwise it does not, because a broker may only be slow
        to find its records.
        """
        return _Fetching(self, wanted, isolation, may_lack_its_end).run()

    def patiently(self, attempt: Callable[[], T], patience: Patience | None = None) -> T:
        """The result of `attempt`, which is repeated while a retry may succeed."""
        return (patience or Patience(self.settings)).patiently(attempt)


class _Fetching:
    """The fetch of one slice. The next request is always sent before the caller uses the last answer."""

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
        self._version = fetch_client.SPOKEN.min
        self._is_asked = False

    def run(self) -> Iterator[Fetched]:
        try:
            while self._offset < self._wanted.end:
                fetched = self._next()
                if fetched is not None:
                    yield fetched
                    # The time that Spark took does not count against the brokers' deadline.
                    self._patience.progress()
        finally:
            self._leave()

    def _next(self) -> Fetched | None:
        """The next batches, or None if the client must ask again."""
        try:
            if not self._is_asked:
                self._ask()
            answer = self._receive()
            self._check(answer)
            fetched = self._advance(answer)
            if fetched is None:
                if self._is_empty_to_the_end(answer):
                    self._offset = self._wanted.end
                    return None
                # A broker that returns nothing may no longer be the leader.
                self._leave()
                self._client.cluster.forget(self._where.topic)
                self._patience.wait(Moved(self._silence(answer)))
                return None
        except MENDABLE as reason:
            self._leave()
            self._patience.wait(reason)
            return None
        if self._offset < self._wanted.end:
            # If the request is lost, its answer is missing, and the next turn notices that.
            with suppress(ConnectionLost):
                self._ask()
        return fetched

    def _ask(self) -> None:
        settings = self._client.settings
        if self._connection is None:
            self._leader = self._client.cluster.leader_of(self._where, self._wanted.topic.id)
            self._connection = self._client.cluster.lease(self._leader)
            version = self._connection.fetch_version
            has_id = self._wanted.topic.id != NO_ID
            self._version = version if has_id else min(version, fetch_client.NAMED_LAST)
        request = fetch_client.PartitionFetch(
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
        self._connection.send_fetch(self._version, request)

    def _receive(self) -> FetchPartitionAnswer:
        assert self._connection is not None
        try:
            answer = self._connection.receive_fetch(self._version)
        except ConnectionLost:
            # Another broker may be the leader of its partitions by now.
            self._client.cluster.forget(self._where.topic)
            raise
        self._is_asked = False
        return answer

    def _check(self, answer: FetchPartitionAnswer) -> None:
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._check_range()
        self._client.cluster.check(self._where, answer.error_code, "Read")
        if answer.partition != self._where.partition:
            raise ConnectionLost(f"an answer about partition {answer.partition} instead of {self._where}")

    def _check_range(self) -> None:
        begin = self._client.offsets([self._where], EARLIEST, self._isolation)[self._where]
        # The end of all records, because the committed ones may end before the offset.
        end = self._client.offsets([self._where], LATEST, Isolation.READ_UNCOMMITTED)[self._where]
        if begin <= self._offset <= end:
            raise Moved(f"partition {self._where} had no offset {self._offset} a moment ago")
        raise OffsetOutOfRange(
            f"partition {self._where} has no offset {self._offset}: it begins at {begin} and ends at {end}",
            self._offset,
            begin,
            end,
        )

    def _advance(self, answer: FetchPartitionAnswer) -> Fetched | None:
        """The batches of an answer, if there are any; moves on after them."""
        if not answer.records:
            return None
        records = memoryview(answer.records[0])
        try:
            end = next_offset(records)
        except ProtocolError as error:
            raise CorruptRecords(f"partition {self._where} from offset {self._offset}: {error}") from None
        if end <= self._offset:
            raise CorruptRecords(f"partition {self._where} from offset {self._offset}: records that end at {end}")
        self._offset = end
        return Fetched(records, list(answer.aborted_transactions or ()), end)

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
        """Give the connection back, or close it if an answer is still under way."""
        if self._connection is None or self._leader is None:
            return
        if self._is_asked:
            self._connection.close()
        else:
            self._client.cluster.give_back(self._leader, self._connection)
        self._connection, self._is_asked = None, False
