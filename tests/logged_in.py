"""A broker with access rules whose users log in by SCRAM, and connections that have logged in as one of them."""

from typing import Any

from asking import Asker
from guarded import GuardedBroker, rule
from secured import PASSWORD, own_client
from semel.log.core.access import Operation, ResourceType
from semel.log.security.listeners import Listener, SecurityProtocol
from semel.wire.scram import Mechanism
from semel.wire.versions import SASL_AUTHENTICATE, SASL_HANDSHAKE

LISTENERS = (Listener("LOGINS", SecurityProtocol.SASL_PLAINTEXT, "localhost"), Listener("OPEN"))
MECHANISM = Mechanism.SCRAM_SHA_256


def log_in(bootstrap: str, user: str) -> Asker:
    """A connection of this user."""
    asker = Asker(bootstrap)
    assert asker(SASL_HANDSHAKE, mechanism=MECHANISM.sasl_name).error_code == 0
    steps = own_client(MECHANISM, user, PASSWORD)
    first = asker(SASL_AUTHENTICATE, auth_bytes=next(steps))
    assert asker(SASL_AUTHENTICATE, auth_bytes=steps.send(first.auth_bytes)).error_code == 0
    return asker


class BrokerOfUsers(GuardedBroker):
    """Its first listener asks for a login; over the second one the administrator asks without."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(listeners=list(LISTENERS), super_users=["User:ANONYMOUS"], **settings)

    @property
    def open(self) -> str:
        """Where the administrator asks."""
        return self._broker.listeners[1].bootstrap

    def administrator(self) -> Asker:
        return Asker(self.open)

    def allow(self, user: str, *rights: tuple[ResourceType, str, Operation]) -> None:
        """Give rights to a user, from every address."""
        self.add(*(rule(*right, principal=f"User:{user}", host="*") for right in rights))

    def forbid(self, user: str, *rights: tuple[ResourceType, str, Operation]) -> None:
        """Take these rights away again."""
        self.remove(*(rule(*right, principal=f"User:{user}", host="*") for right in rights))

    def log_in(self, user: str) -> Asker:
        """A connection of this user, who is made first if need be."""
        if user not in self.users():
            self.add_user(user, PASSWORD)
        return log_in(self.bootstrap, user)
