"""Five principals, the rules that they get in each round, and how each of them connects to either broker.

Every principal has an address of its own, so that rules for hosts are tried as well. At Apache Kafka it logs in by
PLAIN; the broker of these tests goes by the address alone.
"""

from typing import Any, Final

from asking import Asker
from guarded import CLUSTER, GROUP, TOPIC, TRANSACTIONAL_ID, rule
from semel.log.broker.broker import Broker
from semel.log.broker.connection import Connection
from semel.log.core.access import CLUSTER_NAME, Operation, Pattern, Permission, Principal
from semel.log.core.entries import AccessRule
from semel.log.embedded import EmbeddedBroker

ADMINISTRATOR: Final = "admin"
# By name, the address that a principal connects from.
HOSTS: Final = {
    ADMINISTRATOR: "127.0.0.1",
    "alice": "127.0.0.11",
    "bob": "127.0.0.12",
    "carol": "127.0.0.13",
    "dave": "127.0.0.14",
    "erin": "127.0.0.15",
}
PRINCIPALS: Final = tuple(name for name in HOSTS if name != ADMINISTRATOR)
SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36

READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
ALTER, DESCRIBE, ALL = Operation.ALTER, Operation.DESCRIBE, Operation.ALL
ACTION, IDEMPOTENT_WRITE = Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
PREFIXED, DENY = Pattern.PREFIXED, Permission.DENY


def of(name: str, *wanted: tuple[Any, ...], host: str = "*", **more: Any) -> list[AccessRule]:
    """Rules for one principal: each is a type, a name, and operations."""
    return [
        rule(resource_type, resource, operation, principal=f"User:{name}", host=host, **more)
        for resource_type, resource, *operations in wanted
        for operation in operations
    ]


EVERYTHING: Final = tuple(
    (resource_type, CLUSTER_NAME if resource_type == CLUSTER else "*", ALL)
    for resource_type in (TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID)
)

ROUNDS: Final[dict[str, list[AccessRule]]] = {
    "no rules": [],
    "literal": [
        *of("alice", (TOPIC, "orders", READ), (GROUP, "readers", READ)),
        *of("bob", (TOPIC, "orders", WRITE), (TOPIC, "payments", WRITE), (TRANSACTIONAL_ID, "till", WRITE)),
        *of("carol", (TOPIC, "orders", DESCRIBE), (GROUP, "readers", DESCRIBE), (CLUSTER, CLUSTER_NAME, DESCRIBE)),
        *of("dave", *EVERYTHING),
        *of("erin", (TOPIC, "orders", CREATE, DELETE, ALTER, ALTER_CONFIGS), (GROUP, "readers", DELETE)),
    ],
    "prefixed": [
        *of("alice", (TOPIC, "or", READ), (GROUP, "r", READ), pattern=PREFIXED),
        *of("bob", (TOPIC, "pay", WRITE), (TRANSACTIONAL_ID, "t", WRITE), pattern=PREFIXED),
        *of("carol", (TOPIC, "orders", DESCRIBE_CONFIGS, READ), (GROUP, "re", DESCRIBE), pattern=PREFIXED),
        *of("dave", (TOPIC, "orders-and-more", ALL), (GROUP, "readers-and-more", ALL), pattern=PREFIXED),
        *of("erin", (TOPIC, "n", CREATE), (TOPIC, "m", CREATE, DESCRIBE, DELETE), pattern=PREFIXED),
    ],
    "denied": [rule_ for name in PRINCIPALS for rule_ in of(name, *EVERYTHING)]
    + [
        *of("alice", (TOPIC, "orders", READ), (GROUP, "readers", READ), permission=DENY),
        *of("bob", (TOPIC, "*", WRITE), (TRANSACTIONAL_ID, "till", ALL), permission=DENY),
        *of("carol", (TOPIC, "pay", DESCRIBE), (GROUP, "re", DESCRIBE), permission=DENY, pattern=PREFIXED),
        *of("dave", (CLUSTER, CLUSTER_NAME, ALL), permission=DENY),
        *of("erin", (TOPIC, "orders", ALTER, DELETE, CREATE, DESCRIBE_CONFIGS, ALTER_CONFIGS), permission=DENY),
    ],
    "hosts and everybody": [
        *of("*", (TOPIC, "orders", READ, WRITE), (GROUP, "readers", READ)),
        *of("alice", (TOPIC, "payments", READ), (GROUP, "readers", DELETE), host=HOSTS["alice"]),
        *of("bob", (TOPIC, "payments", READ), (GROUP, "readers", DELETE), host=HOSTS["alice"]),
        *of("carol", (TOPIC, "orders", ALL), permission=DENY, host=HOSTS["carol"]),
        *of("*", (TOPIC, "orders", WRITE), permission=DENY, host=HOSTS["dave"]),
        *of("erin", (TOPIC, "orders", ALL), permission=DENY, host=HOSTS["alice"]),
    ],
    "the cluster": [
        *of("alice", (CLUSTER, CLUSTER_NAME, IDEMPOTENT_WRITE, CREATE), (TOPIC, "*", DESCRIBE)),
        *of("bob", (CLUSTER, CLUSTER_NAME, ACTION, DESCRIBE_CONFIGS)),
        *of("carol", (CLUSTER, CLUSTER_NAME, ALTER)),
        *of("dave", (CLUSTER, CLUSTER_NAME, DELETE, ALTER_CONFIGS)),
        *of("erin", (CLUSTER, CLUSTER_NAME, DESCRIBE), (TOPIC, "orders", READ), (TRANSACTIONAL_ID, "till", DESCRIBE)),
    ],
    "implied": [
        *of("alice", (TOPIC, "orders", DELETE), (GROUP, "readers", DELETE)),
        *of("bob", (TOPIC, "orders", ALTER), (TOPIC, "payments", ALTER_CONFIGS)),
        *of("carol", (TOPIC, "orders", READ), (GROUP, "readers", READ), (TRANSACTIONAL_ID, "till", WRITE)),
        *of("carol", (TOPIC, "orders", DESCRIBE), permission=DENY),
        *of("dave", (TOPIC, "*", DESCRIBE), (TOPIC, "orders", DELETE), (GROUP, "*", ALTER_CONFIGS)),
        *of("erin", (TOPIC, "orders", WRITE), (TOPIC, "orders", READ), (TRANSACTIONAL_ID, "till", DESCRIBE)),
        *of("erin", (TOPIC, "orders", WRITE), permission=DENY),
    ],
}


class _ByAddress(Broker):
    """Takes a client for the principal of its address."""

    def _wire(self) -> None:
        super()._wire()
        enter, names = self.connections.enter, {host: name for name, host in HOSTS.items()}

        def enter_as_its_address(connection: Connection) -> bool:
            # As if it had shown a certificate.
            connection._certified = Principal("User", names[connection.client_host])
            return enter(connection)

        self.connections.enter = enter_as_its_address  # type: ignore[method-assign]


class BrokerByAddress(EmbeddedBroker):
    """The broker that is compared with Apache Kafka."""

    def __init__(self) -> None:
        super().__init__(access_rules=True, super_users=[f"User:{ADMINISTRATOR}"])

    def _make_broker(self) -> Broker:
        return _ByAddress(files=self._files, **self._settings)


class Client(Asker):
    """One principal's connection."""

    def __init__(self, bootstrap: str, name: str, *, logs_in: bool) -> None:
        super().__init__(bootstrap, source=HOSTS[name])
        if logs_in:
            assert self(SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == 0
            answer = self(SASL_AUTHENTICATE, 2, auth_bytes=f"\0{name}\0{name}".encode())
            assert answer.error_code == 0, answer.error_message
