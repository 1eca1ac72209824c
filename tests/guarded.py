"""A broker whose access rules are in force, with an administrator on the host 127.0.0.1 and a stranger on 127.0.0.2."""

from collections.abc import Iterable
from typing import Any, Final

from asking import Asker, at, topic_wanted
from semel.log.core.access import CLUSTER_NAME, Operation, Pattern, Permission, ResourceType
from semel.log.core.entries import AccessRule
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode
from semel.wire.records import encode_batch
from semel.wire.versions import ADD_PARTITIONS_TO_TXN, CREATE_TOPICS

ADMINISTRATOR: Final = "127.0.0.1"
STRANGER: Final = "127.0.0.2"
ANYBODY: Final = "User:ANONYMOUS"

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
READ, WRITE, DESCRIBE, CREATE = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.CREATE

DENIED_TOPIC: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
DENIED_GROUP: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
DENIED_CLUSTER: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
DENIED_ID: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

# In a request for Metadata that asks only what there is.
ASKS_NO_OPERATIONS: Final = {
    "include_topic_authorized_operations": False,
    "include_cluster_authorized_operations": False,
}


def rule(
    resource_type: ResourceType,
    name: str,
    operation: Operation,
    permission: Permission = Permission.ALLOW,
    *,
    pattern: Pattern = Pattern.LITERAL,
    principal: str = ANYBODY,
    host: str = STRANGER,
) -> AccessRule:
    return AccessRule(resource_type, name, pattern, principal, host, operation, permission)


ALL_RIGHTS: Final = [
    rule(resource_type, CLUSTER_NAME if resource_type == CLUSTER else "*", Operation.ALL, host=ADMINISTRATOR)
    for resource_type in (TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID)
]


def creation(rule: AccessRule) -> dict[str, object]:
    """The rule as CreateAcls has it."""
    return {
        "resource_type": rule.resource_type,
        "resource_name": rule.name,
        "resource_pattern_type": rule.pattern,
        "principal": rule.principal,
        "host": rule.host,
        "operation": rule.operation,
        "permission_type": rule.permission,
    }


class GuardedBroker(FaultyBroker):
    """Rules come and go without a request."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(access_rules=True, **settings)

    def __enter__(self) -> "GuardedBroker":
        super().__enter__()
        self.add(*ALL_RIGHTS)
        return self

    def add(self, *rules: AccessRule) -> None:
        self._change(self._broker.log.state.access.decide_add, rules)

    def remove(self, *rules: AccessRule) -> None:
        self._change(self._broker.log.state.access.decide_remove, rules)

    def rules(self) -> list[AccessRule]:
        async def read() -> list[AccessRule]:
            return list(self._broker.log.state.access)

        return self._call(read())

    def _change(self, decide: Any, rules: Iterable[AccessRule]) -> None:
        async def change() -> None:
            entry = decide(rules)
            assert entry is not None
            self._broker.runtime.commit(entry)
            await self._broker.wait_until_durable()

        self._call(change())

    def administrator(self) -> Asker:
        return Asker(self.bootstrap)

    def stranger(self) -> Asker:
        return Asker(self.bootstrap, source=STRANGER)


def producing_in_a_transaction(topic_id: bytes, producer_id: int) -> dict[str, object]:
    batch = bytes(encode_batch(at(1), producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True))
    data = [{"name": "orders", "topic_id": topic_id, "partition_data": [{"index": 0, "records": batch}]}]
    return {"transactional_id": "payments", "acks": -1, "timeout_ms": 1000, "topic_data": data}


def add_partitions(ask: Asker, name: str, identity: tuple[int, int], *topics: str) -> dict[str, int]:
    fields = {"transactional_id": name, "producer_id": identity[0], "producer_epoch": identity[1]}
    asked = {**fields, "topics": [{"name": topic, "partitions": [0]} for topic in topics]}
    answer = ask(ADD_PARTITIONS_TO_TXN, 3, **{f"v3_and_below_{key}": value for key, value in asked.items()})
    return {
        topic.name: int(topic.results_by_partition[0].partition_error_code)
        for topic in answer.results_by_topic_v3_and_below
    }


def create_topic(ask: Asker, name: str) -> int:
    (created,) = ask(CREATE_TOPICS, topics=[topic_wanted(name)], timeout_ms=1000, validate_only=False).topics
    return int(created.error_code)
