"""Lists, adds and removes users, for administrators of a cluster whose clients log in.

A password leaves this process only salted and hashed. Each function makes one attempt; none may ever be repeated from
here. No error may contain a password.
"""

import secrets
from typing import Any

from semel.client import codes
from semel.client.cluster import Cluster
from semel.wire.errors import ErrorCode
from semel.wire.scram import SALT_BYTES, Mechanism, salted
from semel.wire.versions import ALTER_USER_SCRAM_CREDENTIALS, DESCRIBE_USER_SCRAM_CREDENTIALS


def users_of(cluster: Cluster) -> dict[str, dict[Mechanism, int]]:
    """Every user, with the iterations of each mechanism by which the user can log in."""
    answer = cluster.ask_controller(DESCRIBE_USER_SCRAM_CREDENTIALS, users=None)
    _check("the users", answer, "Describe on the cluster")
    return {
        result.user: {Mechanism(info.mechanism): info.iterations for info in result.credential_infos}
        for result in answer.results
    }


def set_password(cluster: Cluster, user: str, password: str, iterations: int, *mechanisms: Mechanism) -> None:
    """Set a user's password for these mechanisms."""
    upsertions = []
    for mechanism in mechanisms:
        salt = secrets.token_bytes(SALT_BYTES)
        key = salted(mechanism, password, salt, iterations)
        upsertions.append(
            {"name": user, "mechanism": mechanism, "iterations": iterations, "salt": salt, "salted_password": key}
        )
    _alter(cluster, user, deletions=[], upsertions=upsertions)


def remove_user(cluster: Cluster, user: str, *mechanisms: Mechanism) -> None:
    """No longer let a user log in with these mechanisms."""
    deletions = [{"name": user, "mechanism": mechanism} for mechanism in mechanisms]
    _alter(cluster, user, deletions=deletions, upsertions=[])


def _alter(cluster: Cluster, user: str, **changes: list[Any]) -> None:
    answer = cluster.ask_controller(ALTER_USER_SCRAM_CREDENTIALS, **changes)
    for result in answer.results:
        _check(f"user {user!r}", result, "Alter on the cluster")


def _check(what: str, answer: Any, right: str) -> None:
    if answer.error_code != ErrorCode.NONE:
        raise codes.refusal(what, answer.error_code, getattr(answer, "error_message", None), right=right)
