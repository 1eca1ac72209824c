"""What a client may do is decided request by request: each API names the rights it needs, and asks for no others.

The clients are told apart by their addresses (`guarded`): the administrator has every right, the stranger those that a
test gives him.
"""

import sys

import pytest
from test_every_version import BEFORE, VERSIONS, error_codes, requests

from asking import Asker, ConnectionEnded, at
from guarded import (
    ASKS_NO_OPERATIONS,
    CLUSTER,
    DENIED_CLUSTER,
    DENIED_GROUP,
    DENIED_ID,
    DENIED_TOPIC,
    STRANGER,
    TOPIC,
    GuardedBroker,
    create_topic,
    producing_in_a_transaction,
    rule,
)
from semel.log.broker.apis import HANDLERS
from semel.log.broker.exchange import Exchange
from semel.log.broker.guard import NOT_ASKED, Guard, Right
from semel.log.core.access import CLUSTER_NAME, Operation, Permission, ResourceType
from semel.testing.broker import FaultyBroker
from semel.wire import versions
from semel.wire.errors import ErrorCode
from semel.wire.versions import (
    ADD_PARTITIONS_TO_TXN,
    ANNOUNCED,
    API_VERSIONS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LIST_GROUPS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SYNC_GROUP,
)

NAMES = {key: name for name, key in vars(versions).items() if isinstance(key, int) and name != "PRODUCE_SERVED_MIN"}


# -- every API ------------------------------------------------------------------------------------------------------


def rights_of(api_key: int) -> set[Right]:
    return set(sys.modules[HANDLERS[api_key].__module__].RIGHTS)  # type: ignore[attr-defined]


@pytest.mark.parametrize("api_key", ANNOUNCED, ids=NAMES.__getitem__)
def test_every_api_names_the_rights_that_it_needs(api_key: int) -> None:
    assert rights_of(api_key) or api_key in (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE)


class Recording(Guard):
    """Grants what a test says, and remembers what it was asked."""

    def __init__(self, *, grants: bool, grants_cluster: bool) -> None:
        self.in_force = True
        self.asked: set[Right] = set()
        self._grants = grants
        self._grants_cluster = grants_cluster

    def sees(self, exchange: Exchange, right: Right, name: str = CLUSTER_NAME) -> bool:
        self.asked.add(right)
        return self._grants_cluster if right.resource_type == CLUSTER else self._grants

    def check_some(self, exchange: Exchange, right: Right) -> None:
        self.asked.add(right)

    def operations(self, exchange: Exchange, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        return NOT_ASKED

    def note_administration(self, exchange: Exchange, change: str, name: str, **fields: object) -> None:
        pass

    def _note(self, exchange: Exchange, right: Right, name: str) -> None:
        pass


def more_requests(api_key: int) -> list[dict[str, object]]:
    """What else has to be asked so that each right of an API is needed once."""
    resources = [{"resource_type": number, "resource_name": "1", "configuration_keys": None} for number in (4, 32)]
    changes = [{"resource_type": number, "resource_name": "1", "configs": []} for number in (4, 32)]
    more: dict[int, list[dict[str, object]]] = {
        FIND_COORDINATOR: [{"key": "a", "key_type": kind, "coordinator_keys": ["a"]} for kind in (1, 2)],
        DESCRIBE_CONFIGS: [{"resources": resources, "include_synonyms": False, "include_documentation": False}],
        versions.ALTER_CONFIGS: [{"resources": changes, "validate_only": True}],
        INCREMENTAL_ALTER_CONFIGS: [{"resources": changes, "validate_only": True}],
        METADATA: [
            {
                "topics": [{"name": "other", "topic_id": bytes(16)}],
                "allow_auto_topic_creation": True,
                **ASKS_NO_OPERATIONS,
            }
        ],
        INIT_PRODUCER_ID: [
            {"transactional_id": None, "transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
        ],
    }
    return more.get(api_key, [])


@pytest.mark.parametrize("api_key", ANNOUNCED, ids=NAMES.__getitem__)
def test_every_api_asks_for_the_rights_that_it_names_and_for_no_others(api_key: int) -> None:
    asked: set[Right] = set()
    for grants, grants_cluster in ((True, True), (True, False), (False, False)):
        with FaultyBroker() as broker, Asker(broker.bootstrap) as ask:
            topic_id = ask.create("orders", partitions=2).topic_id.bytes
            producer_id = ask(INIT_PRODUCER_ID, **requests(topic_id, -1)[INIT_PRODUCER_ID]).producer_id
            sensible = requests(topic_id, producer_id)
            for before in (ADD_PARTITIONS_TO_TXN, *BEFORE.get(api_key, ())):
                ask(before, 3 if before == ADD_PARTITIONS_TO_TXN else None, **sensible[before])
            if api_key == DESCRIBE_GROUPS:
                joined = ask(JOIN_GROUP, **sensible[JOIN_GROUP])
                syncing = requests(topic_id, producer_id, joined.member_id)[SYNC_GROUP]
                ask(SYNC_GROUP, **syncing | {"generation_id": joined.generation_id})
            if api_key in (OFFSET_FETCH, LIST_GROUPS):
                ask(OFFSET_COMMIT, **sensible[OFFSET_COMMIT])
            broker._broker.guard = recording = Recording(grants=grants, grants_cluster=grants_cluster)
            wishes = [sensible[api_key], *more_requests(api_key)]
            if api_key == PRODUCE:
                wishes.append(producing_in_a_transaction(topic_id, producer_id))
            for wish in wishes:
                oldest = max(ANNOUNCED[api_key].min, 3 * (api_key == PRODUCE))
                for version in {oldest, 3, 10, ANNOUNCED[api_key].max}:
                    if versions.is_announced(api_key, version):
                        with Asker(broker.bootstrap) as other:
                            # A group of its own, so that nobody waits for the members of the version before.
                            group = {"group_id": f"g{version}"} if api_key == JOIN_GROUP else {}
                            try:
                                other(api_key, version, **wish | group)
                            except (ConnectionEnded, TypeError):
                                continue
            asked |= recording.asked
    assert asked == rights_of(api_key)


# What a client without any right is answered to a sensible request, where it is not an error everywhere.
DENIED = {
    **dict.fromkeys(("PRODUCE", "FETCH", "LIST_OFFSETS", "METADATA", "CREATE_TOPICS", "DELETE_TOPICS"), DENIED_TOPIC),
    **dict.fromkeys(("DELETE_RECORDS", "OFFSET_FOR_LEADER_EPOCH", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"), DENIED_TOPIC),
    **dict.fromkeys(("INCREMENTAL_ALTER_CONFIGS", "CREATE_PARTITIONS", "DESCRIBE_PRODUCERS"), DENIED_TOPIC),
    "DESCRIBE_TOPIC_PARTITIONS": DENIED_TOPIC,
    **dict.fromkeys(("OFFSET_COMMIT", "OFFSET_FETCH", "FIND_COORDINATOR", "JOIN_GROUP", "HEARTBEAT"), DENIED_GROUP),
    **dict.fromkeys(("LEAVE_GROUP", "SYNC_GROUP", "DESCRIBE_GROUPS", "DELETE_GROUPS", "OFFSET_DELETE"), DENIED_GROUP),
    **dict.fromkeys(("CONSUMER_GROUP_HEARTBEAT", "CONSUMER_GROUP_DESCRIBE"), DENIED_GROUP),
    **dict.fromkeys(("INIT_PRODUCER_ID", "ADD_OFFSETS_TO_TXN", "END_TXN", "TXN_OFFSET_COMMIT"), DENIED_ID),
    **dict.fromkeys(("ADD_PARTITIONS_TO_TXN", "DESCRIBE_TRANSACTIONS"), DENIED_ID),
    **dict.fromkeys(("CREATE_ACLS", "DESCRIBE_ACLS", "DELETE_ACLS", "DESCRIBE_LOG_DIRS"), DENIED_CLUSTER),
    **dict.fromkeys(("DESCRIBE_USER_SCRAM_CREDENTIALS", "ALTER_USER_SCRAM_CREDENTIALS"), DENIED_CLUSTER),
    **dict.fromkeys(("DESCRIBE_CLIENT_QUOTAS", "ALTER_CLIENT_QUOTAS", "DESCRIBE_QUORUM"), DENIED_CLUSTER),
    **dict.fromkeys(("ALTER_PARTITION_REASSIGNMENTS", "LIST_PARTITION_REASSIGNMENTS"), DENIED_CLUSTER),
    **dict.fromkeys(("ELECT_LEADERS", "ALTER_REPLICA_LOG_DIRS"), DENIED_CLUSTER),
    # These show less instead.
    **dict.fromkeys(("LIST_GROUPS", "LIST_TRANSACTIONS", "API_VERSIONS", "DESCRIBE_CLUSTER"), ErrorCode.NONE),
}
# Brokers ask for others in these versions, and need the right to.
DENIED_TO_BROKERS = {(ADD_PARTITIONS_TO_TXN, 4): DENIED_CLUSTER, (ADD_PARTITIONS_TO_TXN, 5): DENIED_CLUSTER}
# These had no error yet.
WITHOUT_ERROR = {(versions.DESCRIBE_LOG_DIRS, 1), (versions.DESCRIBE_LOG_DIRS, 2)}


def test_without_a_right_a_client_gets_the_error_of_apache_kafka_in_every_version(
    broker: GuardedBroker, admin: Asker, stranger: Asker
) -> None:
    topic_id = admin.create("orders", partitions=2).topic_id.bytes
    sensible = requests(topic_id, -1, "member")
    for api_key, version in VERSIONS:
        codes = set(error_codes(stranger(api_key, version, **sensible[api_key])))
        expected = DENIED_TO_BROKERS.get((api_key, version), DENIED[NAMES[api_key]])
        if (api_key, version) not in WITHOUT_ERROR:
            assert codes - {0} == {int(expected)} - {0}, (NAMES[api_key], version)
    assert broker.topics() == ["orders"]


def test_a_broker_without_rules_in_force_denies_nothing_whatever_rules_it_keeps() -> None:
    with FaultyBroker() as broker, Asker(broker.bootstrap, source=STRANGER) as ask:
        ask.create("orders")
        ask.produce("orders", at(1))


def test_a_super_user_may_do_everything_whatever_the_rules_say() -> None:
    denying = rule(TOPIC, "*", Operation.ALL, Permission.DENY, host="*")
    with GuardedBroker(super_users=["User:ANONYMOUS"]) as broker, broker.stranger() as ask:
        broker.add(denying)
        ask.create("orders")
        ask.produce("orders", at(1))
        answer = ask(INIT_PRODUCER_ID, transactional_id=None, transaction_timeout=1, producer_id=-1, producer_epoch=-1)
        assert answer.error_code == 0


def test_a_super_user_is_one_by_type_and_name() -> None:
    with GuardedBroker(super_users=["ANONYMOUS", "Group:ANONYMOUS"]) as broker, broker.stranger() as ask:
        assert create_topic(ask, "orders") == DENIED_TOPIC
