"""The messages of every API except Produce and Fetch: kio's generated dataclasses, filled from plain values.

A handler reads the request as kio's dataclass of that version, and answers with plain values, the same for all
versions:

    request = messages.decode_request(METADATA, version, body)
    answer = {
        "brokers": [{"node_id": 0, "host": "127.0.0.1", "port": 9092}],
        "cluster_id": "semel",
        "controller_id": 0,
        "topics": [{"name": name, "topic_id": id_of(name), "partitions": [...]} for name in request.topics],
    }
    frame = messages.encode_response(METADATA, version, correlation_id, answer)

The values for `encode_response` and `build_request`:
- A field has kio's name: Kafka's in snake case, without `_ms` (`throttle_time`, `timeout`).
- A field that this version does not have is dropped; a name that no version has is a TypeError.
- A struct is a mapping, an array any iterable, a time milliseconds, an error code a number, a topic id 16 bytes. -1
  means no time, and 16 zero bytes mean no id.
- `throttle_time`, `error_code`, `error_message` and every field with a default in the protocol may be left out. These
  three may also be given for an API whose answers lack them, so every refusal can have a message.

To read a request: `milliseconds(request.timeout)` for a duration, `topic_id_bytes(topic.topic_id)` for an id, and
`getattr(request, "field", otherwise)` for a field that older versions lack.

Bytes after a message are ignored, as in Apache Kafka: refusing them would break clients that it serves. Tagged fields
that kio does not know are skipped. `reader` reads the messages, because a client can make kio's own reader abort the
process, and `writer` writes responses, because kio's writer is slow.

kio is imported when the first message needs it, and each version of each API when it is first used. This file must
never be on the path of records.
"""

import io
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import import_module
from typing import Any, Final, get_args
from uuid import UUID

from semel.wire.errors import ProtocolError
from semel.wire.frames import request_prefix, response_prefix
from semel.wire.primitives import Buffer
from semel.wire.reader import NO_TOPIC_ID, read_entity
from semel.wire.steps import Steps, finish
from semel.wire.writer import Kind, check_names, write_entity

# Much less than a frame with records may have: ten thousand partitions in one OffsetCommit take about half a megabyte.
BODY_BYTES_MAX: Final = 4 * 1024 * 1024

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def decode_request(api_key: int, version: int, body: Buffer) -> Any:
    """kio's dataclass of the request in this version."""
    return finish(decode_request_in_steps(api_key, version, body))


def decode_request_in_steps(api_key: int, version: int, body: Buffer) -> Steps[Any]:
    """The same, a few elements at a time; `body` must not change before the last step."""
    return _decode(api_key, version, "request", body, BODY_BYTES_MAX)


def decode_response(api_key: int, version: int, body: Buffer, body_bytes_max: int = BODY_BYTES_MAX) -> Any:
    """kio's dataclass of the response in this version. Only a client's answer with records needs a larger limit."""
    return finish(_decode(api_key, version, "response", body, body_bytes_max))


def build_request(api_key: int, version: int, /, **values: object) -> Any:
    """kio's dataclass of the request in this version, from plain values."""
    return _build(_entity_type(api_key, version, "request"), values)


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str | None, entity: Any) -> bytes:
    """The whole request, with the frame's size and the request header."""
    if not isinstance(entity, _entity_type(api_key, version, "request")):
        raise TypeError(f"{type(entity).__qualname__} is not the request of API {api_key} in version {version}")
    body = _encode(entity)
    return request_prefix(api_key, version, correlation_id, client_id, len(body)) + body


def encode_response(api_key: int, version: int, correlation_id: int, values: Mapping[str, object]) -> bytes:
    """The whole response from plain values, with the frame's size and the response header."""
    return finish(encode_response_in_steps(api_key, version, correlation_id, values))


def encode_response_in_steps(
    api_key: int, version: int, correlation_id: int, values: Mapping[str, object]
) -> Steps[bytes]:
    """The same, a few elements at a time."""
    body = yield from write_entity(_entity_type(api_key, version, "response"), values)
    return response_of(api_key, version, correlation_id, body)


def encode_response_body(api_key: int, version: int, values: Mapping[str, object]) -> bytes:
    """The response without what differs from one request to the next, for `response_of`."""
    return bytes(finish(write_entity(_entity_type(api_key, version, "response"), values)))


def response_of(api_key: int, version: int, correlation_id: int, body: bytes | bytearray) -> bytes:
    """The whole response with this body."""
    return response_prefix(api_key, version, correlation_id, len(body)) + body


def milliseconds(duration: timedelta) -> int:
    return duration // timedelta(milliseconds=1)


def topic_id_bytes(topic_id: UUID | None) -> bytes:
    return NO_TOPIC_ID if topic_id is None else topic_id.bytes


def _decode(api_key: int, version: int, kind: Kind, body: Buffer, body_bytes_max: int) -> Steps[Any]:
    if len(body) > body_bytes_max:
        raise ProtocolError(f"a {kind} of {len(body)} bytes is larger than {body_bytes_max}")
    return (yield from read_entity(_entity_type(api_key, version, kind), body))


def _encode(entity: Any) -> bytes:
    from kio.serial import entity_writer

    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


@cache
def _entity_type(api_key: int, version: int, kind: Kind) -> type[Any]:
    _import_types_of_kio()
    from kio.index import load_request_schema, load_response_schema

    return load_request_schema(api_key, version) if kind == "request" else load_response_schema(api_key, version)


@cache
def _import_types_of_kio() -> None:
    """Import kio's types without registering them with Hypothesis.

    kio would import Hypothesis if it is installed, which costs a broker in a test suite 160 ms and 25 MB for nothing.
    """
    without = "hypothesis" not in sys.modules
    if without:
        sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import_module("kio.static.primitive")
    finally:
        if without:
            del sys.modules["hypothesis"]


# Turns a plain value into the type that kio's dataclass declares.
_Convert = Callable[[Any], Any]

_converters_of: dict[type[Any], dict[str, _Convert]] = {}


def _build(entity_type: type[Any], values: Mapping[str, Any]) -> Any:
    converters = _converters_of.get(entity_type)
    if converters is None:
        converters = _converters_of[entity_type] = _converters(entity_type)
    check_names(entity_type, "request", values.keys() - converters.keys())
    return entity_type(**{name: converters[name](value) for name, value in values.items() if name in converters})


def _converters(entity_type: type[Any]) -> dict[str, _Convert]:
    return {field.name: _converter(field.type, field.metadata.get("kafka_type")) for field in fields(entity_type)}


def _converter(declared: Any, kafka_type: str | None) -> _Convert:
    """The conversion of a plain value to the declared type; None stays None, and the writer finds a wrong value."""
    arguments = get_args(declared)
    if Ellipsis in arguments:
        convert_item = _converter(arguments[0], kafka_type)

        def convert_array(items: Iterable[Any] | None) -> Any:
            return None if items is None else tuple([convert_item(item) for item in items])

        return convert_array
    for argument in arguments:
        # A union with None, around an array or a struct.
        if Ellipsis in get_args(argument) or is_dataclass(argument):
            return _converter(argument, kafka_type)
    struct_type: type[Any] = declared
    if is_dataclass(declared):

        def convert_struct(values: Mapping[str, Any] | None) -> Any:
            return None if values is None else _build(struct_type, values)

        return convert_struct
    if kafka_type == "datetime_i64" and type(None) in arguments:
        return _to_nullable_datetime
    return _PRIMITIVES.get(kafka_type or "", _unchanged)


def _unchanged(value: Any) -> Any:
    return value


def _to_timedelta(duration_ms: int) -> timedelta:
    return timedelta(milliseconds=duration_ms)


def _to_datetime(time_ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=time_ms)


def _to_nullable_datetime(time_ms: int) -> datetime | None:
    return None if time_ms == -1 else _to_datetime(time_ms)


def _to_uuid(topic_id: bytes) -> UUID | None:
    return None if topic_id == NO_TOPIC_ID else UUID(bytes=topic_id)


_PRIMITIVES: Final[Mapping[str, _Convert]] = {
    "timedelta_i32": _to_timedelta,
    "timedelta_i64": _to_timedelta,
    "datetime_i64": _to_datetime,
    "uuid": _to_uuid,
}
