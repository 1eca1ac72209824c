"""Our writer of responses against kio's own, on the same values."""

from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from semel.core.steps import finish
from semel.wire import messages
from semel.wire.versions import ANNOUNCED, FETCH, LIST_GROUPS, METADATA, PRODUCE
from semel.wire.writer import write_entity

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


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
@settings(max_examples=3, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_response_is_written_as_kio_writes_it(api_key: int, version: int, data: st.DataObject) -> None:
    entity_type: Any = messages._entity_type(api_key, version, "response")
    entity = data.draw(st.from_type(entity_type))
    values = plain(entity)
    assert finish(write_entity(entity_type, values)) == messages._encode(entity)
    # What has a default and is not given is written as that default.
    given_only = {
        field.name: values[field.name] for field in fields(entity_type) if getattr(entity, field.name) != field.default
    }
    assert finish(write_entity(entity_type, given_only)) == messages._encode(entity)


def test_arrays_may_be_any_iterable() -> None:
    groups = [{"group_id": name, "protocol_type": "consumer"} for name in "ab"]
    expected = messages.encode_response(LIST_GROUPS, 3, 1, {"groups": groups})
    assert messages.encode_response(LIST_GROUPS, 3, 1, {"groups": iter(groups)}) == expected


@pytest.mark.parametrize("version", range(ANNOUNCED[METADATA].max + 1))
def test_null_is_no_array_where_there_must_be_one(version: int) -> None:
    with pytest.raises(TypeError):
        messages.encode_response(METADATA, version, 1, {"brokers": [], "controller_id": 0, "topics": None})
