"""Our reader and our writer of kio's dataclasses against kio's own, on the same values; and where the two differ on
purpose."""

from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader

from semel.core.steps import finish
from semel.wire import messages, reader
from semel.wire.errors import ProtocolError
from semel.wire.versions import ANNOUNCED, FETCH, LIST_GROUPS, METADATA, OFFSET_FETCH, PRODUCE
from semel.wire.writer import Kind, write_entity

VERSIONS = [
    (api_key, version)
    for api_key, announced in ANNOUNCED.items()
    if api_key not in (PRODUCE, FETCH)
    for version in range(announced.min, announced.max + 1)
]
NOTHING = {"datetime_i64": -1, "uuid": bytes(16)}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def plain(value: Any, kafka_type: str = "") -> Any:
    """What a handler would say instead of kio's dataclass."""
    if is_dataclass(value):
        return {
            field.name: plain(getattr(value, field.name), field.metadata.get("kafka_type", ""))
            for field in fields(value)
        }
    if isinstance(value, tuple):
        return [plain(item, kafka_type) for item in value]
    if value is None:
        return NOTHING.get(kafka_type)
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(milliseconds=1)
    return value.bytes if isinstance(value, UUID) else value


@pytest.mark.parametrize("kind", ["request", "response"])
@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
@settings(max_examples=3, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_message_is_read_and_a_response_written_as_by_kio(
    api_key: int, version: int, kind: Kind, data: st.DataObject
) -> None:
    entity_type: Any = messages._entity_type(api_key, version, kind)
    entity = data.draw(st.from_type(entity_type))
    body = messages._encode(entity)
    try:
        theirs, size = entity_reader(entity_type)(body, 0)
    except ValueError:
        # kio writes durations of more than 292,000 years, and cannot read them.
        theirs, size = entity, len(body)
    assert size == len(body)
    assert finish(reader.read_entity(entity_type, body)) == theirs
    if kind == "response":
        # In one test, because it takes far longer to make up a message than to write it.
        values = plain(entity)
        assert finish(write_entity(entity_type, values)) == body
        # What has a default and is not given is written as that default.
        given_only = {
            field.name: values[field.name]
            for field in fields(entity_type)
            if getattr(entity, field.name) != field.default
        }
        assert finish(write_entity(entity_type, given_only)) == body


def test_a_tagged_field_that_nobody_knows_is_skipped() -> None:
    plain = b"\x02\x02t\x00\x01\x00\x00\x00"
    request = messages.decode_request(METADATA, 9, plain)
    assert [topic.name for topic in request.topics] == ["t"]
    tagged = plain[:-1] + b"\x01\x63\x03new"
    assert messages.decode_request(METADATA, 9, tagged) == request


def test_an_array_far_longer_than_the_message_does_not_reserve_memory() -> None:
    # kio's own reader aborts the process here.
    with pytest.raises(ProtocolError, match="does not fit"):
        messages.decode_request(METADATA, 12, b"\xff\xff\xff\xff\x7f" + bytes(20))


def test_a_message_cannot_have_more_elements_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [{"group_id": "g", "topics": [{"name": "t", "partition_indexes": [1, 2, 3]}]}]
    entity = messages.build_request(OFFSET_FETCH, 8, groups=groups, require_stable=False)
    body = messages.encode_request(OFFSET_FETCH, 8, 1, None, entity)[15:]
    monkeypatch.setattr(reader, "ELEMENTS_PER_MESSAGE_MAX", 5)
    assert messages.decode_request(OFFSET_FETCH, 8, body) == entity
    monkeypatch.setattr(reader, "ELEMENTS_PER_MESSAGE_MAX", 4)
    with pytest.raises(ProtocolError, match="more than 4 elements"):
        messages.decode_request(OFFSET_FETCH, 8, body)


def test_arrays_may_be_any_iterable() -> None:
    groups = [{"group_id": name, "protocol_type": "consumer"} for name in "ab"]
    expected = messages.encode_response(LIST_GROUPS, 3, 1, {"groups": groups})
    assert messages.encode_response(LIST_GROUPS, 3, 1, {"groups": iter(groups)}) == expected


@pytest.mark.parametrize("version", range(ANNOUNCED[METADATA].max + 1))
def test_null_is_no_array_where_there_must_be_one(version: int) -> None:
    with pytest.raises(TypeError):
        messages.encode_response(METADATA, version, 1, {"brokers": [], "controller_id": 0, "topics": None})
