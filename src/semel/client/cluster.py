"""A cluster as a client sees it: its brokers, its topics, the leaders of their partitions, and offsets.

Every method makes one attempt, and raises one of the errors of `semel.client.errors` if it fails. Another attempt may
succeed after those in `MENDABLE`; the caller decides whether to make it. Only a question that any broker can answer
goes to a second broker if the first one does not answer. A request that changes something must never be sent again from
here: only the caller knows whether that is safe. Threads must never share a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Final, TypeVar
from uuid import UUID

from semel.client import codes
from semel.client.connection import Connection, ConnectionLost, ConnectionRefused
from semel.client.errors import TopicRecreated, UnknownTopic
from semel.client.patience import MENDABLE, Moved
from semel.client.places import NO_ID, Edge, Isolation, Position, Topic, TopicPartition
from semel.client.settings import Address, ClientSettings
from semel.wire import kafka
from semel.wire.group_list import GroupInList
from semel.wire.message import Request, Response

A = TypeVar("A")
R = TypeVar("R", bound=Response)

# The kinds of names that have a coordinator.
GROUP: Final = 0
TRANSACTION: Final = 1


class Cluster:
    """Use it in a `with` block, or close it. It holds one connection to each broker that it talks to."""

    def __init__(
        self, settings: ClientSettings, *, address_is_new: bool = False, brokers: list[Address] | None = None
    ) -> None:
        """`address_is_new` says that this is the first attempt to reach these addresses: until one has answered, a
        refused connection means that they are wrong, and not that the brokers are away for a moment. Clusters of
        several threads may share `brokers`, where each notes the brokers that there are: what one has learned, all
        know when the bootstrap servers are gone."""
        self.settings = settings
        self._may_be_wrong = address_is_new
        self._connections: dict[Address, Connection] = {}
        self._brokers: list[Address] = [] if brokers is None else brokers
        self._controller: Address | None = None
        self._topics: dict[str, Topic] = {}
        # For each known topic, the leaders by partition.
        self._leaders: dict[str, dict[int, Address | None]] = {}
        # The topics that this client writes to: for these, an error about rights names Write, and not Read.
        self._written: set[str] = set()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; the next request opens a new one."""
        while self._connections:
            self._connections.popitem()[1].close()

    # -- requests

    def ask(self, address: Address, request: Request[R]) -> R:
        """The answer of one broker."""
        return self._over(self.lease(address), address, lambda connection: connection.ask(request))

    def ask_any(self, request: Request[R]) -> R:
        """The answer of the first broker that gives one: first the connected brokers, then the known ones, then the
        bootstrap servers. Only for requests that change nothing: a broker that gave no answer may have done what was
        requested.
        """
        lost: ConnectionLost | None = None
        for address in self._addresses():
            try:
                return self.ask(address, request)
            except ConnectionLost as reason:
                # If only some of the addresses refuse, that is not what has gone wrong.
                lost = reason if lost is None or isinstance(lost, ConnectionRefused) else lost
        raise lost or ConnectionLost("no broker is known")

    def ask_once(self, request: Request[R]) -> R:
        """The answer of the first broker that accepts a connection; the request is sent to no other broker."""
        lost: ConnectionLost | None = None
        for address in self._addresses():
            try:
                connection = self.lease(address)
            except ConnectionLost as reason:
                lost = lost or reason
                continue
            return self._over(connection, address, lambda leased: leased.ask(request))
        raise lost or ConnectionLost("no broker is known")

    def ask_controller(self, request: Request[R]) -> R:
        """The answer of the broker that changes topics. In newer clusters, any broker forwards such a request."""
        self._describe([])
        if self._controller is None:
            return self.ask_once(request)
        return self.ask(self._controller, request)

    def list_groups(self, address: Address) -> tuple[int, list[GroupInList]]:
        """The error code and the groups of one broker."""
        return self._over(self.lease(address), address, Connection.list_groups)

    def lease(self, address: Address) -> Connection:
        """A connection for this caller only, who gives it back with no request under way."""
        connection = self._connections.pop(address, None)
        if connection is not None and connection.has_expired:
            connection.close()
            connection = None
        if connection is None:
            try:
                connection = Connection(address, self.settings)
            except ConnectionRefused as refused:
                if self._may_be_wrong:
                    raise
                raise ConnectionLost(str(refused)) from None
        return connection

    def give_back(self, address: Address, connection: Connection) -> None:
        """Take back a connection over which nothing is under way."""
        if self._connections.setdefault(address, connection) is not connection:
            connection.close()

    def _addresses(self) -> Iterable[Address]:
        return dict.fromkeys([*self._connections, *self._brokers, *self.settings.bootstrap])

    def _over(self, connection: Connection, address: Address, ask: Callable[[Connection], A]) -> A:
        """The answer over a leased connection, which is given back, or closed if there is no answer."""
        try:
            answer = ask(connection)
        except BaseException:
            connection.close()
            raise
        self._may_be_wrong = False
        self.give_back(address, connection)
        return answer

    # -- brokers

    def cluster_id(self) -> str:
        """The id of the cluster."""
        return str(self._ask_metadata([], may_make=False).cluster_id)

    def brokers(self) -> list[Address]:
        """Every broker of the cluster."""
        self._describe([])
        return list(self._brokers)

    def coordinator(self, name: str, kind: int) -> Address:
        """The coordinator of a group or a transactional id."""
        answer = self.ask_any(kafka.find_coordinator.FindCoordinatorRequest(key=name, key_type=kind))
        what = f"group {name!r}" if kind == GROUP else f"transactional id {name!r}"
        right = f"{'Read' if kind == GROUP else 'Write'} on {what}"
        codes.check_coordinator(what, answer.error_code, answer.error_message, right=right)
        return answer.host, answer.port

    # -- topics

    def topics(self, names: Iterable[str], *, to_write: bool = False) -> dict[str, Topic]:
        """The topics of these names that exist. A refusal names the right to read them, or to write to them."""
        wanted = list(dict.fromkeys(names))
        if to_write:
            self._written.update(wanted)
        return self._describe(wanted) if wanted else {}

    def every_topic(self, *, with_internal: bool = False) -> dict[str, Topic]:
        """All topics that can be used now; the brokers' internal ones only if requested."""
        return self._describe(None, with_internal=with_internal)

    def topic_to_write(self, name: str) -> Topic:
        """The topic; a broker that creates topics automatically creates it if it is missing."""
        self._written.add(name)
        topic = self._describe([name], may_make=True).get(name)
        if topic is None:
            raise UnknownTopic(f"there is no topic {name!r}, and the broker does not make it")
        return topic

    def leader_of(self, where: TopicPartition, topic_id: UUID = NO_ID) -> Address:
        """The broker that leads a partition; with `topic_id`, only if the topic has this id."""
        if not self._is_known(where):
            self._describe([where.topic])
        topic = self._topics.get(where.topic)
        if topic is None:
            raise UnknownTopic(f"there is no topic {where.topic!r}")
        if topic_id not in (NO_ID, topic.id) and topic.id != NO_ID:
            raise TopicRecreated(
                f"topic {where.topic!r} was deleted and created again: its id was {topic_id} and is {topic.id}"
            )
        if not self._is_known(where):
            last = topic.partitions - 1
            raise UnknownTopic(
                f"topic {where.topic!r} has no partition {where.partition}: its partitions are 0 to {last}"
            )
        leader = self._leaders[where.topic][where.partition]
        if leader is None:
            self.forget(where.topic)
            raise Moved(f"partition {where} has no leader now")
        return leader

    def by_leader(self, partitions: Iterable[TopicPartition]) -> dict[Address, list[TopicPartition]]:
        """The partitions, grouped by the broker that leads them."""
        missing = {where.topic for where in partitions if not self._is_known(where)}
        if missing:
            self._describe(sorted(missing))
        led: dict[Address, list[TopicPartition]] = {}
        for where in partitions:
            led.setdefault(self.leader_of(where), []).append(where)
        return led

    def forget(self, topic: str) -> None:
        """Forget the metadata of a topic; it is fetched again when it is needed."""
        self._topics.pop(topic, None)
        self._leaders.pop(topic, None)

    def check(self, where: TopicPartition, code: int, operation: str) -> None:
        """Raise the error that a code about a partition means."""
        try:
            codes.check_partition(where, code, operation=operation)
        except MENDABLE:
            self.forget(where.topic)
            raise

    # -- offsets

    def offsets(
        self, partitions: Iterable[TopicPartition], at: Position, isolation: Isolation
    ) -> Iterator[tuple[TopicPartition, int | None]]:
        """Where each partition begins, where it ends, or the offset of its first record from a time (in ms) on; None if
        there is no such record. One leader is asked after the other, so that earlier answers are known if one fails.
        """
        place = at.value if isinstance(at, Edge) else max(at, 0)
        for address, led in self.by_leader(list(partitions)).items():
            for where, offset in self._list_offsets(address, led, place, isolation).items():
                yield where, None if offset < 0 else offset

    def _list_offsets(
        self, address: Address, partitions: list[TopicPartition], place: int, isolation: Isolation
    ) -> dict[TopicPartition, int]:
        api = kafka.list_offsets
        wanted: dict[str, list[kafka.list_offsets.ListOffsetsPartition]] = {}
        for where in partitions:
            wanted.setdefault(where.topic, []).append(
                api.ListOffsetsPartition(partition_index=where.partition, timestamp=place)
            )
        topics = [api.ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in wanted.items()]
        request = api.ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics)
        try:
            answer = self.ask(address, request)
        except ConnectionLost:
            for name in wanted:
                self.forget(name)
            raise
        offsets = {}
        for topic in answer.topics:
            for one in topic.partitions:
                where = TopicPartition(topic.name, one.partition_index)
                self.check(where, one.error_code, "Read")
                offsets[where] = one.offset
        if offsets.keys() != set(partitions):
            raise Moved(f"the broker at {address[0]}:{address[1]} did not answer for all partitions")
        return offsets

    # -- metadata

    def _is_known(self, where: TopicPartition) -> bool:
        return where.partition in self._leaders.get(where.topic, ())

    def _describe(
        self, names: list[str] | None, *, may_make: bool = False, with_internal: bool = False
    ) -> dict[str, Topic]:
        """Request the metadata of these topics, or of all; remembers their ids and the leaders of their partitions."""
        answer = self._ask_metadata(names, may_make=may_make)
        addresses = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        self._brokers[:] = dict.fromkeys(addresses.values())
        self._controller = addresses.get(answer.controller_id)
        topics = {}
        for topic in answer.topics:
            # Only a request that names topics by their ids gets an answer without a name.
            topic_name = topic.name or ""
            self.forget(topic_name)
            is_hidden = topic.is_internal and not with_internal
            if topic.error_code in codes.UNKNOWN or (names is None and (topic.error_code or is_hidden)):
                continue
            if topic.error_code in codes.MOVED:
                raise Moved(f"topic {topic_name!r} has no leaders yet ({codes.name_of(topic.error_code)})")
            if topic.error_code:
                # Each of the two rights includes Describe.
                right = f"{'Write' if topic_name in self._written else 'Read'} on topic {topic_name!r}"
                raise codes.refusal(f"topic {topic_name!r}", topic.error_code, right=right)
            topic_id = UUID(bytes=topic.topic_id)
            topics[topic_name] = self._topics[topic_name] = Topic(topic_name, topic_id, len(topic.partitions))
            self._leaders[topic_name] = {
                partition.partition_index: addresses.get(partition.leader_id) for partition in topic.partitions
            }
        return topics

    def _ask_metadata(self, names: list[str] | None, *, may_make: bool) -> kafka.metadata.MetadataResponse:
        api = kafka.metadata
        topics = None if names is None else [api.MetadataRequestTopic(name=name) for name in names]
        return self.ask_any(api.MetadataRequest(topics=topics, allow_auto_topic_creation=may_make))
