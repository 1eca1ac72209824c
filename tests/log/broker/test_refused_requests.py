"""A refusal of a whole request: each thing that it names gets the error, and is named in the answer. A client that
finds nothing about what it has asked for cannot tell that it has come to the wrong broker."""

from collections.abc import Iterator
from typing import Any

import pytest
from test_held_loop import NOWHERE, filled

import plain_messages as messages
from semel.log.broker.apis import APIS
from semel.log.broker.declaration import Here
from semel.log.broker.refusal import refusal
from semel.wire import versions
from semel.wire.errors import ErrorCode
from semel.wire.messages import encode_response, request_type

VERSIONS = [
    (api_key, version)
    for api_key, api in APIS.items()
    for version in api.served
    if api.standby not in (Here.SERVES, Here.READS)
]
# What is refused here has no name: a rule or a filter is known by its place, a directory only by a broker, and the
# member that leaves in these tests has no id.
NAMELESS = (versions.CREATE_ACLS, versions.DELETE_ACLS, versions.DESCRIBE_LOG_DIRS, versions.LEAVE_GROUP)


def refused(api_key: int, version: int, error: ErrorCode) -> dict[str, Any]:
    """The fields of the answer to a request that names something, which can be sent."""
    values = filled(request_type(api_key), version, NOWHERE)
    answer = refusal(version, messages.build_request(api_key, version, **values), error)
    encode_response(answer, version, 1)
    return messages.plain(answer, version)


def told(answer: dict[str, Any], is_element: bool = False) -> Iterator[tuple[dict[str, Any], bool]]:
    """Each part of an answer that has an error, and whether it is one of several."""
    if any(name.endswith("error_code") for name in answer):
        yield answer, is_element
    for value in answer.values():
        if isinstance(value, list):
            for element in value:
                if isinstance(element, dict):
                    yield from told(element, True)


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_all_that_a_refused_request_names_is_refused_by_its_name(api_key: int, version: int) -> None:
    parts = list(told(refused(api_key, version, ErrorCode.NOT_CONTROLLER)))
    # The tagged one is about the configurations of a topic that was created.
    names = {name for part, _ in parts for name in part if name.endswith("error_code")} - {"topic_config_error_code"}
    codes = {part[name] for part, _ in parts for name in names & part.keys()}
    # An error of a whole Fetch is one of its session.
    assert codes - ({ErrorCode.NONE} if api_key == versions.FETCH else set()) == {ErrorCode.NOT_CONTROLLER}
    for part, is_element in parts:
        if is_element and api_key not in NAMELESS:
            assert 0 in part.values() or "'t0'" in repr(part), part


@pytest.mark.parametrize("version", [version for api_key, version in VERSIONS if api_key == versions.FETCH])
def test_a_refused_fetch_has_no_bytes_of_records(version: int) -> None:
    """librdkafka takes null for a broken answer: it asks the same broker again at once, and never the leader."""
    answer = refused(versions.FETCH, version, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert [part["records"] for topic in answer["responses"] for part in topic["partitions"]] == [b""]
