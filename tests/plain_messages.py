"""Messages of any API from plain values, by the key of the API: a struct is a mapping, and an array any iterable. One
mapping fits all versions: a field that the version lacks is dropped, and one that is left out has the protocol's
default. A name that no version has is a TypeError.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from semel.wire import messages
from semel.wire.message import REQUIRED, Field, Struct
from semel.wire.primitives import Buffer
from semel.wire.steps import finish

BODY_BYTES_MAX = messages.BODY_BYTES_MAX

ZEROS = {"bool": False, "float64": 0.0, "string": "", "uuid": bytes(16), "bytes": b"", "records": b""}


def build_request(api_key: int, version: int, /, **values: object) -> Any:
    """The request; a field that this version lacks gets its default, because no broker would see it."""
    return message(messages.request_type(api_key), values, version)


def build_response(api_key: int, version: int, values: Mapping[str, object]) -> Any:
    return message(messages.response_type(api_key), values, version)


def message(message_type: type[Struct], values: Mapping[str, Any], version: int) -> Any:
    return struct_of(message_type, values, version, names_in(message_type))


@cache
def names_in(struct_type: type[Struct]) -> frozenset[str]:
    """The names of all fields, also those of the structs within: some exist twice, for older and for newer versions."""
    inner = [names_in(field.kind) for field in struct_type.FIELDS.values() if not isinstance(field.kind, str)]
    return frozenset(struct_type.FIELDS).union(*inner)


def struct_of(struct_type: Any, values: Mapping[str, Any], version: int, known: frozenset[str]) -> Any:
    unknown = values.keys() - known
    if unknown:
        raise TypeError(f"no version of {struct_type.__name__} has a field {' or '.join(sorted(unknown))}")
    return struct_type(
        **{
            name: value_of(field, values[name], version, known)
            if name in values and field.since <= version < field.until
            else default_of(field)
            for name, field in struct_type.FIELDS.items()
        }
    )


def value_of(field: Field, value: Any, version: int, known: frozenset[str]) -> Any:
    if isinstance(field.kind, str) or value is None:
        return tuple(value) if field.is_array and value is not None else value
    if field.is_array:
        return tuple(struct_of(field.kind, one, version, known) for one in value)
    return struct_of(field.kind, value, version, known)


def default_of(field: Field) -> Any:
    if field.default is not REQUIRED:
        return field.default
    return () if field.is_array else ZEROS.get(field.kind, 0) if isinstance(field.kind, str) else None


def plain(struct: Struct, version: int) -> dict[str, Any]:
    """The fields that a message has in this version, as plain values."""
    return {
        name: plain_value(getattr(struct, name), version)
        for name, field in struct.FIELDS.items()
        if field.since <= version < field.until
    }


def plain_value(value: Any, version: int) -> Any:
    if isinstance(value, Struct):
        return plain(value, version)
    return [plain_value(one, version) for one in value] if isinstance(value, list | tuple) else value


def decode_request(api_key: int, version: int, body: Buffer) -> Any:
    return messages.decode_request(messages.request_type(api_key), version, body)


def decode_response(api_key: int, version: int, body: Buffer, body_bytes_max: int = BODY_BYTES_MAX) -> Any:
    return messages.decode_response(messages.response_type(api_key), version, body, body_bytes_max)


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str | None, request: Any) -> bytes:
    assert api_key == request.KEY
    return messages.encode_request(request, version, correlation_id, client_id)


def encode_response(api_key: int, version: int, correlation_id: int, values: Mapping[str, object]) -> bytes:
    response = build_response(api_key, version, values)
    return finish(messages.encode_response_in_steps(response, version, correlation_id))
