"""What the log remembers: every change of state is one of these entries, and nothing else changes state.

A state machine decides (request -> entries and an answer) and applies (entry -> new state). The same `apply` runs when
a request is served and when the journal is replayed after a crash, so there is no second path that could disagree.
Entries are plain values; how they become bytes is the business of `semel.storage.encoding`.
"""

from dataclasses import dataclass
from typing import NamedTuple


class PartitionName(NamedTuple):
    """A partition as entries name it: by its topic's number, so that a namesake made later is another one."""

    number: int
    partition: int


class StoredOffset(NamedTuple):
    """How far a group has come in one partition, and what it noted beside it."""

    number: int
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class StoredMember(NamedTuple):
    """A member of a classic group. What it asked for and what it was given are bytes of the clients', as base64."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: str
    assignment: str


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """A topic came to be. `number` names it in the journal and is never used again, not by a namesake either."""

    number: int
    name: str
    topic_id: bytes
    partition_count: int
    configs: dict[str, str]
    at_ms: int


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A topic ceased to be. Producer ids below `next_producer_id` may have had state in it that is forgotten now."""

    number: int
    next_producer_id: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """A topic grew to `partition_count` partitions in all."""

    number: int
    partition_count: int


@dataclass(frozen=True, slots=True)
class ConfigsChanged:
    """These are the configurations set on a topic from now on: all of them, not a difference."""

    number: int
    configs: dict[str, str]


@dataclass(frozen=True, slots=True)
class ProducerIdsReserved:
    """The producer ids from `first` on, `count` of them, may be handed out: a crash wastes ids, it repeats none."""

    first: int
    count: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class LogStartMoved:
    """Records of a partition below `offset` are gone, by retention or on request."""

    number: int
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class BatchAppended:
    """A record batch took its offsets. `batch` is the batch as stored: its header, then records, which stay closed."""

    number: int
    partition: int
    at_ms: int
    batch: bytes | memoryview


@dataclass(frozen=True, slots=True)
class TransactionalIdClaimed:
    """From now on a transactional id belongs to this producer id in this epoch, and its former owner is fenced.

    `last_producer_id` and `last_epoch` (-1: none) are what its owner knew before, so that its retry is recognised.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    last_producer_id: int
    last_epoch: int
    timeout_ms: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class TransactionGrew:
    """These partitions and groups take part in the open transaction of a producer; the first ones open it."""

    producer_id: int
    producer_epoch: int
    partitions: tuple[PartitionName, ...]
    groups: tuple[str, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class TransactionalOffsets:
    """Offsets of a group that will count when the producer's open transaction is committed."""

    producer_id: int
    producer_epoch: int
    group: str
    offsets: tuple[StoredOffset, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """A transaction came to its end, in all its partitions and groups at once.

    `marker_epoch` is the epoch that the control records bear; `next_producer_id` and `next_epoch` are what the
    transactional id goes on with: the same ones, a later epoch, or a new id where the epochs are used up. `fenced`: it
    was aborted for a successor of its owner, who is not heard any more, whatever it repeats.
    """

    producer_id: int
    marker_epoch: int
    next_producer_id: int
    next_epoch: int
    committed: bool
    partitions: tuple[PartitionName, ...]
    groups: tuple[str, ...]
    at_ms: int
    fenced: bool = False

    @property
    def place_count(self) -> int:
        """In how many places something ends."""
        return len(self.partitions) + len(self.groups)


@dataclass(frozen=True, slots=True)
class TransactionalIdsForgotten:
    """These transactional ids were silent for too long."""

    transactional_ids: tuple[str, ...]
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """How far a group has come. `retention_ms` is the client's own wish (-1: what the broker is set to)."""

    group: str
    offsets: tuple[StoredOffset, ...]
    retention_ms: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class OffsetsForgotten:
    """A group's offsets in these partitions are gone: deleted, or too old."""

    group: str
    partitions: tuple[PartitionName, ...]


@dataclass(frozen=True, slots=True)
class ClassicGroupChanged:
    """A generation of a classic group has its assignments; without members, the group is empty."""

    group: str
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    members: tuple[StoredMember, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class GroupDeleted:
    """A group is gone, with its members and its offsets."""

    group: str


@dataclass(frozen=True, slots=True)
class GroupConfigsChanged:
    """These are the configurations set on a group from now on: all of them, whether the group exists or not."""

    group: str
    configs: dict[str, str]


class ConsumerSubscription(NamedTuple):
    """What a member of a consumer group last said about itself. An empty `topic_regex` is none.

    `classic_session_timeout_ms` is -1 unless the member speaks the classic protocol; `classic_protocols` is what such a
    member brought: names of protocols and, in base64, the bytes for each.
    """

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topic_names: tuple[str, ...]
    topic_regex: str
    assignor: str | None
    classic_session_timeout_ms: int = -1
    classic_protocols: tuple[tuple[str, str], ...] = ()


class Span(NamedTuple):
    """Partitions of one topic that follow on each other: from `begin` on, before `end`."""

    number: int
    begin: int
    end: int


class HeldSpan(NamedTuple):
    """Partitions that a member may read, and since which epoch."""

    number: int
    begin: int
    end: int
    epoch: int


class ConsumerPosition(NamedTuple):
    """Where a member of a consumer group is on its way to its target: what it may read, and what it has to give up."""

    member_id: str
    epoch: int
    previous_epoch: int
    state: int
    held: tuple[HeldSpan, ...]
    revoking: tuple[HeldSpan, ...]


class ConsumerTarget(NamedTuple):
    """The partitions that a member of a consumer group reads once all members have reached their targets."""

    member_id: str
    partitions: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupChanged:
    """What one step changed in a group of the new protocol: all of it counts, or none.

    The epochs and the digest of the topics are the group's from now on. Of members and targets only those are named
    that changed. A group of the classic protocol of this name is one of the new protocol from now on.
    """

    group: str
    epoch: int
    target_epoch: int
    topics_digest: str
    left: tuple[str, ...]
    subscriptions: tuple[ConsumerSubscription, ...]
    targets: tuple[ConsumerTarget, ...]
    positions: tuple[ConsumerPosition, ...]
    at_ms: int


class AccessRule(NamedTuple):
    """One rule about what a principal may do: an ACL binding, with the numbers and texts of the Kafka protocol.

    `name` and `pattern` say which resources of a type it is about, `principal`, `host` and `operation` which requests,
    and `permission` whether it allows or denies them.
    """

    resource_type: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int


@dataclass(frozen=True, slots=True)
class AccessRulesAdded:
    """These rules hold from now on. One that holds already stays as it is."""

    rules: tuple[AccessRule, ...]


@dataclass(frozen=True, slots=True)
class AccessRulesRemoved:
    """These rules hold no longer. One that does not hold has nothing to lose."""

    rules: tuple[AccessRule, ...]


@dataclass(frozen=True, slots=True)
class UserCredentialSet:
    """What proves the password of a user by one mechanism, in the place of what proved it before.

    `mechanism` has the protocol's number. The password itself is nowhere, and cannot be computed from these.
    """

    user: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


@dataclass(frozen=True, slots=True)
class UserCredentialRemoved:
    """A user cannot log in by this mechanism any more."""

    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class LoginSecretMade:
    """The secret from which the salts of unknown users are derived: no client can tell them from those of users."""

    secret: bytes


@dataclass(frozen=True, slots=True)
class QuotasChanged:
    """These are the quotas of an entity from now on: all of them, not a difference. Empty: it has none any more.

    `entity` has types, such as `user`, and names; the name None is the default. `quotas` goes by Kafka's keys.
    """

    entity: tuple[tuple[str, str | None], ...]
    quotas: dict[str, float]


# A user who was removed must not come back with a loss of power, so both are durable before they are acknowledged.
UserChange = UserCredentialSet | UserCredentialRemoved

Entry = (
    TopicCreated
    | TopicDeleted
    | PartitionsAdded
    | ConfigsChanged
    | ProducerIdsReserved
    | LogStartMoved
    | BatchAppended
    | TransactionalIdClaimed
    | TransactionGrew
    | TransactionalOffsets
    | TransactionEnded
    | TransactionalIdsForgotten
    | OffsetsCommitted
    | OffsetsForgotten
    | ClassicGroupChanged
    | GroupDeleted
    | GroupConfigsChanged
    | ConsumerGroupChanged
    | AccessRulesAdded
    | AccessRulesRemoved
    | UserCredentialSet
    | UserCredentialRemoved
    | LoginSecretMade
    | QuotasChanged
)
