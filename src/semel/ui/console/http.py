"""The part of HTTP/1.1 that the console speaks, as values: requests and answers.

All limits are here. A request that breaks one of them, or is no HTTP, becomes a `PageRefused`, which is also the
answer.
"""

import asyncio
import json
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, unquote

# An address holds at most one name of a group, of 32,767 bytes, each of which may take three there; a cookie is short.
HEAD_BYTES_MAX: Final = 128 * 1024
# A change has only a few fields, and nobody uploads anything. JSON may take six bytes for one of a name.
BODY_BYTES_MAX: Final = 256 * 1024
QUERY_FIELDS_MAX: Final = 20

T = TypeVar("T")

STATUS_TEXTS: Final = {
    200: "OK",
    303: "See Other",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    411: "Length Required",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    505: "HTTP Version Not Supported",
}
# The headers of every answer. A page loads nothing from other sites, no site may frame it, and no text becomes markup:
# with `require-trusted-types-for` the browser refuses that even if a script of the console tried.
_SAFETY: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; "
        "require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# JavaScript has exact whole numbers up to here; larger ones are sent as text.
_EXACT_MAX: Final = (1 << 53) - 1


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    # By names in lower case.
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    # The address that the browser connects from.
    peer: str = "unknown"


@dataclass(frozen=True)
class Response:
    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    def encoded_head(self) -> bytes:
        own = {"Content-Type": self.content_type, "Content-Length": str(len(self.body))}
        return head(self.status, own, self.headers)


class PageRefused(Exception):
    """The request is refused; `status` and the message are the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def reason_of(error: BaseException) -> str:
    """Why a service that the console asks did not answer, in the operating system's words if there are any."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


async def in_time(answer: Awaitable[T], seconds_max: float, advice: str = "") -> T:
    """The answer, or PageRefused with the time and the advice if it takes longer."""
    try:
        async with asyncio.timeout(seconds_max):
            return await answer
    except TimeoutError:
        raise PageRefused(504, f"there is no answer after {seconds_max:g} s{advice}") from None


def head(status: int, *headers: Mapping[str, str]) -> bytes:
    """Everything in front of a body. Every answer ends its connection."""
    lines = {**_SAFETY, **{name: value for some in headers for name, value in some.items()}, "Connection": "close"}
    text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} {STATUS_TEXTS[status]}\r\n{text}\r\n".encode("latin-1")


def json_response(value: Any, status: int = 200) -> Response:
    return Response(status, "application/json", as_json(value))


def refusal(refused: PageRefused) -> Response:
    headers = {"Allow": "GET, POST"} if refused.status == 405 else {}
    return Response(refused.status, "application/json", as_json({"error": str(refused)}), headers)


def as_json(value: Any) -> bytes:
    return json.dumps(_exact(value), separators=(",", ":")).encode()


def _exact(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _exact(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_exact(one) for one in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value) if -_EXACT_MAX <= value <= _EXACT_MAX else str(int(value))
    return value


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """The one request of a connection; None if the client closed it without one."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raise PageRefused(400, "this is no whole HTTP request") from None
    except asyncio.LimitOverrunError:
        raise PageRefused(431, f"a request's head has at most {HEAD_BYTES_MAX} bytes") from None
    lines = raw.decode("latin-1").split("\r\n")[:-2]
    method, target = _request_line(lines[0])
    headers = _headers(lines[1:])
    path, _, query = target.partition("?")
    return Request(method, unquote(path), _query(query), headers, await _body(reader, method, headers))


def _request_line(line: str) -> tuple[str, str]:
    words = line.split(" ")
    if len(words) != 3 or not words[1].startswith("/"):
        raise PageRefused(400, "this is no HTTP request")
    if not words[2].startswith("HTTP/1."):
        raise PageRefused(505, "HTTP/1.1 is spoken here")
    return words[0], words[1]


def _headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        key = name.lower()
        if not colon or not name or name != name.strip():
            raise PageRefused(400, "a header has the form NAME: VALUE")
        if key in headers and key in ("host", "origin", "content-length"):
            raise PageRefused(400, f"header {key} is given twice")
        headers[key] = value.strip()
    return headers


def _query(text: str) -> dict[str, str]:
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX, errors="strict"))
    except ValueError:
        raise PageRefused(400, "the address has a query that cannot be read") from None


async def _body(reader: asyncio.StreamReader, method: str, headers: Mapping[str, str]) -> bytes:
    if method != "POST":
        return b""
    length = headers.get("content-length", "")
    if not (length.isascii() and length.isdigit()):
        raise PageRefused(411, "a POST says how long it is")
    if len(length) > len(str(BODY_BYTES_MAX)) or int(length) > BODY_BYTES_MAX:
        raise PageRefused(413, f"a POST has at most {BODY_BYTES_MAX} bytes")
    try:
        return await reader.readexactly(int(length))
    except asyncio.IncompleteReadError:
        raise PageRefused(400, "the request ended before its body did") from None
