"""The messages of every API but Produce and Fetch: kio's generated dataclasses, made pleasant to answer with.

A handler reads the request as kio's dataclass of that version and answers with plain values, written once for all
versions:

    request = messages.decode_request(METADATA, version, body)
    answer = messages.build_response(
        METADATA,
        version,
        brokers=[{"node_id": 0, "host": "127.0.0.1", "port": 9092}],
        cluster_id="semel",
        controller_id=0,
        topics=[{"name": name, "topic_id": id_of(name), "partitions": [...]} for name in request.topics],
    )
    frame = messages.encode_response(METADATA, version, correlation_id, answer)

What `build_response` and `build_request` take:
- A field goes by kio's name for it: Kafka's in snake case, without `_ms` (`throttle_time`, `timeout`).
- A field that this version does not have is dropped; a name that no version has is a TypeError.
- A struct is a mapping, an array is any iterable, a time is milliseconds, an error code is its number, a topic id is
  its 16 bytes. -1 is no time, and 16 zero bytes are no id.
- `throttle_time`, `error_code` and `error_message` may be left out, and so may whatever has a default in the protocol.
  They may be given as well to an API that has no room for them: a refusal has a message, also where nobody can be told.

What a request gives: `milliseconds(request.timeout)` for a duration, `topic_id_bytes(topic.topic_id)` for an id, and
`getattr(request, "field", otherwise)` for a field that older versions lack.

Bytes that follow a message are ignored, as Apache Kafka ignores them: refusing them would break clients which it
serves. Tagged fields that kio does not know are skipped. The reading itself is done in `reading`, because kio's own
reader can be made to abort the process.

kio is imported when the first message needs it, and each version of each API when it is first used. This file must
never be on the path of records.
"""

import io
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any, Final, Literal, NamedTuple, get_args
from uuid import UUID

from semel.wire.errors import ProtocolError
from semel.wire.frames import request_prefix, response_prefix
from semel.wire.primitives import Buffer
from semel.wire.reading import NO_TOPIC_ID, read_entity

Kind = Literal["request", "response"]

# Much tighter than a frame of records: ten thousand partitions in one OffsetCommit take about half a megabyte.
BODY_BYTES_MAX: Final = 4 * 1024 * 1024

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# What nobody has to say: nothing was throttled and nothing went wrong.
_LEFT_OUT: Final[Mapping[str, object]] = MappingProxyType({"throttle_time": 0, "error_code": 0, "error_message": None})


def decode_request(api_key: int, version: int, body: Buffer) -> Any:
    """kio's dataclass of the request in this version."""
    return _decode(api_key, version, "request", body, BODY_BYTES_MAX)


def decode_response(api_key: int, version: int, body: Buffer, body_bytes_max: int = BODY_BYTES_MAX) -> Any:
    """kio's dataclass of the response in this version. Only a client's answer with records needs a larger limit."""
    return _decode(api_key, version, "response", body, body_bytes_max)


def build_request(api_key: int, version: int, /, **values: object) -> Any:
    """kio's dataclass of the request in this version, from plain values."""
    return _build(_entity_type(api_key, version, "request"), values, api_key, "request")


def build_response(api_key: int, version: int, /, **values: object) -> Any:
    """kio's dataclass of the response in this version, from plain values."""
    return _build(_entity_type(api_key, version, "response"), values, api_key, "response")


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str | None, entity: Any) -> bytes:
    """The whole request, with the frame's size and the request header."""
    body = _encode(api_key, version, "request", entity)
    return request_prefix(api_key, version, correlation_id, client_id, len(body)) + body


def encode_response(api_key: int, version: int, correlation_id: int, entity: Any) -> bytes:
    """The whole response, with the frame's size and the response header."""
    body = _encode(api_key, version, "response", entity)
    return response_prefix(api_key, version, correlation_id, len(body)) + body


def milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


def topic_id_bytes(topic_id: UUID | None) -> bytes:
    return NO_TOPIC_ID if topic_id is None else topic_id.bytes


def _decode(api_key: int, version: int, kind: Kind, body: Buffer, body_bytes_max: int) -> Any:
    if len(body) > body_bytes_max:
        raise ProtocolError(f"a {kind} of {len(body)} bytes is larger than {body_bytes_max}")
    return read_entity(_entity_type(api_key, version, kind), body)


def _encode(api_key: int, version: int, kind: Kind, entity: Any) -> bytes:
    if not isinstance(entity, _entity_type(api_key, version, kind)):
        raise TypeError(f"{type(entity).__qualname__} is not the {kind} of API {api_key} in version {version}")
    buffer = io.BytesIO()
    _writer(api_key, version, kind)(buffer, entity)
    return buffer.getvalue()


@cache
def _writer(api_key: int, version: int, kind: Kind) -> Callable[[io.BytesIO, Any], None]:
    from kio.serial import entity_writer

    return entity_writer(_entity_type(api_key, version, kind))


@cache
def _entity_type(api_key: int, version: int, kind: Kind) -> type[Any]:
    _import_types_of_kio()
    from kio.index import load_request_schema, load_response_schema

    return load_request_schema(api_key, version) if kind == "request" else load_response_schema(api_key, version)


@cache
def _import_types_of_kio() -> None:
    """Import the types that kio would register with Hypothesis, without that.

    Where Hypothesis is installed it would be imported for nothing: 160 ms and 25 MB for a broker in a test suite.
    """
    without = "hypothesis" not in sys.modules
    if without:
        sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import_module("kio.static.primitive")
    finally:
        if without:
            del sys.modules["hypothesis"]


class _Plan(NamedTuple):
    """How plain values become one dataclass: a converter for each field, and what stands in for those left out."""

    converters: dict[str, Callable[[Any, int, Kind], Any]]
    left_out: dict[str, object]


_plans: dict[type[Any], _Plan] = {}


def _build(entity_type: type[Any], values: Mapping[str, Any], api_key: int, kind: Kind) -> Any:
    plan = _plans.get(entity_type)
    if plan is None:
        plan = _plans[entity_type] = _plan(entity_type)
    arguments = dict(plan.left_out)
    for name, value in values.items():
        converter = plan.converters.get(name)
        if converter is not None:
            arguments[name] = converter(value, api_key, kind)
        elif name not in _LEFT_OUT and not _is_known(api_key, kind, name):
            raise TypeError(f"no version of {entity_type.__name__} has a field {name}")
    return entity_type(**arguments)


def _plan(entity_type: type[Any]) -> _Plan:
    converters = {}
    left_out = {}
    for field in fields(entity_type):
        convert = _converter(field.type, field.metadata.get("kafka_type"))
        converters[field.name] = convert
        if field.name in _LEFT_OUT and field.default is MISSING:
            left_out[field.name] = convert(_LEFT_OUT[field.name], entity_type.__api_key__, "response")
    return _Plan(converters, left_out)


def _converter(declared: Any, kafka_type: str | None) -> Callable[[Any, int, Kind], Any]:
    """How a plain value becomes one of the declared type; None stays None, and a wrong one is found by the writer."""
    arguments = get_args(declared)
    if Ellipsis in arguments:
        convert_item = _converter(arguments[0], kafka_type)

        def convert_array(items: Iterable[Any] | None, api_key: int, kind: Kind) -> Any:
            return None if items is None else tuple([convert_item(item, api_key, kind) for item in items])

        return convert_array
    for argument in arguments:
        # A union with None, around an array or a struct.
        if Ellipsis in get_args(argument) or is_dataclass(argument):
            return _converter(argument, kafka_type)
    struct_type: type[Any] = declared
    if is_dataclass(declared):

        def convert_struct(values: Mapping[str, Any] | None, api_key: int, kind: Kind) -> Any:
            return None if values is None else _build(struct_type, values, api_key, kind)

        return convert_struct
    if kafka_type == "datetime_i64" and type(None) in arguments:
        return _to_nullable_datetime
    return _PRIMITIVES.get(kafka_type or "", _unchanged)


def _unchanged(value: Any, api_key: int, kind: Kind) -> Any:
    return value


def _to_timedelta(duration_ms: int, api_key: int, kind: Kind) -> timedelta:
    return timedelta(milliseconds=duration_ms)


def _to_datetime(time_ms: int, api_key: int, kind: Kind) -> datetime:
    return _EPOCH + timedelta(milliseconds=time_ms)


def _to_nullable_datetime(time_ms: int, api_key: int, kind: Kind) -> datetime | None:
    return None if time_ms == -1 else _to_datetime(time_ms, api_key, kind)


def _to_error_code(number: int, api_key: int, kind: Kind) -> Any:
    from kio.schema.errors import ErrorCode

    return ErrorCode(number)


def _to_uuid(topic_id: bytes, api_key: int, kind: Kind) -> UUID | None:
    return None if topic_id == NO_TOPIC_ID else UUID(bytes=topic_id)


_PRIMITIVES: Final[Mapping[str, Callable[[Any, int, Kind], Any]]] = {
    "timedelta_i32": _to_timedelta,
    "timedelta_i64": _to_timedelta,
    "datetime_i64": _to_datetime,
    "error_code": _to_error_code,
    "uuid": _to_uuid,
}


@cache
def _is_known(api_key: int, kind: Kind, name: str) -> bool:
    """Whether any version of this API's message has a field of this name; a name that none has is a slip."""
    from kio.index import load_payload_module
    from kio.schema.index import api_key_map, schema_name_map
    from kio.static.constants import EntityType

    entity_kind: Literal[EntityType.request, EntityType.response]
    entity_kind = EntityType.request if kind == "request" else EntityType.response
    # From the newest down: a field that is dropped is nearly always one that came later.
    for version in sorted(schema_name_map[api_key_map[api_key]], reverse=True):
        if name in _field_names(load_payload_module(api_key, version, entity_kind)):
            return True
    return False


def _field_names(module: ModuleType) -> set[str]:
    types = [value for value in vars(module).values() if isinstance(value, type) and is_dataclass(value)]
    return {field.name for entity_type in types for field in fields(entity_type)}
