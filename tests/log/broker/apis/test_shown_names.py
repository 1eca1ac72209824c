"""No answer names what its client may not see, whatever the client asks, in any version of any API.

There is a scene of things with secret names, some of them in places that the stranger may see: members, offsets and a
transaction in a topic that is hidden from him. He asks everything that is asked in `test_every_version`, and all lists.
The bytes of the answers must not have any of these names, nor the id of a hidden topic unless he sent it himself.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

import pytest
from test_consumer_groups import beat
from test_every_version import VERSIONS, requests

import plain_messages as messages
from asking import Asker, fetch_fields
from guarded import (
    ASKS_NO_OPERATIONS,
    DENIED_TOPIC,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    GuardedBroker,
    creation,
    rule,
)
from logged_in import BrokerOfUsers
from semel.log.broker.apis import APIS
from semel.log.broker.limits import Limits
from semel.log.core.access import Operation, Pattern
from semel.log.core.groups.consumer_protocol import write_assignment
from semel.wire.errors import ErrorCode
from semel.wire.versions import (
    ADD_PARTITIONS_TO_TXN,
    ALTER_CLIENT_QUOTAS,
    ALTER_USER_SCRAM_CREDENTIALS,
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    CREATE_ACLS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_GROUPS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_TOPIC_PARTITIONS,
    DESCRIBE_TRANSACTIONS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    ELECT_LEADERS,
    FETCH,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    LIST_PARTITION_REASSIGNMENTS,
    LIST_TRANSACTIONS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
)

Request = tuple[int, int, Mapping[str, object]]

HIDDEN: Final = "zz.topic"
# What no answer to the stranger may have; each is shown to the administrator.
SECRETS: Final = (HIDDEN, "zz.missing", "zz-group", "zz-id", "zz-user", "zz-principal")
SESSION_MS: Final = 1_800_000
CLAIM: Final = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
# What there is, without a name in the request.
LISTS: Final[Mapping[int, Mapping[str, object]]] = {
    METADATA: {"topics": None, "allow_auto_topic_creation": False, **ASKS_NO_OPERATIONS},
    DESCRIBE_TOPIC_PARTITIONS: {"topics": [], "response_partition_limit": 9, "cursor": None},
    LIST_GROUPS: {"states_filter": [], "types_filter": []},
    LIST_TRANSACTIONS: {"state_filters": [], "producer_id_filters": [], "duration_filter": -1},
    OFFSET_FETCH: {
        "group_id": "readers",
        "topics": None,
        "groups": [{"group_id": "readers", "topics": None}],
        "require_stable": False,
    },
    DESCRIBE_GROUPS: {"groups": ["tills", "consumers", "readers"], "include_authorized_operations": True},
    CONSUMER_GROUP_DESCRIBE: {"group_ids": ["consumers", "subscribers"], "include_authorized_operations": True},
    DESCRIBE_TRANSACTIONS: {"transactional_ids": ["payments"]},
    DESCRIBE_LOG_DIRS: {"topics": None},
    DESCRIBE_CLIENT_QUOTAS: {"components": [], "strict": False},
    DESCRIBE_USER_SCRAM_CREDENTIALS: {"users": None},
    DESCRIBE_ACLS: {
        **dict.fromkeys(("resource_type_filter", "pattern_type_filter", "operation", "permission_type"), 1),
        **dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"), None),
    },
    ELECT_LEADERS: {"election_type": 0, "topic_partitions": None, "timeout_ms": 1000},
    LIST_PARTITION_REASSIGNMENTS: {"timeout_ms": 1000, "topics": None},
}
COLLIDING: Final = {"name": "zz_topic", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}


def subscription(*names: str) -> bytes:
    """What a classic member says it reads."""
    return b"\0\0" + len(names).to_bytes(4) + b"".join(len(n).to_bytes(2) + n.encode() for n in names) + b"\xff" * 4


class Scene:
    """What there is. The stranger has rights to what has no secret name."""

    def __init__(self, broker: GuardedBroker, admin: Asker) -> None:
        self.admin = admin
        self.topic_ids = {name: admin.create(name, 2).topic_id for name in ("orders", HIDDEN)}
        for name in ("zz-id", "payments"):
            producer_id = admin(INIT_PRODUCER_ID, transactional_id=name, **CLAIM).producer_id
        partitions = [{"name": name, "partitions": [0]} for name in self.topic_ids]
        adding = {"transactional_id": "payments", "producer_id": producer_id, "producer_epoch": 0, "topics": partitions}
        admin(ADD_PARTITIONS_TO_TXN, 3, **{f"v3_and_below_{key}": value for key, value in adding.items()})
        offset = {"partition_index": 0, "committed_offset": 0, "committed_metadata": "", "committed_leader_epoch": 0}
        offsets = [{"name": name, "partitions": [offset]} for name in self.topic_ids]
        for group in ("readers", "zz-group"):
            admin(OFFSET_COMMIT, 9, group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=offsets)
        self._join_classic()
        for group, names in (("consumers", list(self.topic_ids)), ("subscribers", ["orders", "zz.missing"])):
            joining = {"rebalance_timeout_ms": 60_000, "topic_partitions": [], "subscribed_topic_names": names}
            assert beat(admin, "a", 0, group=group, **joining).error_code == 0
        ops = [{"key": "producer_byte_rate", "value": 1e9, "remove": False}]
        entity = [{"entity_type": "user", "entity_name": "zz-user"}]
        admin(ALTER_CLIENT_QUOTAS, entries=[{"entity": entity, "ops": ops}], validate_only=False)
        user = {"name": "zz-user", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": bytes(32)}
        admin(ALTER_USER_SCRAM_CREDENTIALS, deletions=[], upsertions=[user])
        admin(CREATE_ACLS, creations=[creation(rule(TOPIC, "more", READ, principal="User:zz-principal"))])
        broker.add(
            *(rule(TOPIC, "orders", operation) for operation in (READ, WRITE)),
            *(rule(GROUP, name, READ) for name in ("readers", "tills", "consumers", "subscribers")),
            rule(GROUP, "nobodys", READ, pattern=Pattern.PREFIXED),
            rule(TOPIC, "zz_", Operation.CREATE, pattern=Pattern.PREFIXED),
            rule(TRANSACTIONAL_ID, "payments", WRITE),
        )

    def _join_classic(self) -> None:
        fields: dict[str, Any] = {"group_id": "tills", "group_instance_id": "till", "protocol_type": "consumer"}
        protocols = [{"name": "range", "metadata": subscription(HIDDEN)}]
        times = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": 30_000}
        joined = self.admin(JOIN_GROUP, 7, **fields, **times, member_id="", protocols=protocols)
        assignments = [{"member_id": joined.member_id, "assignment": write_assignment([(HIDDEN, (0, 1))])}]
        member = {"member_id": joined.member_id, "generation_id": joined.generation_id, "protocol_name": "range"}
        assert self.admin(SYNC_GROUP, 5, **fields, **member, assignments=assignments).error_code == 0

    def questions(self) -> Iterator[Request]:
        """What the stranger asks: by the names that he knows, and by the ids of both topics."""
        yield CREATE_TOPICS, 7, {"topics": [COLLIDING], "timeout_ms": 1000, "validate_only": True}
        for topic_id in self.topic_ids.values():
            sensible = requests(topic_id, -1, "member")
            sensible[INIT_PRODUCER_ID]["transactional_id"] = None
            sensible[CONSUMER_GROUP_HEARTBEAT] |= {"subscribed_topic_regex": ".*", "member_id": topic_id.hex()}
            for api_key, version in VERSIONS:
                # He makes nobody wait for the members of another group, and sends none of them away.
                own = api_key in (JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP)
                more = {"group_id": f"nobodys {version} {topic_id.hex()}"} if own else {}
                yield api_key, version, sensible[api_key] | more
                if api_key == METADATA and version >= 12:
                    yield api_key, version, sensible[api_key] | {"topics": [{"name": None, "topic_id": topic_id}]}

    def lists(self) -> Iterator[Request]:
        for api_key, fields in LISTS.items():
            for version in APIS[api_key].served:
                is_nullable = not (api_key == METADATA and version == 0) and (api_key, version) != (OFFSET_FETCH, 1)
                if is_nullable:
                    yield api_key, version, fields


def answered(ask: Asker, request: Request) -> tuple[bytes, bytes]:
    """The bytes of a request and of its answer."""
    api_key, version, fields = request
    frame = messages.encode_request(api_key, version, 7, "asker", messages.build_request(api_key, version, **fields))
    return frame, ask.send(frame)


@pytest.fixture
def broker() -> Iterator[GuardedBroker]:
    """One whose members are not silent for too long while it is asked everything."""
    with GuardedBroker(limits=Limits(consumer_group_session_timeout_ms=SESSION_MS)) as broker:
        yield broker


@pytest.fixture
def scene(broker: GuardedBroker, admin: Asker) -> Scene:
    return Scene(broker, admin)


def test_no_answer_in_any_version_names_what_its_client_may_not_see(scene: Scene, stranger: Asker) -> None:
    hidden_id = scene.topic_ids[HIDDEN]
    for request in (*scene.lists(), *scene.questions(), *scene.lists()):
        asked, answer = answered(stranger, request)
        shown = [secret for secret in SECRETS if secret.encode() in answer]
        if hidden_id in answer and hidden_id not in asked:
            shown.append("the id of the hidden topic")
        assert not shown, request
    # And what was hidden is still there.
    everything = b"".join(answered(scene.admin, request)[1] for request in scene.lists())
    assert [secret for secret in SECRETS if secret.encode() not in everything] == []
    assert hidden_id in everything


def test_a_member_whose_topics_may_be_seen_is_shown_with_them(
    broker: GuardedBroker, scene: Scene, stranger: Asker
) -> None:
    def of_members(ask: Asker) -> tuple[bytes, bytes]:
        (group,) = ask(DESCRIBE_GROUPS, groups=["tills"], include_authorized_operations=False).groups
        ((metadata, assignment),) = [(one.member_metadata, one.member_assignment) for one in group.members]
        return metadata, assignment

    assert of_members(stranger) == (b"", b"")
    broker.add(rule(TOPIC, HIDDEN, DESCRIBE))
    assert of_members(stranger) == (subscription(HIDDEN), write_assignment([(HIDDEN, (0, 1))]))


def test_a_consumer_group_that_reads_a_hidden_topic_is_not_described_and_a_hidden_wish_left_out(
    broker: GuardedBroker, scene: Scene, stranger: Asker
) -> None:
    def described() -> list[tuple[int, list[tuple[str, ...]]]]:
        names = ["consumers", "subscribers"]
        answer = stranger(CONSUMER_GROUP_DESCRIBE, group_ids=names, include_authorized_operations=False)
        return [
            (int(group.error_code), [member.subscribed_topic_names for member in group.members])
            for group in answer.groups
        ]

    assert described() == [(DENIED_TOPIC, []), (0, [("orders",)])]
    broker.add(rule(TOPIC, "zz.", DESCRIBE, pattern=Pattern.PREFIXED))
    assert described() == [(0, [("orders", HIDDEN)]), (0, [("orders", "zz.missing")])]


def test_nobody_finds_out_the_name_for_an_id_by_deleting_both(scene: Scene, stranger: Asker) -> None:
    hidden_id = scene.topic_ids[HIDDEN]

    def errors_for(guess: str) -> list[int]:
        topics = [{"name": guess, "topic_id": bytes(16)}, {"name": None, "topic_id": hidden_id}]
        answer = stranger(DELETE_TOPICS, 6, topics=topics, timeout_ms=1000)
        return [int(response.error_code) for response in answer.responses]

    assert errors_for(HIDDEN) == errors_for("zz.other") == [DENIED_TOPIC, DENIED_TOPIC]
    topics = [{"name": HIDDEN, "topic_id": bytes(16)}, {"name": None, "topic_id": hidden_id}]
    answer = scene.admin(DELETE_TOPICS, 6, topics=topics, timeout_ms=1000)
    assert {response.error_code for response in answer.responses} == {ErrorCode.INVALID_REQUEST}


def test_a_fetch_session_belongs_to_the_principal_that_began_it() -> None:
    with BrokerOfUsers() as broker, broker.administrator() as admin:
        topic_id = UUID(bytes=admin.create("orders").topic_id)
        for user in ("anne", "eve"):
            broker.allow(user, (TOPIC, "orders", READ))
        with broker.log_in("anne") as anne, broker.log_in("anne") as anne_again, broker.log_in("eve") as eve:
            wanted = fetch_fields(topic_id)

            def fetch(ask: Asker, session_id: int, epoch: int) -> Any:
                topics = wanted["topics"] if epoch == 0 else []
                return ask(FETCH, 16, **wanted | {"session_id": session_id, "session_epoch": epoch, "topics": topics})

            session_id = fetch(anne, 0, 0).session_id
            assert session_id
            assert fetch(eve, session_id, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            # Neither can another principal end it.
            for epoch in (0, -1):
                fetch(eve, session_id, epoch)
            assert fetch(anne, session_id, 1).error_code == 0
            assert fetch(anne_again, session_id, 2).error_code == 0
