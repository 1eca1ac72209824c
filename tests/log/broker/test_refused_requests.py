"""A refusal of a whole request: each thing that it names gets the error, and is named in the answer. A client that
finds nothing about what it has asked for cannot tell that it has come to the wrong broker."""

from collections.abc import Iterator
from typing import Any

import pytest
from kio.index import load_request_schema
from test_held_loop import NOWHERE, filled

from semel.log.broker.apis import APIS
from semel.log.broker.declaration import Here
from semel.log.broker.refusal import refusal
from semel.wire import messages, versions
from semel.wire.errors import ErrorCode
from semel.wire.steps import finish

VERSIONS = [
    (api_key, version)
    for api_key, api in APIS.items()
    for version in api.served
    if api.standby not in (Here.SERVES, Here.READS)
]
# What is refused here has no name: a rule or a filter is known by its place, a directory only by a broker, and the
# member that leaves in these tests has no id.
NAMELESS = (versions.CREATE_ACLS, versions.DELETE_ACLS, versions.DESCRIBE_LOG_DIRS, versions.LEAVE_GROUP)


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
    request = messages.build_request(api_key, version, **filled(load_request_schema(api_key, version), NOWHERE))
    answer = refusal(api_key, version, request, ErrorCode.NOT_CONTROLLER)
    finish(messages.encode_response_in_steps(api_key, version, 1, answer))
    parts = list(told(answer))
    codes = {value for part, _ in parts for name, value in part.items() if name.endswith("error_code")}
    # An error of a whole Fetch is one of its session.
    assert codes - ({ErrorCode.NONE} if api_key == versions.FETCH else set()) == {ErrorCode.NOT_CONTROLLER}
    for part, is_element in parts:
        if is_element and api_key not in NAMELESS:
            assert 0 in part.values() or "'t0'" in repr(part), part


@pytest.mark.parametrize("version", [version for api_key, version in VERSIONS if api_key == versions.FETCH])
def test_a_refused_fetch_has_no_bytes_of_records(version: int) -> None:
    """librdkafka takes null for a broken answer: it asks the same broker again at once, and never the leader."""
    request = messages.build_request(
        versions.FETCH, version, **filled(load_request_schema(versions.FETCH, version), NOWHERE)
    )
    answer = refusal(versions.FETCH, version, request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert [part["records"] for topic in answer["responses"] for part in topic["partitions"]] == [b""]
