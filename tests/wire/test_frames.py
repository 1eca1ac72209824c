"""Frames and headers: what every client sends first, and what must be readable before anything is agreed upon."""

import io
import struct

import pytest
from kio.index import load_request_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.schema.request_header.v1.header import RequestHeader as HeaderOne
from kio.schema.request_header.v2.header import RequestHeader as HeaderTwo

import plain_messages as messages
from semel.log.broker.apis import APIS
from semel.wire import frames, versions
from semel.wire.errors import ErrorCode, ProtocolError
from semel.wire.versions import API_VERSIONS, METADATA, PRODUCE, VersionRange

API_KEYS = [
    value for name, value in vars(versions).items() if type(value) is int and name.lower() == api_key_map.get(value)
]


@pytest.mark.parametrize("client_id", [None, "", "client", "klient-ż", "c" * 32_767])
@pytest.mark.parametrize("version", [8, 9])
def test_a_request_header_comes_back_as_it_was_sent(version: int, client_id: str | None) -> None:
    frame = frames.request_prefix(METADATA, version, -7, client_id, 3) + b"end"
    size = frames.frame_size(frame, 0, 100_000)
    assert size == len(frame) - 4
    header = frames.parse_request_header(memoryview(frame)[4:])
    assert header[:4] == (METADATA, version, -7, client_id)
    assert frame[4 + header.body :] == b"end"


def test_tagged_fields_in_a_request_header_are_skipped() -> None:
    frame = struct.pack(">hhih", METADATA, 9, 1, 1) + b"c" + b"\x02\x00\x01x\x05\x00" + b"body"
    assert frame[frames.parse_request_header(frame).body :] == b"body"


def test_a_version_of_api_versions_that_is_too_high_still_gives_its_correlation_id() -> None:
    frame = struct.pack(">hhih", API_VERSIONS, 32_767, 42, -1) + b"\x00" + b"whatever comes then"
    assert frames.parse_request_header(frame).correlation_id == 42


def test_the_answer_to_a_version_of_api_versions_that_is_too_high_is_readable_by_anyone() -> None:
    supported = APIS[API_VERSIONS].versions
    answer = {
        "error_code": ErrorCode.UNSUPPORTED_VERSION,
        "api_keys": [{"api_key": API_VERSIONS, "min_version": supported.min, "max_version": supported.max}],
    }
    frame = messages.encode_response(API_VERSIONS, 0, 42, answer)
    assert frame == struct.pack(">iihihhh", 16, 42, 35, 1, 18, 0, 4)


@pytest.mark.parametrize("version", range(5))
def test_the_response_header_of_api_versions_has_no_tagged_fields(version: int) -> None:
    assert frames.response_prefix(API_VERSIONS, version, 1, 10) == struct.pack(">ii", 14, 1)


def test_the_response_header_of_flexible_versions_has_tagged_fields() -> None:
    assert frames.response_prefix(PRODUCE, 9, 1, 10) == struct.pack(">iib", 15, 1, 0)
    assert frames.response_prefix(PRODUCE, 8, 1, 10) == struct.pack(">ii", 14, 1)


@pytest.mark.parametrize(
    ("size", "reason"), [(-1, "negative size -1"), (1001, "larger than 1000"), (2**31 - 1, "larger")]
)
def test_a_frame_of_impossible_size_is_refused_before_anything_is_read(size: int, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        frames.frame_size(struct.pack(">i", size), 0, 1000)


def test_a_frame_is_read_in_whatever_pieces_it_comes() -> None:
    sent = io.BytesIO(b"\0\0\0\5frame\0\0\0\0more")

    def receive_into(missing: memoryview) -> int:
        return sent.readinto(missing[:2])

    assert frames.read_frame(receive_into, 5) == b"frame"
    assert frames.read_frame(receive_into, 5) == b""
    assert sent.read() == b"more"


@pytest.mark.parametrize("sent", [b"", b"\0\0\0", b"\0\0\0\5", b"\0\0\0\5fram"])
def test_a_frame_that_ends_in_its_middle_is_a_connection_that_broke(sent: bytes) -> None:
    with pytest.raises(ConnectionResetError, match="the broker closed it"):
        frames.read_frame(io.BytesIO(sent).readinto, 5)


def test_a_client_id_is_remembered_only_up_to_a_limit() -> None:
    for number in range(3000):
        client_id = f"client-{number}"
        frame = frames.request_prefix(METADATA, 9, 1, client_id, 0)[4:]
        assert frames.parse_request_header(frame).client_id == client_id
    assert len(frames._client_ids) <= 1024


def test_the_flexible_versions_are_those_of_kio() -> None:
    for api_key in API_KEYS:
        for version in schema_name_map[api_key_map[api_key]]:
            entity = load_request_schema(api_key, version)
            assert entity.__header_schema__ is (HeaderTwo if entity.__flexible__ else HeaderOne)
            assert versions.is_flexible(api_key, version) == entity.__flexible__, (api_key, version)


def test_every_announced_version_can_be_spoken() -> None:
    for api_key, api in APIS.items():
        for version in api.served:
            request = messages.build_request(api_key, version)
            frame = messages.encode_request(api_key, version, 7, None, request)
            assert messages.decode_request(api_key, version, frame[4 + frames.parse_request_header(frame[4:]).body :])


def test_produce_is_announced_from_zero_so_that_librdkafka_keeps_compressing() -> None:
    assert APIS[PRODUCE].versions == VersionRange(0, 13)


def test_a_header_with_more_tagged_fields_than_any_client_has_is_refused_unread() -> None:
    # A frame of 16 MB full of them was read for two seconds, and everybody else waited.
    header = frames.request_prefix(METADATA, 12, 7, "client", 0)[4:-1]
    fields = b"\x01\x00" * 101
    with pytest.raises(ProtocolError, match="101 tagged fields in one struct"):
        frames.parse_request_header(header + b"\x65" + fields)
    assert frames.parse_request_header(header + b"\x64" + fields[:-2]).client_id == "client"
