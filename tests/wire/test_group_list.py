"""The list of groups as a client reads it is what the general codec reads, and any other bytes are refused."""

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

import plain_messages as messages
from semel.wire import group_list
from semel.wire.errors import ProtocolError
from semel.wire.frames import parse_response_header
from semel.wire.versions import LIST_GROUPS

TEXTS = st.text(max_size=8)
GROUPS = st.lists(
    st.fixed_dictionaries({"group_id": TEXTS, "protocol_type": TEXTS, "group_state": TEXTS, "group_type": TEXTS}),
    max_size=4,
)


@given(version=st.integers(0, 5), groups=GROUPS, error_code=st.sampled_from([0, 14, 15]))
def test_a_list_of_groups_is_read_as_the_general_codec_reads_it(
    version: int, groups: list[dict[str, str]], error_code: int
) -> None:
    data = messages.encode_response(
        LIST_GROUPS, version, 7, {"throttle_time_ms": 0, "error_code": error_code, "groups": groups}
    )[4:]
    _, body = parse_response_header(LIST_GROUPS, version, data)
    oracle = messages.decode_response(LIST_GROUPS, version, memoryview(data)[body:])
    wanted = [
        (one.group_id, one.group_state if version >= 4 else None, one.group_type if version >= 5 else None)
        for one in oracle.groups
    ]
    assert group_list.decode_response(version, data) == (error_code, wanted)


@settings(max_examples=200)
@given(version=st.integers(0, 5), data=st.binary(max_size=60))
def test_any_bytes_are_a_list_or_refused(version: int, data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        group_list.decode_response(version, data)
