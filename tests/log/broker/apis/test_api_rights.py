"""What a client may do is decided request by request: each API names the rights it needs, and asks for no others.

The clients are told apart by their addresses (`guarded`): the administrator has every right, the stranger those that a
test gives him.
"""

import pytest
from test_every_version import BEFORE, requests

from asking import Asker, ConnectionEnded, at
from guarded import (
    ASKS_NO_OPERATIONS,
    CLUSTER,
    DENIED_TOPIC,
    STRANGER,
    TOPIC,
    GuardedBroker,
    create_topic,
    producing_in_a_transaction,
    rule,
)
from semel.log.broker.apis import APIS
from semel.log.broker.exchange import Exchange
from semel.log.broker.guard import NOT_ASKED, Guard
from semel.log.broker.rights import Right
from semel.log.core.access import CLUSTER_NAME, Operation, Permission, ResourceType
from semel.testing.broker import FaultyBroker
from semel.wire import versions
from semel.wire.versions import (
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LIST_GROUPS,
    METADATA,
    NAMES,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
    SYNC_GROUP,
)


def test_every_api_needs_a_right_unless_it_may_be_asked_before_a_login() -> None:
    assert [api.name for api in APIS.values() if bool(api.rights) == api.before_login] == []


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
            {"transactional_id": None, "transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1}
        ],
    }
    return more.get(api_key, [])


@pytest.mark.parametrize("api_key", APIS, ids=NAMES.__getitem__)
def test_every_api_asks_for_the_rights_that_it_names_and_for_no_others(api_key: int) -> None:
    asked: set[Right] = set()
    for grants, grants_cluster in ((True, True), (True, False), (False, False)):
        with FaultyBroker() as broker, Asker(broker.bootstrap) as ask:
            topic_id = ask.create("orders", partitions=2).topic_id
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
                served = APIS[api_key].served
                for version in {served[0], 3, 10, served[-1]}:
                    if version in served:
                        with Asker(broker.bootstrap) as other:
                            # A group of its own, so that nobody waits for the members of the version before.
                            group = {"group_id": f"g{version}"} if api_key == JOIN_GROUP else {}
                            try:
                                other(api_key, version, **wish | group)
                            except (ConnectionEnded, TypeError):
                                continue
            asked |= recording.asked
    assert asked == {*APIS[api_key].rights}


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
        answer = ask(
            INIT_PRODUCER_ID, transactional_id=None, transaction_timeout_ms=1, producer_id=-1, producer_epoch=-1
        )
        assert answer.error_code == 0


def test_a_super_user_is_one_by_type_and_name() -> None:
    with GuardedBroker(super_users=["ANONYMOUS", "Group:ANONYMOUS"]) as broker, broker.stranger() as ask:
        assert create_topic(ask, "orders") == DENIED_TOPIC
