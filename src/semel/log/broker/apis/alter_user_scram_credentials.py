"""AlterUserScramCredentials (51), version 0: sets and removes the passwords of users.

The client sends a password only in salted form. All changes of one user are checked before the first is made. As in
Apache Kafka, two changes for one user and mechanism in one request are refused, because they contradict each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted, error_of, message_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import ALTER_CLUSTER
from semel.log.broker.serving import Serving
from semel.log.core.entries import UserCredentialRemoved, UserCredentialSet
from semel.log.core.users import Users, check_mechanism
from semel.wire import kafka
from semel.wire.refusals import DUPLICATE_RESOURCE, UNACCEPTABLE_CREDENTIAL, Refused
from semel.wire.scram import credential_of
from semel.wire.steps import APPEND_PIECES, Steps
from semel.wire.versions import ALTER_USER_SCRAM_CREDENTIALS

# Decides about one credential, or refuses.
Change = Callable[[], UserCredentialSet | UserCredentialRemoved]

API: Final = Api(ALTER_USER_SCRAM_CREDENTIALS, (0, 0), rights=(ALTER_CLUSTER,), standby=Here.HANGS_UP, forwards=True)

# SCRAM makes 32 or 64 of them. Apache Kafka takes any number, and so the tests of clients send others.
SALTED_BYTES_MAX: Final = 1_024


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.alter_user_scram_credentials.AlterUserScramCredentialsRequest
) -> Steps[kafka.alter_user_scram_credentials.AlterUserScramCredentialsResponse]:
    api = kafka.alter_user_scram_credentials
    users = broker.log.state.users
    changes: dict[str, list[Change]] = {}
    for item in request.deletions:
        changes.setdefault(item.name, []).append(partial(users.decide_remove, item.name, item.mechanism))
        yield 1
    for wish in request.upsertions:
        changes.setdefault(wish.name, []).append(partial(_decide_set, users, wish))
        yield 1
    counts = Counter((item.name, item.mechanism) for item in request.deletions)
    counts.update((wish.name, wish.mechanism) for wish in request.upsertions)
    twice = {user for (user, _), count in counts.items() if count > 1}
    results = []
    for user, decisions in changes.items():
        refusal = attempted(_change, broker, exchange, decisions, user in twice)
        results.append(
            api.AlterUserScramCredentialsResult(
                user=user, error_code=error_of(refusal), error_message=message_of(refusal)
            )
        )
        yield APPEND_PIECES * len(decisions)
    return api.AlterUserScramCredentialsResponse(results=results)


def _change(broker: Serving, exchange: Exchange, decisions: list[Change], twice: bool) -> None:
    broker.guard.check(exchange, ALTER_CLUSTER)
    if twice:
        raise Refused(DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
    for entry in [decide() for decide in decisions]:
        broker.runtime.commit(entry)
        broker.guard.note_change(exchange, entry)


def _decide_set(users: Users, item: kafka.alter_user_scram_credentials.ScramCredentialUpsertion) -> UserCredentialSet:
    mechanism = check_mechanism(item.name, item.mechanism)
    if not 0 < len(item.salted_password) <= SALTED_BYTES_MAX:
        raise Refused(UNACCEPTABLE_CREDENTIAL, f"a salted password has 1 to {SALTED_BYTES_MAX} bytes")
    credential = credential_of(mechanism, bytes(item.salted_password), bytes(item.salt), item.iterations)
    return users.decide_set(item.name, mechanism, credential)
