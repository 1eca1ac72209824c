"""Our reader and our writer against kio's own, on the same values, for every message in every version; and where they
differ on purpose."""

import os
import random
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any, Literal, get_args, get_type_hints
from uuid import UUID

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer

import plain_messages as messages
from semel.log.broker.apis import APIS
from semel.wire import reader
from semel.wire.errors import ProtocolError
from semel.wire.message import NO_ID
from semel.wire.messages import request_type, response_type
from semel.wire.steps import finish
from semel.wire.versions import METADATA, NAMES, OFFSET_FETCH, is_flexible
from semel.wire.writer import write_message

# kio is a version behind Kafka, and does not know some that are unstable.
VERSIONS = [
    (api_key, version)
    for api_key in NAMES
    if api_key in api_key_map
    for version in schema_name_map[api_key_map[api_key]]
]
NOTHING = {"datetime_i64": -1, "uuid": NO_ID}
EXAMPLES = 6
# The same examples in each run; new ones in a run that explores. A failure says which one it was.
SALT = os.urandom(8).hex() if os.environ.get("SEMEL_TEST_EXPLORE") else ""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Kind = Literal["request", "response"]


def plain(value: Any, kafka_type: str = "") -> Any:
    """The values of kio's dataclass, by Kafka's names: kio leaves out the unit of a time."""
    if is_dataclass(value):
        return {field.name: plain_field(field, getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [plain(item, kafka_type) for item in value]
    if value is None:
        return NOTHING.get(kafka_type)
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(milliseconds=1)
    return value.bytes if isinstance(value, UUID) else value


def plain_field(field: Any, value: Any) -> Any:
    # A tagged struct that is not there is None here, and for kio one of defaults.
    if is_dataclass(value) and "tag" in field.metadata and value == field.default:
        return None
    return plain(value, field.metadata.get("kafka_type", ""))


def as_kio_names(values: Any) -> Any:
    if isinstance(values, list):
        return [as_kio_names(one) for one in values]
    if isinstance(values, dict):
        return {name.removesuffix("_ms"): as_kio_names(value) for name, value in values.items()}
    return values


class MadeUp:
    """Values of kio's dataclasses by chance, with every edge of each type. Hypothesis makes them up as well, in thirty
    times the time."""

    def __init__(self, seed: str) -> None:
        self._chance = random.Random(seed)

    def entity(self, entity_type: Any) -> Any:
        hints = get_type_hints(entity_type)
        return entity_type(
            **{field.name: self._value(hints[field.name], field.metadata) for field in fields(entity_type)}
        )

    def _value(self, hint: Any, metadata: Mapping[str, Any]) -> Any:
        parts = get_args(hint)
        if type(None) in parts:
            if self._chance.random() < 0.25:
                return None
            (hint,) = (part for part in parts if part is not type(None))
            parts = get_args(hint)
        if parts:
            return tuple(self._value(parts[0], metadata) for _ in range(self._chance.randrange(4)))
        return self.entity(hint) if is_dataclass(hint) else self._plain(metadata["kafka_type"])

    def _plain(self, kafka_type: str) -> Any:
        chance = self._chance
        match kafka_type:
            case "bool":
                return chance.random() < 0.5
            case "float64":
                return chance.choice((0.0, -1.5, 1e300, float("inf"), chance.random()))
            case "string":
                return chance.choice(("", "orders", "\0 \u00e9\u20ac\U0001f600", "x" * chance.randrange(300)))
            case "bytes" | "records":
                return chance.randbytes(chance.choice((0, 1, 127, 128, 300)))
            case "uuid":
                return UUID(int=1 + chance.getrandbits(127))
            case "error_code":
                return chance.choice(list(ErrorCode))
            case "datetime_i64":
                # kio rounds those after the year 2109.
                return EPOCH + timedelta(milliseconds=chance.randrange(1 << 42))
        bits = int(re.sub(r"\D", "", kafka_type))
        high = 1 << (bits - 1)
        number = chance.choice((-high, -1, 0, 1, high - 1, chance.randrange(-high, high)))
        if kafka_type.startswith("uint"):
            return number + high
        if not kafka_type.startswith("timedelta"):
            return number
        # kio writes durations of more than 292,000 years, and cannot read them.
        return timedelta(milliseconds=number % min(high, 1 << 52))


def written_by_kio(entity: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["request", "response"])
@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
def test_a_message_is_read_and_written_as_by_kio(api_key: int, version: int, kind: Kind) -> None:
    is_request = kind == "request"
    entity_type: Any = (load_request_schema if is_request else load_response_schema)(api_key, version)
    our_type: Any = (request_type if is_request else response_type)(api_key)
    flexible = is_flexible(api_key, version)
    for number in range(EXAMPLES):
        seed = f"{api_key} {version} {kind} {number} {SALT}"
        entity = MadeUp(seed).entity(entity_type)
        body = written_by_kio(entity)
        theirs, size = entity_reader(entity_type)(body, 0)
        assert size == len(body), seed
        assert theirs == entity, seed
        ours = finish(reader.read_message(our_type, version, flexible, body))
        assert as_kio_names(messages.plain(ours, version)) == plain(entity), seed
        assert finish(write_message(ours, version, flexible)) == body, seed


def test_every_version_that_is_served_is_compared() -> None:
    assert {(key, version) for key, api in APIS.items() for version in api.served} <= set(VERSIONS)


def test_what_is_left_out_has_the_protocols_default() -> None:
    for api_key, version in VERSIONS:
        kios: Any = load_response_schema(api_key, version)
        for field in fields(kios):
            name = field.name if field.name in response_type(api_key).FIELDS else f"{field.name}_ms"
            ours = response_type(api_key).FIELDS[name]
            given = field.default
            if type(given) in (int, bool, str, type(None)) and not isinstance(ours.kind, type):
                assert plain(given, field.metadata.get("kafka_type", "")) == ours.default, (api_key, version, name)


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


@pytest.mark.parametrize("version", APIS[METADATA].served)
def test_null_is_no_array_where_there_must_be_one(version: int) -> None:
    with pytest.raises(TypeError):
        messages.encode_response(METADATA, version, 1, {"brokers": [], "controller_id": 0, "topics": None})
