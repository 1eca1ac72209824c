"""A change to users, access rules or quotas that was acknowledged outlives a loss of power, whatever the durability.

Otherwise a client could do again what was forbidden, and a password that was replaced would let in again.
"""

from typing import Any, Final

from administration import told
from asking import Asker
from guarded import TOPIC, WRITE, creation, rule
from semel.log.core.access import Operation, Pattern, Permission
from semel.log.storage.log import Log
from semel.testing.broker import FaultyBroker
from semel.testing.faulty import FaultyFiles, lose_all
from semel.wire.versions import ALTER_CLIENT_QUOTAS, ALTER_USER_SCRAM_CREDENTIALS, CREATE_ACLS, DELETE_ACLS

_PASSWORD: Final = {
    "name": "alice",
    "mechanism": 1,
    "iterations": 4096,
    "salt": b"salt",
    "salted_password": bytes(32),
}
_EVERY_RULE: Final = {
    "resource_type_filter": TOPIC,
    "resource_name_filter": None,
    "pattern_type_filter": Pattern.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": Operation.ANY,
    "permission_type": Permission.ANY,
}


def _quota(value: float, *, remove: bool = False) -> dict[str, Any]:
    entity = [{"entity_type": "user", "entity_name": "alice"}]
    ops = [{"key": "producer_byte_rate", "value": value, "remove": remove}]
    return {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}


REQUESTS: Final[tuple[tuple[int, dict[str, Any]], ...]] = (
    (ALTER_USER_SCRAM_CREDENTIALS, {"deletions": [], "upsertions": [_PASSWORD]}),
    (ALTER_USER_SCRAM_CREDENTIALS, {"deletions": [], "upsertions": [{**_PASSWORD, "iterations": 8192}]}),
    (ALTER_USER_SCRAM_CREDENTIALS, {"deletions": [{"name": "alice", "mechanism": 1}], "upsertions": []}),
    (CREATE_ACLS, {"creations": [creation(rule(TOPIC, "orders", WRITE))]}),
    (DELETE_ACLS, {"filters": [_EVERY_RULE]}),
    (ALTER_CLIENT_QUOTAS, _quota(1000.0)),
    (ALTER_CLIENT_QUOTAS, _quota(0.0, remove=True)),
)


def test_what_administrators_have_changed_outlives_a_loss_of_power_whatever_the_durability() -> None:
    files = FaultyFiles()
    # On a clock that stands still, so that no checkpoint makes anything durable.
    with (
        FaultyBroker(
            files=files,
            durability="os",
            access_rules=True,
            super_users=["User:ANONYMOUS"],
            clock=lambda: 1_000.0,
        ) as broker,
        Asker(broker.bootstrap) as ask,
    ):

        async def told_now() -> tuple[object, ...]:
            return told(broker._broker.log)

        before = None
        for api, fields in REQUESTS:
            ask(api, **fields)
            after = broker._call(told_now())
            assert after != before, "nothing has changed"
            left = Log.open(files.survivors(lose_all), new_cluster_id="")
            assert told(left) == after, (api, fields)
            before = after
