"""Turns the messages of every API into bytes and back. Records have codecs of their own: `produce` and `fetch`.

    request = messages.decode_request(kafka.metadata.MetadataRequest, version, body)
    answer = kafka.metadata.MetadataResponse(brokers=..., topics=...)
    frame = messages.encode_response(answer, version, correlation_id)

A message is one class of `semel.wire.kafka` for all of its versions; `semel.wire.message` says what such a class is.
Bytes after a message are ignored, as in Apache Kafka: refusing them would break clients that it serves. Tagged fields
that are not known are skipped. This file must never be on the path of records.
"""

from functools import cache
from importlib import import_module
from typing import Any, Final, Literal, TypeVar

from semel.wire.errors import ProtocolError
from semel.wire.frames import request_prefix, response_prefix
from semel.wire.message import Request, Response, Struct
from semel.wire.primitives import Buffer
from semel.wire.reader import read_message
from semel.wire.steps import Steps, finish
from semel.wire.versions import NAMES, is_flexible
from semel.wire.writer import write_message

# Much less than a frame with records may have: ten thousand partitions in one OffsetCommit take about half a megabyte.
BODY_BYTES_MAX: Final = 4 * 1024 * 1024

A = TypeVar("A", bound=Response)
R = TypeVar("R", bound=Request[Any])


def decode_request(request_type: type[R], version: int, body: Buffer) -> R:
    """The request in this version."""
    return finish(decode_request_in_steps(request_type, version, body))


def decode_request_in_steps(request_type: type[R], version: int, body: Buffer) -> Steps[R]:
    """The same, a few elements at a time; `body` must not change before the last step."""
    return _decode(request_type, request_type.KEY, version, body, BODY_BYTES_MAX)


def decode_response(response_type: type[A], version: int, body: Buffer, body_bytes_max: int = BODY_BYTES_MAX) -> A:
    """The response in this version. Only a client's answer with records needs a larger limit."""
    response: A = finish(_decode(response_type, response_type.KEY, version, body, body_bytes_max))
    return response


def encode_request(request: Request[Any], version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The whole request, with the frame's size and the request header."""
    key = request.KEY
    body = finish(write_message(request, version, is_flexible(key, version)))
    return request_prefix(key, version, correlation_id, client_id, len(body)) + body


def encode_response(response: Response, version: int, correlation_id: int) -> bytes:
    """The whole response, with the frame's size and the response header."""
    return finish(encode_response_in_steps(response, version, correlation_id))


def encode_response_in_steps(response: Response, version: int, correlation_id: int) -> Steps[bytes]:
    """The same, a few elements at a time."""
    key = response.KEY
    body = yield from write_message(response, version, is_flexible(key, version))
    return response_of(key, version, correlation_id, body)


def encode_response_body(response: Response, version: int) -> bytes:
    """The response without what differs from one request to the next, for `response_of`."""
    return bytes(finish(write_message(response, version, is_flexible(response.KEY, version))))


def response_of(api_key: int, version: int, correlation_id: int, body: bytes | bytearray) -> bytes:
    """The whole response with this body."""
    return response_prefix(api_key, version, correlation_id, len(body)) + body


def request_type(api_key: int) -> type[Request[Any]]:
    """The class of the requests of an API."""
    found: type[Request[Any]] = _message_type(api_key, "Request")
    return found


def response_type(api_key: int) -> type[Response]:
    """The class of the answers of an API."""
    found: type[Response] = _message_type(api_key, "Response")
    return found


def response_type_of(request: Request[A]) -> type[A]:
    """The class of the answers to this request."""
    found: type[A] = _message_type(request.KEY, "Response")
    return found


@cache
def _message_type(api_key: int, kind: Literal["Request", "Response"]) -> Any:
    name = NAMES[api_key]
    words = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return getattr(import_module(f"semel.wire.kafka.{words.removeprefix('_')}"), name + kind)


def _decode(message_type: type[Struct], api_key: int, version: int, body: Buffer, body_bytes_max: int) -> Steps[Any]:
    if len(body) > body_bytes_max:
        kind = "request" if issubclass(message_type, Request) else "response"
        raise ProtocolError(f"a {kind} of {len(body)} bytes is larger than {body_bytes_max}")
    return (yield from read_message(message_type, version, is_flexible(api_key, version), body))
