"""What an answer means for the client that sent the key, and what the client does next. Pure.

An answer is final, or says to try again, or says that the key was misused. Servers like semel, and those that follow
only the IETF draft, name the Idempotency-Key in the titles of their problems with status 409 and 422. A 409 or 422
without that name comes from the application itself, and is final.
"""

import json
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Final

from semel.http.answers import PROBLEM_TYPE, REPLAYED_HEADER
from semel.http.requests import KEY_HEADER

# 408: the request was not read in time; 425: too early; 429: too many requests. With a key, a request can be sent again
# after every 5xx except those that stay the same: not implemented, and another version of HTTP.
_COME_AGAIN: Final = frozenset({408, 425, 429})
_FOR_EVER: Final = frozenset({501, 505})


class Meaning(Enum):
    """What an answer means for the client."""

    FINAL = "the answer"
    FAILED = "not executed, or nobody knows: try again, if the budget allows it"
    RUNNING = "another attempt with this key is being executed: wait for its answer"
    MISUSED = "the key was used for another request"


def meaning_of(status: int, headers: Mapping[str, str], body: bytes) -> Meaning:
    if is_replayed(headers):
        # This includes a stored failure: the answer will never change.
        return Meaning.FINAL
    if status == 409 and ("retry-after" in headers or _names_key(headers, body)):
        return Meaning.RUNNING
    if status == 422 and _names_key(headers, body):
        return Meaning.MISUSED
    if status in _COME_AGAIN or (status >= 500 and status not in _FOR_EVER):
        return Meaning.FAILED
    return Meaning.FINAL


def is_replayed(headers: Mapping[str, str]) -> bool:
    """Whether the server executed nothing this time. Stripe's header has another name."""
    return "true" in (headers.get(REPLAYED_HEADER.decode()), headers.get("idempotent-replayed"))


def retry_after_seconds(headers: Mapping[str, str]) -> float:
    """How long the client should wait; 0 if the server does not say. A date counts from the date of the answer, so the
    client's clock does not matter."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        apart = parsedate_to_datetime(text) - parsedate_to_datetime(headers.get("date", ""))
    except (ValueError, TypeError):
        return 0.0
    return max(apart.total_seconds(), 0.0)


def _names_key(headers: Mapping[str, str], body: bytes) -> bool:
    if headers.get("content-type", "").partition(";")[0].strip().lower() != PROBLEM_TYPE:
        return False
    try:
        title = json.loads(body)["title"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return False
    return isinstance(title, str) and KEY_HEADER in title.lower()
