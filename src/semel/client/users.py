"""Lists, adds and removes users, for administrators of a cluster whose clients log in.

A password leaves this process only salted and hashed. Each function makes one attempt; none may ever be repeated from
here. No error may contain a password.
"""

from __future__ import annotations

import secrets
from typing import Final

from semel.client import codes
from semel.client.cluster import Cluster
from semel.wire import kafka
from semel.wire.errors import ErrorCode
from semel.wire.scram import SALT_BYTES, Mechanism, salted

# How often a password is hashed where nobody says otherwise.
ITERATIONS_DEFAULT: Final = 8_192


def users_of(cluster: Cluster) -> dict[str, dict[Mechanism, int]]:
    """Every user, with the iterations of each mechanism by which the user can log in."""
    answer = cluster.ask_controller(
        kafka.describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=None)
    )
    _check("the users", answer.error_code, answer.error_message, "Describe on the cluster")
    return {
        result.user: {Mechanism(info.mechanism): info.iterations for info in result.credential_infos}
        for result in answer.results
    }


def set_password(cluster: Cluster, user: str, password: str, iterations: int, *mechanisms: Mechanism) -> None:
    """Set a user's password for these mechanisms, one after the other: Apache Kafka refuses two in one request."""
    api = kafka.alter_user_scram_credentials
    for mechanism in mechanisms:
        salt = secrets.token_bytes(SALT_BYTES)
        key = salted(mechanism, password, salt, iterations)
        wish = api.ScramCredentialUpsertion(
            name=user, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=key
        )
        _alter(cluster, user, api.AlterUserScramCredentialsRequest(deletions=(), upsertions=[wish]))


def remove_user(cluster: Cluster, user: str, *mechanisms: Mechanism) -> None:
    """No longer let a user log in with these mechanisms."""
    api = kafka.alter_user_scram_credentials
    for mechanism in mechanisms:
        wish = api.ScramCredentialDeletion(name=user, mechanism=mechanism)
        _alter(cluster, user, api.AlterUserScramCredentialsRequest(deletions=[wish], upsertions=()))


def _alter(
    cluster: Cluster, user: str, request: kafka.alter_user_scram_credentials.AlterUserScramCredentialsRequest
) -> None:
    for result in cluster.ask_controller(request).results:
        _check(f"user {user!r}", result.error_code, result.error_message, "Alter on the cluster")


def _check(what: str, code: int, message: str | None, right: str) -> None:
    if code != ErrorCode.NONE:
        raise codes.refusal(what, code, message, right=right)
