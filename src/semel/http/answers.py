"""The answers: which parts of an answer are kept, what it means for the effect, and the answer to a refused request.

Pure. Headers that belong to one connection or one visitor are never kept: a retry may come through another proxy, or in
a new session. An answer that is not about the effect must never be kept either: a client that has meanwhile logged in,
or has waited as it was told, would get it again, and could not use the key any more. A refusal is a problem document of
RFC 9457: its type and status are part of the interface and never change; titles and details are for people.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from semel.database.kinds import WrongKind

Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

REPLAYED_HEADER: Final = b"idempotency-replayed"
TTL_HEADER: Final = b"idempotency-ttl"

# Headers of one hop (RFC 9110, 7.6.1), headers of one visitor, and those that the server adds to each answer.
_NEVER_KEPT: Final = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te"),
        *(b"trailer", b"transfer-encoding", b"upgrade", b"set-cookie", b"set-cookie2", b"content-length", b"date"),
        TTL_HEADER,
    }
)
_STATUS_WITHOUT_BODY: Final = (204, 304)


class AnswerCutShort(RuntimeError):
    """The application has ended an answer before its promised length. It is not kept, and its effect is rolled back."""

    def __init__(self, answer: "Answer") -> None:
        super().__init__(
            f"the application ended its answer after {len(answer.body)} of {answer.promised_bytes} bytes: nothing was "
            "committed, and the next try executes"
        )


@dataclass(frozen=True)
class Answer:
    """An answer to a client. The names of headers are in lower case."""

    status: int
    headers: Headers
    body: bytes

    def check_whole(self) -> None:
        """Raise AnswerCutShort if the body is shorter than the length in its headers."""
        if self.promised_bytes is not None and self.promised_bytes > len(self.body):
            raise AnswerCutShort(self)

    @property
    def promised_bytes(self) -> int | None:
        """The length in its headers; None if there is none."""
        if self.status in _STATUS_WITHOUT_BODY:
            return 0
        lengths = {value for name, value in self.headers if name == b"content-length"}
        length = lengths.pop() if len(lengths) == 1 else b""
        return int(length) if length.isdigit() else None

    @property
    def sent_headers(self) -> Headers:
        """The headers with the length, which is not kept."""
        if self.status in _STATUS_WITHOUT_BODY:
            return self.headers
        return (*self.headers, (b"content-length", str(len(self.body)).encode()))

    def replayed(self, ttl_ms: int) -> "Answer":
        """The answer with headers that mark it as a replay and say how long it is kept."""
        return Answer(self.status, (*self.headers, (REPLAYED_HEADER, b"true"), ttl_header(ttl_ms)), self.body)


def ttl_header(ttl_ms: int) -> tuple[bytes, bytes]:
    """The header that says for how many seconds from now a repeated request gets this answer and is not executed."""
    return TTL_HEADER, str(ttl_ms // 1000).encode()


def lowered(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    return tuple((name.lower(), value) for name, value in headers)


def kept(headers: Headers) -> Headers:
    """The headers that a replay may show."""
    named = {word.strip().lower() for name, value in headers if name == b"connection" for word in value.split(b",")}
    return tuple((name, value) for name, value in headers if name not in _NEVER_KEPT and name not in named)


def streams(headers: Headers) -> bool:
    """Whether this answer is a stream of events, which may never end."""
    return any(name == b"content-type" and value.lower().startswith(b"text/event-stream") for name, value in headers)


def write_headers(headers: Headers) -> str:
    return json.dumps([[name.decode("latin-1"), value.decode("latin-1")] for name, value in headers])


def read_headers(text: str) -> Headers:
    return tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in json.loads(text))


# -- what an answer decides about the effect ---------------------------------------------------------------------------


class Fate(Enum):
    """What happens to an effect and its answer."""

    KEPT = "both commit"
    UNDONE = "the effect is rolled back and the answer kept: a refusal has no effect"
    FORGOTTEN = "the effect is rolled back and the answer not kept: the next try executes"


Commits: TypeAlias = Callable[[int], bool | Fate]

# A redirect that repeats the request elsewhere: it was not executed, and the client has to be able to send it under its
# key.
_ELSEWHERE: Final = frozenset({307, 308})
# These refuse the client, the connection, the form or the time of a request, all of which may have changed when the
# request is repeated. 401 and 407: log in; 403: not you; 405, 411, 413, 414 and 415: not in this form; 406, 412, 417,
# 426, 428 and 431: another header; 408, 425 and 429: another time; 421: another connection; 423: it is locked.
_NOT_OF_THE_EFFECT: Final = frozenset(
    {401, 403, 405, 406, 407, 408, 411, 412, 413, 414, 415, 417, 421, 423, 425, 426, 428, 429, 431}
)


def commits_success(status: int) -> bool:
    return status < 400


Keeps: TypeAlias = Callable[[int], bool]


def fate_of(status: int, headers: Headers, commits: Commits, keeps: Keeps | None = None) -> Fate:
    """If the application returns a Fate, that counts, except for 307 and 308 and, without `keeps`, for server errors.
    If it returns True or False, answers that are not about the effect are forgotten all the same. If it has `keeps`,
    only that decides which refusals and failures are replayed."""
    if status in _ELSEWHERE:
        return Fate.FORGOTTEN
    if keeps is not None and status >= 400:
        wish = _wish("commits", commits, status) if _wish("keeps", keeps, status) else Fate.FORGOTTEN
        return wish if isinstance(wish, Fate) else Fate.KEPT if wish else Fate.UNDONE
    if status >= 500:
        return Fate.FORGOTTEN
    wish = _wish("commits", commits, status)
    if isinstance(wish, Fate):
        return wish
    if status in _NOT_OF_THE_EFFECT or _says_come_again(status, headers):
        return Fate.FORGOTTEN
    return Fate.KEPT if wish else Fate.UNDONE


def _wish(name: str, function: Commits | Keeps, status: int) -> bool | Fate:
    """What the application's function returns. If it forgets to return anything, the effect would be lost."""
    wish = function(status)
    if not isinstance(wish, bool | Fate):
        kinds = "True, False or a Fate" if name == "commits" else "True or False"
        raise WrongKind(f"{name} has to return {kinds}, and has returned {wish!r} for {status}")
    return wish


def _says_come_again(status: int, headers: Headers) -> bool:
    """Whether the refusal is only for now. With 202 or 303 the same header means something else."""
    return status >= 400 and any(name == b"retry-after" for name, _ in headers)


# -- refusals ----------------------------------------------------------------------------------------------------------


PROBLEM_TYPE: Final = "application/problem+json"


@dataclass(frozen=True)
class Problem:
    """A kind of refusal."""

    name: str
    status: int
    title: str

    @property
    def uri(self) -> str:
        return f"urn:semel:problem:{self.name}"


KEY_MISSING: Final = Problem("key-missing", 400, "This request needs an Idempotency-Key")
KEY_MALFORMED: Final = Problem("key-malformed", 400, "The Idempotency-Key cannot be read")
CALLER_UNKNOWN: Final = Problem("caller-unknown", 400, "It is unknown whose Idempotency-Key this is")
STILL_RUNNING: Final = Problem("still-running", 409, "A request with this Idempotency-Key is running")
ANSWER_NOT_KEPT: Final = Problem("answer-not-kept", 409, "This request was executed, and its answer was not kept")
BODY_TOO_LARGE: Final = Problem("body-too-large", 413, "The body is too large for a request with an Idempotency-Key")
PAYLOAD_DIFFERS: Final = Problem("payload-differs", 422, "This Idempotency-Key was used for another request")
DATABASE_BUSY: Final = Problem("database-busy", 503, "The database is busy; nothing was executed")
DATABASE_AWAY: Final = Problem("database-away", 503, "The database did not answer; nothing was executed")
CONNECTION_UNUSED: Final = Problem(
    "connection-not-used", 500, "This service has not worked in the transaction of the Idempotency-Key"
)
WRITTEN_ELSEWHERE: Final = Problem(
    "written-elsewhere", 500, "This service has worked beside the transaction of the Idempotency-Key"
)
TRANSACTION_ENDED: Final = Problem(
    "transaction-ended", 500, "This service did not keep the transaction of the Idempotency-Key open and whole"
)

PROBLEMS: Final = (
    *(KEY_MISSING, KEY_MALFORMED, CALLER_UNKNOWN, STILL_RUNNING, ANSWER_NOT_KEPT),
    *(BODY_TOO_LARGE, PAYLOAD_DIFFERS, DATABASE_BUSY, DATABASE_AWAY, CONNECTION_UNUSED, WRITTEN_ELSEWHERE),
    TRANSACTION_ENDED,
)


class RequestRefused(Exception):
    """The request is not executed; the client gets `answer`."""

    def __init__(self, problem: Problem, detail: str, retry_after_seconds: int | None = None) -> None:
        super().__init__(detail)
        self.problem = problem
        self.retry_after_seconds = retry_after_seconds

    @property
    def answer(self) -> Answer:
        body = {
            "type": self.problem.uri,
            "title": self.problem.title,
            "status": self.problem.status,
            "detail": str(self),
        }
        headers = [(b"content-type", PROBLEM_TYPE.encode())]
        if self.retry_after_seconds is not None:
            headers.append((b"retry-after", str(self.retry_after_seconds).encode()))
        return Answer(self.problem.status, tuple(headers), json.dumps(body).encode())
