"""ApiVersions (18), versions 0 to 4: which requests a client may send, and which features are in force.

A client that sends a version which this broker does not know gets error 35 in the shape of version 0, with the versions
of this one API, so that it can try again. The answer does not wait for the disk, because it does not show the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from semel.log.broker.apis.answers import answer_in_steps, decoded
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.forwarder import STANDBY_SOFTWARE
from semel.log.broker.serving import Serving
from semel.wire import kafka, messages
from semel.wire.errors import ErrorCode
from semel.wire.steps import Steps
from semel.wire.versions import API_VERSIONS, VersionRange

API: Final = Api(API_VERSIONS, (0, 4), rights=(), standby=Here.SERVES, before_login=True, takes_any_version=True)

# Features that concern several APIs, with their supported levels; the highest level is in force. transaction.version 2
# is Produce 12, TxnOffsetCommit 5 and EndTxn 5 together, group.version 1 the groups of KIP-848, share.version 1 those
# of KIP-932.
_FEATURES: Final[dict[str, VersionRange]] = {
    "transaction.version": VersionRange(0, 2),
    "group.version": VersionRange(0, 1),
    "share.version": VersionRange(0, 1),
}
# Clients of older versions reject an answer with a feature whose lowest level is 0.
_LEVEL_0_FROM: Final = 4
# Apache Kafka accepts the same characters, because it shows the name to people.
_NAME: Final = re.compile("[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
# The first version whose requests name the client's software.
_SOFTWARE_FROM: Final = 3
# Features change only with another version of semel, and so with another connection.
_FEATURES_EPOCH: Final = 0
# The work of an answer from the cache, in pieces, which limits how many are sent in one turn.
_CACHED_PIECES: Final = 20


def handle(broker: Serving, exchange: Exchange, body: memoryview) -> Steps[None]:
    if exchange.version not in API.served:
        response = kafka.api_versions.ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_ranges([API])
        )
        yield from answer_in_steps(exchange, response, version=0)
        return
    request = yield from decoded(exchange, kafka.api_versions.ApiVersionsRequest, body)
    software = (request.client_software_name, request.client_software_version)
    if exchange.version >= _SOFTWARE_FROM and not all(map(_NAME.fullmatch, software)):
        response = kafka.api_versions.ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=())
        yield from answer_in_steps(exchange, response)
        return
    yield _CACHED_PIECES
    throttle_ms = 0 if _presents_a_standby(exchange, request) else exchange.throttle()
    told = _body(tuple(broker.apis.values()), exchange.version, throttle_ms)
    exchange.reply((messages.response_of(API_VERSIONS, exchange.version, exchange.correlation_id, told),))


@lru_cache(maxsize=16)
def _body(apis: tuple[Api, ...], version: int, throttle_ms: int) -> bytes:
    """The body of the answer, cached: strangers may ask for it, and making it takes a tenth of a millisecond."""
    api = kafka.api_versions
    response = api.ApiVersionsResponse(
        api_keys=_ranges(apis),
        throttle_time_ms=throttle_ms,
        supported_features=[
            api.SupportedFeatureKey(name=name, min_version=levels.min, max_version=levels.max)
            for name, levels in _FEATURES.items()
            if levels.min > 0 or version >= _LEVEL_0_FROM
        ],
        finalized_features_epoch=_FEATURES_EPOCH,
        finalized_features=[
            api.FinalizedFeatureKey(name=name, max_version_level=levels.max, min_version_level=levels.max)
            for name, levels in _FEATURES.items()
        ],
    )
    return messages.encode_response_body(response, version)


def _presents_a_standby(exchange: Exchange, request: kafka.api_versions.ApiVersionsRequest) -> bool:
    """Whether a standby presents itself, for the first time on this connection. It must not wait because of a quota:
    the request that it forwards comes next, and is charged to the same client.
    """
    if request.client_software_name != STANDBY_SOFTWARE or exchange.connection.is_of_a_standby:
        return False
    exchange.connection.is_of_a_standby = True
    return True


def _ranges(apis: Iterable[Api]) -> list[kafka.api_versions.ApiVersion]:
    return [
        kafka.api_versions.ApiVersion(api_key=api.key, min_version=api.versions.min, max_version=api.versions.max)
        for api in apis
    ]
