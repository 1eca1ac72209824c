"""DescribeUserScramCredentials (50), version 0: which users can log in by which mechanism, with how many iterations.

A key or a salt is never shown. A request that names no user is about all of them.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted, attempted_in_steps, error_of, message_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DESCRIBE_CLUSTER
from semel.log.broker.serving import Serving
from semel.wire import kafka
from semel.wire.refusals import DUPLICATE_RESOURCE, RESOURCE_NOT_FOUND, Refused
from semel.wire.steps import Steps, each
from semel.wire.versions import DESCRIBE_USER_SCRAM_CREDENTIALS

API: Final = Api(DESCRIBE_USER_SCRAM_CREDENTIALS, (0, 0), rights=(DESCRIBE_CLUSTER,), standby=Here.READS, forwards=True)


@answered_in_steps
def handle(
    broker: Serving,
    exchange: Exchange,
    request: kafka.describe_user_scram_credentials.DescribeUserScramCredentialsRequest,
) -> Steps[kafka.describe_user_scram_credentials.DescribeUserScramCredentialsResponse]:
    results = yield from attempted_in_steps(_describe_users(broker, exchange, request))
    return kafka.describe_user_scram_credentials.DescribeUserScramCredentialsResponse(
        error_code=error_of(results),
        error_message=message_of(results),
        results=() if isinstance(results, Refused) else results,
    )


def _describe_users(
    broker: Serving,
    exchange: Exchange,
    request: kafka.describe_user_scram_credentials.DescribeUserScramCredentialsRequest,
) -> Steps[list[kafka.describe_user_scram_credentials.DescribeUserScramCredentialsResult]]:
    broker.guard.check(exchange, DESCRIBE_CLUSTER)
    names = [item.name for item in request.users or ()]
    counts = Counter(names or broker.log.state.users)
    return (yield from each(counts, lambda user: _described(broker, user, counts[user])))


def _described(
    broker: Serving, user: str, times: int
) -> kafka.describe_user_scram_credentials.DescribeUserScramCredentialsResult:
    infos = attempted(_describe, broker, user, times)
    return kafka.describe_user_scram_credentials.DescribeUserScramCredentialsResult(
        user=user,
        error_code=error_of(infos),
        error_message=message_of(infos),
        credential_infos=() if isinstance(infos, Refused) else infos,
    )


def _describe(broker: Serving, user: str, times: int) -> list[kafka.describe_user_scram_credentials.CredentialInfo]:
    if times > 1:
        raise Refused(
            DUPLICATE_RESOURCE,
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}",
        )
    credentials = broker.log.state.users.credentials(user)
    if not credentials:
        raise Refused(RESOURCE_NOT_FOUND, f"Attempt to describe a user credential that does not exist: {user}")
    return [
        kafka.describe_user_scram_credentials.CredentialInfo(
            mechanism=mechanism.value, iterations=credential.iterations
        )
        for mechanism, credential in sorted(credentials.items())
    ]
