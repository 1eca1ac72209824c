"""An answer, what of it may be kept, and how it is written into a row and sent again.

Pure. What belongs to one connection or one visitor is never kept: whoever repeats a request may be somebody else's
proxy, or a new session.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

REPLAYED_HEADER: Final = b"idempotency-replayed"

# Of one hop (RFC 9110, 7.6.1), of one visitor, or written anew for each answer by the server.
_NEVER_KEPT: Final = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te"),
        *(b"trailer", b"transfer-encoding", b"upgrade", b"set-cookie", b"set-cookie2", b"content-length", b"date"),
    }
)
_STATUS_WITHOUT_BODY: Final = (204, 304)


class AnswerCutShort(RuntimeError):
    """The application has ended an answer before its end. Nothing of it is kept, and its effect is rolled back."""

    def __init__(self, answer: "Answer") -> None:
        super().__init__(
            f"the application ended its answer after {len(answer.body)} of {answer.promised_bytes} bytes: nothing was "
            "committed, and the next try executes"
        )


@dataclass(frozen=True)
class Answer:
    """What a client gets. The names of headers are in small letters."""

    status: int
    headers: Headers
    body: bytes

    @property
    def promised_bytes(self) -> int | None:
        """How long it says that it is, None where it does not say."""
        if self.status in _STATUS_WITHOUT_BODY:
            return 0
        lengths = {value for name, value in self.headers if name == b"content-length"}
        length = lengths.pop() if len(lengths) == 1 else b""
        return int(length) if length.isdigit() else None

    @property
    def sent_headers(self) -> Headers:
        """With the length, which is not kept."""
        if self.status in _STATUS_WITHOUT_BODY:
            return self.headers
        return (*self.headers, (b"content-length", str(len(self.body)).encode()))

    @property
    def replayed(self) -> "Answer":
        """The same, marked."""
        return Answer(self.status, (*self.headers, (REPLAYED_HEADER, b"true")), self.body)


def lowered(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    return tuple((name.lower(), value) for name, value in headers)


def kept(headers: Headers) -> Headers:
    """The headers that a replay may show."""
    named = {word.strip().lower() for name, value in headers if name == b"connection" for word in value.split(b",")}
    return tuple((name, value) for name, value in headers if name not in _NEVER_KEPT and name not in named)


def streams(headers: Headers) -> bool:
    """Whether this answer is a stream of events, which has no end to wait for."""
    return any(name == b"content-type" and value.lower().startswith(b"text/event-stream") for name, value in headers)


def write_headers(headers: Headers) -> str:
    return json.dumps([[name.decode("latin-1"), value.decode("latin-1")] for name, value in headers])


def read_headers(text: str) -> Headers:
    return tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in json.loads(text))
