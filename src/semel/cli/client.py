"""A small client for the commands that talk to a broker: one connection to each broker, one question at a time.

It works against semel, Apache Kafka and whatever else speaks the protocol, in the newest version that both sides know.
It waits with a limit, and what goes wrong is a `Failure` of one line. It must never send a request again by itself:
only the command that asked knows whether that is safe.
"""

import argparse
import socket
import time
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from semel.cli.addresses import Address, broker_address
from semel.cli.errors import Failure
from semel.wire import messages
from semel.wire.errors import ErrorCode, ProtocolError
from semel.wire.frames import parse_response_header, read_frame
from semel.wire.reading import NO_TOPIC_ID
from semel.wire.versions import (
    API_VERSIONS,
    CONSUMER_GROUP_DESCRIBE,
    CREATE_TOPICS,
    DELETE_GROUPS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_GROUPS,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
    VersionRange,
)

BOOTSTRAP_DEFAULT: Final = "127.0.0.1:9092"
CONNECT_SECONDS_MAX: Final = 10.0
# An answer may wait for the slowest disk, and a fetch for its records.
ANSWER_SECONDS_MAX: Final = 60.0
# A fetch asks for a megabyte, but a first batch comes whole, and topics may allow large ones.
ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024

EARLIEST: Final = -2
LATEST: Final = -1
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

# What a coordinator can be asked for.
GROUP: Final = 0
TRANSACTION: Final = 1

_NAME: Final = "semel"
# How long a topic that was just made, or a coordinator, may take until it can be used.
_READY_SECONDS_MAX: Final = 3.0

# What these commands can say. Topics go by their names, so some stop before the version in which ids replace them.
_SPOKEN: Final[dict[int, VersionRange]] = {
    PRODUCE: VersionRange(3, 11),
    FETCH: VersionRange(4, 12),
    LIST_OFFSETS: VersionRange(1, 7),
    METADATA: VersionRange(4, 12),
    CREATE_TOPICS: VersionRange(4, 7),
    DELETE_TOPICS: VersionRange(1, 5),
    INIT_PRODUCER_ID: VersionRange(0, 4),
    DESCRIBE_CONFIGS: VersionRange(1, 4),
    DESCRIBE_PRODUCERS: VersionRange(0, 0),
    FIND_COORDINATOR: VersionRange(1, 6),
    DESCRIBE_TRANSACTIONS: VersionRange(0, 0),
    LIST_TRANSACTIONS: VersionRange(0, 2),
    LIST_GROUPS: VersionRange(0, 5),
    DESCRIBE_GROUPS: VersionRange(0, 5),
    CONSUMER_GROUP_DESCRIBE: VersionRange(0, 0),
    DELETE_GROUPS: VersionRange(0, 2),
    OFFSET_COMMIT: VersionRange(2, 9),
    OFFSET_FETCH: VersionRange(2, 9),
}
_NO_COORDINATOR_YET: Final = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
_NOT_READY: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)


class ConnectionLost(Failure):
    """No connection, or no answer. Whether the broker acted on the request is not known."""


class Refused(Failure):
    """The broker's answer is an error; `code` is the protocol's number for it."""

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        self.code = int(code)
        reason = (message or "refused").rstrip(".")
        # Some brokers name in their message what it is about, and some do not.
        named = reason if what in reason else f"{what}: {reason}"
        super().__init__(f"{named} ({name_of(self.code)})")


class TopicMetadata(NamedTuple):
    """A topic as the cluster describes it; `leaders` has the broker of each partition, None where there is none."""

    name: str
    topic_id: bytes
    is_internal: bool
    leaders: dict[int, Address | None]


def add_bootstrap(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bootstrap",
        default=BOOTSTRAP_DEFAULT,
        metavar="HOST:PORT",
        help=f"a broker of the cluster ({BOOTSTRAP_DEFAULT})",
    )


def name_of(code: int) -> str:
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else f"error {code}"


class Connection:
    """One broker."""

    def __init__(self, address: Address) -> None:
        self._where = f"{address[0]}:{address[1]}"
        self._correlation_id = 0
        try:
            self._socket = socket.create_connection(address, timeout=CONNECT_SECONDS_MAX)
        except OSError as error:
            raise ConnectionLost(f"cannot connect to {self._where}: {_reason(error)}") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(ANSWER_SECONDS_MAX)
        self._versions: dict[int, int] = {}
        # Version 0 is the one that every broker understands.
        for api in self._ask(API_VERSIONS, 0, {}).api_keys:
            spoken = _SPOKEN.get(api.api_key)
            if spoken is not None and max(spoken.min, api.min_version) <= min(spoken.max, api.max_version):
                self._versions[api.api_key] = min(spoken.max, api.max_version)

    def ask(self, api_key: int, /, **values: object) -> Any:
        """The answer, as kio's dataclass of the version that both sides know."""
        version = self._versions.get(api_key)
        if version is None:
            raise Failure(f"the broker at {self._where} does not speak API {api_key} in any version known here")
        return self._ask(api_key, version, values)

    def _ask(self, api_key: int, version: int, values: dict[str, object]) -> Any:
        self._correlation_id += 1
        request = messages.build_request(api_key, version, **values)
        frame = messages.encode_request(api_key, version, self._correlation_id, _NAME, request)
        try:
            self._socket.sendall(frame)
            answer = read_frame(self._socket.recv_into, ANSWER_BYTES_MAX)
        except OSError as error:
            raise ConnectionLost(f"the connection to {self._where} broke: {_reason(error)}") from None
        except ProtocolError as error:
            raise Failure(f"{self._where} does not speak the Kafka protocol: {error}") from None
        try:
            correlation_id, body = parse_response_header(api_key, version, answer)
            if correlation_id != self._correlation_id:
                raise ProtocolError(f"an answer to request {correlation_id}, asked was {self._correlation_id}")
            return messages.decode_response(api_key, version, memoryview(answer)[body:], ANSWER_BYTES_MAX)
        except ProtocolError as error:
            raise Failure(f"{self._where} sent an answer that cannot be read: {error}") from None

    def close(self) -> None:
        self._socket.close()


class Client:
    """A cluster. Use it in a `with` block."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = broker_address(bootstrap)
        self._connections: dict[Address, Connection] = {}

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        """Close every connection; the next question opens a new one."""
        while self._connections:
            self._connections.popitem()[1].close()

    @property
    def is_connected(self) -> bool:
        return bool(self._connections)

    def ask(self, api_key: int, /, **values: object) -> Any:
        """Ask whichever broker the user named."""
        return self.at(self._bootstrap).ask(api_key, **values)

    def at(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = Connection(address)
        return connection

    def topics(self) -> list[TopicMetadata]:
        """All topics, by name."""
        answer = self.ask(METADATA, **_metadata(None, create=False))
        brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        return sorted(_read_topic(topic, brokers) for topic in answer.topics if topic.error_code == 0)

    def topic(self, name: str, *, create: bool = False) -> TopicMetadata:
        """One topic. `create` lets the broker make it, where it does so for everybody."""
        deadline = time.monotonic() + (_READY_SECONDS_MAX if create else 0)
        while True:
            answer = self.ask(METADATA, **_metadata([name], create=create))
            brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
            (topic,) = answer.topics
            if topic.error_code == 0:
                found = _read_topic(topic, brokers)
                if all(found.leaders.values()):
                    return found
            elif topic.error_code not in _NOT_READY:
                raise Refused(f"topic {name!r}", topic.error_code)
            if time.monotonic() >= deadline:
                if topic.error_code == 0:
                    return found
                raise Failure(f"there is no topic {name!r}")
            time.sleep(0.1)

    def leader(self, topic: TopicMetadata, partition: int) -> Connection:
        """The broker to write to and read from."""
        if partition not in topic.leaders:
            last = len(topic.leaders) - 1
            raise Failure(f"topic {topic.name!r} has no partition {partition}: its partitions are 0 to {last}")
        address = topic.leaders[partition]
        if address is None:
            raise ConnectionLost(f"partition {partition} of topic {topic.name!r} has no leader now")
        return self.at(address)

    def coordinator(self, key: str, key_type: int) -> Connection:
        """The broker that looks after a group or a transactional id."""
        deadline = time.monotonic() + _READY_SECONDS_MAX
        while True:
            answer = self.ask(FIND_COORDINATOR, key=key, key_type=key_type, coordinator_keys=[key])
            (found,) = getattr(answer, "coordinators", None) or [answer]
            if not found.error_code:
                return self.at((found.host, found.port))
            if found.error_code not in _NO_COORDINATOR_YET or time.monotonic() >= deadline:
                raise Refused(f"the coordinator of {key!r}", found.error_code, found.error_message)
            time.sleep(0.1)

    def brokers(self) -> list[Connection]:
        """Every broker of the cluster."""
        answer = self.ask(METADATA, **_metadata([], create=False))
        return [self.at((broker.host, broker.port)) for broker in answer.brokers]

    def offsets(
        self, topic: TopicMetadata, partitions: Iterable[int], which: int, isolation: int = READ_COMMITTED
    ) -> dict[int, int]:
        """The offset that is `EARLIEST` or `LATEST` in each partition; of what is committed, unless told otherwise."""
        found = {}
        for connection, led in self.by_leader(topic, partitions).items():
            wanted = [{"partition_index": p, "current_leader_epoch": -1, "timestamp": which} for p in led]
            answer = connection.ask(
                LIST_OFFSETS,
                replica_id=-1,
                isolation_level=isolation,
                topics=[{"name": topic.name, "partitions": wanted}],
            )
            for partition in answer.topics[0].partitions:
                if partition.error_code:
                    where = f"partition {partition.partition_index} of topic {topic.name!r}"
                    raise Refused(where, partition.error_code)
                found[partition.partition_index] = partition.offset
        return found

    def by_leader(self, topic: TopicMetadata, partitions: Iterable[int]) -> dict[Connection, list[int]]:
        """The partitions, by the broker that leads them."""
        led: dict[Connection, list[int]] = {}
        for partition in partitions:
            led.setdefault(self.leader(topic, partition), []).append(partition)
        return led


def _metadata(names: list[str] | None, *, create: bool) -> dict[str, Any]:
    topics = None if names is None else [{"topic_id": NO_TOPIC_ID, "name": name} for name in names]
    return {
        "topics": topics,
        "allow_auto_topic_creation": create,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


def _read_topic(topic: Any, brokers: dict[int, Address]) -> TopicMetadata:
    leaders = {partition.partition_index: brokers.get(partition.leader_id) for partition in topic.partitions}
    topic_id = messages.topic_id_bytes(getattr(topic, "topic_id", None))
    return TopicMetadata(topic.name, topic_id, topic.is_internal, dict(sorted(leaders.items())))


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return error.strerror or str(error)
