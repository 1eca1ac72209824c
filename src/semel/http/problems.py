"""What a client is told when a request is not executed: a problem of RFC 9457 with a type that never changes.

The types and their status are part of the interface; titles and details are for people.
"""

import json
from dataclasses import dataclass
from typing import Final

from semel.http.answers import Answer

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
CALLER_UNKNOWN: Final = Problem("caller-unknown", 400, "Nobody can tell whose Idempotency-Key this is")
STILL_RUNNING: Final = Problem("still-running", 409, "A request with this Idempotency-Key is running")
ANSWER_NOT_KEPT: Final = Problem("answer-not-kept", 409, "This request was executed, and its answer was not kept")
BODY_TOO_LARGE: Final = Problem("body-too-large", 413, "The body is too large for a request with an Idempotency-Key")
PAYLOAD_DIFFERS: Final = Problem("payload-differs", 422, "This Idempotency-Key was used for another request")
DATABASE_BUSY: Final = Problem("database-busy", 503, "The database is busy; nothing was executed")

PROBLEMS: Final = (
    *(KEY_MISSING, KEY_MALFORMED, CALLER_UNKNOWN, STILL_RUNNING, ANSWER_NOT_KEPT),
    *(BODY_TOO_LARGE, PAYLOAD_DIFFERS, DATABASE_BUSY),
)


class Refused(Exception):
    """The request is not executed; `answer` is what the client gets."""

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
