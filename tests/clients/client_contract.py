"""What the tests ask of a Kafka client, in one shape for all of them: an administrator, producers and consumers. The
adapters behind it translate words and nothing else; they must never retry, repair or hide what the client does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal, NamedTuple, TypeVar

from cluster_under_test import FOREIGN_CLUSTER
from eventually import eventually

T = TypeVar("T")

WAIT_SECONDS_MAX = 30.0
"""How long a client may take for what the broker has promised. Reached only by a test that fails."""

WAIT_MS_MAX = int(WAIT_SECONDS_MAX * 1000)

SESSION_TIMEOUT_MS = 6000
"""The shortest that a broker grants by default."""

HEARTBEAT_INTERVAL_MS = 200
"""A heartbeat is how a member hears that its group changes."""

UNKNOWN_TOPIC_OR_PARTITION = 3
REQUEST_TIMED_OUT = 7
MESSAGE_TOO_LARGE = 10
INVALID_TOPIC_EXCEPTION = 17
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_CONFIG = 40
INVALID_PRODUCER_EPOCH = 47
PRODUCER_FENCED = 90

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """A record as a program gives it to a client, or gets it back."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int = 1_700_000_000_000


class Stored(NamedTuple):
    """A record with the place where the log keeps it."""

    partition: int
    offset: int
    record: Record


class ClientError(Exception):
    """The client reported an error of the protocol; the client's own exception is the cause."""

    def __init__(self, code: int, message: object) -> None:
        super().__init__(f"error {code}: {message}")
        self.code = code


Place = tuple[str, int]
"""A topic and a partition of it."""

Isolation = Literal["read_uncommitted", "read_committed"]

GroupProtocol = Literal["eager", "cooperative", "consumer"]
"""How a group shares its partitions: all given back before each change, only those that move, or as the broker says."""


class Producer(ABC):
    """Leaving the `with` block closes the client. One with a transactional id sends nothing outside a transaction."""

    @abstractmethod
    def send(self, topic: str, partition: int, records: Sequence[Record]) -> list[int]:
        """Hand over all records, wait for all acknowledgements and return the offsets. `ClientError` if one fails."""

    @abstractmethod
    def begin(self) -> None: ...

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def abort(self) -> None: ...

    @abstractmethod
    def send_offsets(self, member: Member, offsets: Mapping[Place, int]) -> None:
        """Let the group of this member go on from there if, and only if, the transaction is committed."""

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...


class Consumer(ABC):
    """Reads the partitions it was assigned. Leaving the `with` block closes the client."""

    @abstractmethod
    def read(self, count: int, seconds_max: float = WAIT_SECONDS_MAX) -> list[Stored]:
        """The next records, in the order in which the client gave them; fewer than `count` once the time is up."""

    @abstractmethod
    def seek(self, topic: str, partition: int, offset: int) -> None: ...

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...


class Member(ABC):
    """A consumer in a group. One thread at a time may use it, and only while it polls does it follow its group.
    Leaving the `with` block closes the client, and so leaves the group, unless the member is a static one."""

    @abstractmethod
    def poll(self, seconds_max: float) -> list[Stored]:
        """What came within that time; possibly nothing."""

    @abstractmethod
    def assignment(self) -> set[Place]: ...

    @abstractmethod
    def commit(self, offsets: Mapping[Place, int]) -> None:
        """Returns when the broker has them."""

    @abstractmethod
    def committed(self, place: Place) -> int | None: ...

    @abstractmethod
    def position(self, place: Place) -> int:
        """The offset that comes next."""

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...


Start = int | Literal["earliest", "latest"]


class Client(AbstractContextManager["Client"]):
    """A client library that talks to one cluster."""

    name: str
    codecs: Sequence[str]
    """Every codec that the library knows; `none` first."""
    group_protocols: Sequence[GroupProtocol]
    sends_null_headers = True
    """Whether the library lets a program send a header without a value."""
    reads_on_in_a_topic_made_anew_on_kafka = True
    """Whether a consumer of the old topic finds into the new one on Apache Kafka too. In an incremental session by
    name, Kafka goes on answering for the old topic, and says nothing."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def producer(
        self,
        *,
        codec: str = "none",
        linger_ms: int = 5,
        request_bytes_max: int = 1_000_000,
        patience_ms: int = WAIT_MS_MAX,
        transactional_id: str | None = None,
    ) -> Producer:
        """An idempotent producer, which gives up on a record after its patience. With a transactional id it is ready
        to begin, and whoever had the id before it is fenced."""

    @abstractmethod
    def consumer(
        self,
        topic: str,
        starts: Mapping[int, Start],
        *,
        fetch_wait_ms: int = 500,
        isolation: Isolation = "read_uncommitted",
    ) -> Consumer:
        """A consumer without a group, assigned to partitions, that goes to the earliest record when it is lost."""

    @abstractmethod
    def member(
        self,
        group: str,
        topics: Sequence[str],
        *,
        protocol: GroupProtocol = "eager",
        static_name: str | None = None,
        pattern: str | None = None,
    ) -> Member:
        """A consumer that joins a group, commits when it is told to, reads what was committed, and starts at the
        earliest record where its group has no offset. It wants these topics, or all whose names begin like the
        pattern says, a regular expression that opens with `^`."""

    @abstractmethod
    def create_topic(self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None: ...

    @abstractmethod
    def delete_topic(self, topic: str) -> None: ...

    @abstractmethod
    def create_partitions(self, topic: str, total: int) -> None: ...

    @abstractmethod
    def topics(self) -> set[str]: ...

    @abstractmethod
    def partitions_of(self, topic: str) -> dict[int, int]:
        """The leader of each partition; empty if there is no such topic."""

    @abstractmethod
    def config(self, topic: str, name: str) -> str: ...

    @abstractmethod
    def set_config(self, topic: str, name: str, value: str) -> None: ...

    @abstractmethod
    def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Returns the new first offset."""

    @abstractmethod
    def earliest(self, topic: str, partition: int) -> int: ...

    @abstractmethod
    def latest(self, topic: str, partition: int) -> int: ...

    @abstractmethod
    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        """The first offset whose timestamp is not before this one; None if there is none."""


def settled(ask: Callable[[], T], wanted: T) -> T:
    """What `ask` answers. semel has done a thing when it says so, and is asked once; a cluster whose brokers tell each
    other about topics is asked until it says what is wanted."""

    def says_so() -> bool:
        try:
            return ask() == wanted
        except ClientError:
            return False

    if FOREIGN_CLUSTER is not None:
        assert eventually(says_so, WAIT_SECONDS_MAX), f"the cluster never says {wanted}"
    return ask()
