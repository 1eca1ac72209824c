"""The entries of the journal. Every change of the broker's state is one entry, and nothing else changes the state.

A state machine decides (request -> entries and an answer) and applies (entry -> new state). The same `apply` runs when
the broker serves a request and when it replays the journal after a crash, so the two cannot differ. Entries are plain
values; `semel.log.storage.encoding` turns them into bytes.
"""

from typing import NamedTuple

from semel.log.core.values import value


class PartitionName(NamedTuple):
    """A partition as entries name it: by its topic's number, so that a topic recreated under the same name differs."""

    number: int
    partition: int


class StoredOffset(NamedTuple):
    """The offset that a group committed for one partition, with its metadata."""

    number: int
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class StoredMember(NamedTuple):
    """A member of a classic group. Its subscription and assignment are the clients' own bytes."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@value
class TopicCreated:
    """A topic was created. `number` names it in the journal and is never used again, even if the name is."""

    number: int
    name: str
    topic_id: bytes
    partition_count: int
    configs: dict[str, str]
    at_ms: int


@value
class TopicDeleted:
    """A topic was deleted, and with it the state of its producers, whose ids are all from the first `id_blocks`
    blocks.
    """

    number: int
    id_blocks: int
    at_ms: int


@value
class PartitionsAdded:
    """A topic grew to `partition_count` partitions in all."""

    number: int
    partition_count: int


@value
class ConfigsChanged:
    """All configurations that are set on a topic from now on, not only those that changed."""

    number: int
    configs: dict[str, str]


@value
class ProducerIdsReserved:
    """The broker may hand out `count` producer ids from `first` on to one principal, or to anybody if `owner` is empty.
    A crash wastes ids, but none is handed out twice.
    """

    first: int
    count: int
    at_ms: int
    owner: str


@value
class LogStartMoved:
    """Records of a partition below `offset` are gone, by retention or on request."""

    number: int
    partition: int
    offset: int


@value
class BatchAppended:
    """A record batch was appended. `batch` is the batch as stored: its header, then the encoded records."""

    number: int
    partition: int
    at_ms: int
    batch: bytes | memoryview


@value
class TransactionalIdClaimed:
    """From now on a transactional id belongs to this producer id and epoch, and its former owner is fenced.

    `last_producer_id` and `last_epoch` (-1: none) are those that the owner had before: a retry may still carry them.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    last_producer_id: int
    last_epoch: int
    timeout_ms: int
    at_ms: int


@value
class TransactionGrew:
    """These partitions and groups were added to a producer's transaction, which they open if it was not open."""

    producer_id: int
    producer_epoch: int
    partitions: tuple[PartitionName, ...]
    groups: tuple[str, ...]
    at_ms: int


@value
class TransactionalOffsets:
    """Offsets of a group that take effect when the producer's open transaction is committed."""

    producer_id: int
    producer_epoch: int
    group: str
    offsets: tuple[StoredOffset, ...]
    at_ms: int


@value
class TransactionEnded:
    """A transaction ended, in all its partitions and groups at once.

    `marker_epoch` is the epoch in the markers. `next_producer_id` and `next_epoch` are what the transactional id goes
    on with: the same ones, a later epoch, or a new id if the epochs are used up. `fenced`: a successor of the owner had
    the transaction aborted, and the broker refuses even a retry of the owner.
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
        """How many partitions and groups the transaction ends in."""
        return len(self.partitions) + len(self.groups)


@value
class TransactionalIdsForgotten:
    """The broker forgot these transactional ids, because their producers were silent for too long."""

    transactional_ids: tuple[str, ...]
    at_ms: int = 0


@value
class OffsetsCommitted:
    """A group committed offsets. `retention_ms` is what the client asked for (-1: the broker's setting)."""

    group: str
    offsets: tuple[StoredOffset, ...]
    retention_ms: int
    at_ms: int


@value
class OffsetsForgotten:
    """A group's offsets in these partitions were deleted or have expired."""

    group: str
    partitions: tuple[PartitionName, ...]


@value
class ClassicGroupChanged:
    """The generation, members and assignments of a classic group. Without members, the group is empty."""

    group: str
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    members: tuple[StoredMember, ...]
    at_ms: int


@value
class GroupDeleted:
    """A group was deleted, with its members and its offsets."""

    group: str


@value
class GroupConfigsChanged:
    """All configurations that are set on a group from now on. The group need not exist."""

    group: str
    configs: dict[str, str]


class ConsumerSubscription(NamedTuple):
    """What a member of a consumer group last said about itself. An empty `topic_regex` means that it has none.

    `classic_session_timeout_ms` is -1 unless the member speaks the classic protocol; `classic_protocols` are the
    protocols in such a member's JoinGroup: the name of each, and its metadata in base64. `principal` is the one that
    sent the last heartbeat: its expression stands for the topics that this principal may describe.
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
    principal: str = ""


class Span(NamedTuple):
    """Consecutive partitions of one topic: from `begin` to before `end`."""

    number: int
    begin: int
    end: int


class HeldSpan(NamedTuple):
    """Consecutive partitions that a member may read, and the epoch since which it may read them."""

    number: int
    begin: int
    end: int
    epoch: int


class ConsumerPosition(NamedTuple):
    """How far a member of a consumer group is on its way to its target: what it may read, and what it must give up."""

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


@value
class _MembersChanged:
    """All that one step changed in a group whose members the broker assigns.

    The epochs and the digest of the topics are the group's from now on. The entry names only those members and targets
    that changed.
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


@value
class ConsumerGroupChanged(_MembersChanged):
    """The same in a consumer group (KIP-848). If the group had the classic protocol, it has the new one from now on."""


@value
class ShareGroupChanged(_MembersChanged):
    """The same in a share group (KIP-932)."""


MembersChanged = ConsumerGroupChanged | ShareGroupChanged


class ShareBatch(NamedTuple):
    """Offsets of a share partition, both included, with the same state: available (0), acquired (1) or done (2)."""

    first: int
    last: int
    kind: int
    deliveries: int


class ShareChange(NamedTuple):
    """The runs of one share partition that changed."""

    number: int
    partition: int
    batches: tuple[ShareBatch, ...]


@value
class ShareStatesChanged:
    """The states of records in these share partitions changed: by one request, or because of the time."""

    group: str
    changes: tuple[ShareChange, ...]


class ShareStart(NamedTuple):
    """The first offset of a share partition that is not done; -1: the partition is forgotten."""

    number: int
    partition: int
    offset: int


@value
class ShareStartsSet:
    """These share partitions begin: they were used for the first time, or a person has moved or deleted them."""

    group: str
    starts: tuple[ShareStart, ...]


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


@value
class AccessRulesAdded:
    """These rules were added. A rule that exists already stays as it is."""

    rules: tuple[AccessRule, ...]


@value
class AccessRulesRemoved:
    """These rules were removed. Some of them may not have existed."""

    rules: tuple[AccessRule, ...]


@value
class UserCredentialSet:
    """A user's credential for one SASL mechanism, which replaces the one before.

    `mechanism` has the protocol's number. The password itself is stored nowhere, and cannot be computed from these.
    """

    user: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


@value
class UserCredentialRemoved:
    """A user cannot log in by this mechanism any more."""

    user: str
    mechanism: int


@value
class LoginSecretMade:
    """The secret from which the salts of unknown users are derived, so that they look like the salts of real users."""

    secret: bytes


@value
class QuotasChanged:
    """All quotas of an entity from now on, not only those that changed. Empty: it has none.

    `entity` has types, such as `user`, and names; the name None is the default. The keys of `quotas` are Kafka's.
    """

    entity: tuple[tuple[str, str | None], ...]
    quotas: dict[str, float]


# The entries by which administrators change rights, users and quotas. After a power failure a removed user or right
# must not come back, so these entries are always durable before the acknowledgement.
TopicChange = TopicCreated | TopicDeleted | PartitionsAdded
AccessChange = AccessRulesAdded | AccessRulesRemoved | UserCredentialSet | UserCredentialRemoved | QuotasChanged

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
    | ShareGroupChanged
    | ShareStatesChanged
    | ShareStartsSet
    | AccessRulesAdded
    | AccessRulesRemoved
    | UserCredentialSet
    | UserCredentialRemoved
    | LoginSecretMade
    | QuotasChanged
)
