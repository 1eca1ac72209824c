"""A life of administration: each kind of change to users, access rules and quotas, and what others see of them."""

import json
from dataclasses import replace
from typing import Any, Final

from semel.log.core.cached_part import CachedPart
from semel.log.core.entries import (
    AccessChange,
    AccessRule,
    AccessRulesAdded,
    AccessRulesRemoved,
    LoginSecretMade,
    QuotasChanged,
    UserCredentialRemoved,
    UserCredentialSet,
)
from semel.log.storage.log import Log
from semel.wire.scram import Mechanism

Change = AccessChange | LoginSecretMade

_RULES: Final = tuple(AccessRule(2, f"topic-{number}", 3, "User:app", "*", 4, 3) for number in range(2))
_USER: Final = UserCredentialSet("app", Mechanism.SCRAM_SHA_256, b"salt", b"s" * 32, b"v" * 32, 4_096)
_QUOTA: Final = QuotasChanged((("user", "app"),), {"producer_byte_rate": 1000.0})

CHANGES: Final[tuple[Change, ...]] = (
    LoginSecretMade(b"s" * 32),
    AccessRulesAdded(_RULES),
    AccessRulesRemoved(_RULES[:1]),
    _USER,
    replace(_USER, iterations=8_192),
    replace(_USER, mechanism=Mechanism.SCRAM_SHA_512, stored_key=b"s" * 64, server_key=b"v" * 64),
    _QUOTA,
    UserCredentialRemoved("app", Mechanism.SCRAM_SHA_256),
    replace(_QUOTA, quotas={"consumer_byte_rate": 5.0}),
    UserCredentialRemoved("app", Mechanism.SCRAM_SHA_512),
    replace(_QUOTA, quotas={}),
    AccessRulesAdded(_RULES),
)


def told(log: Log) -> tuple[object, ...]:
    """What administrators have set, as others see it."""
    users, quotas = log.state.users, log.state.quotas
    return (
        set(log.state.access),
        users.secret,
        {user: dict(users.credentials(user)) for user in users},
        {entity: dict(quotas.of(entity)) for entity in quotas},
    )


def read_again(part: CachedPart) -> Any:
    """A part of a checkpoint as it is after a restart."""
    return json.loads(part.encoded(lambda content: json.dumps(content).encode()))
