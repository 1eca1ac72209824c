"""Reads how the HTTP keys of an application have answered, from the counters that it serves for Prometheus.

A replay writes nothing, so no table has it: each process of the application counts its own replays. For an address that
does not answer, or answers with something else, the page shows its name and the error; it must never hide another
address.
"""

import http.client
import math
import re
import time
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from semel.ui.console.http import reason_of
from semel.wire.hosts import shown_address

ANSWER_SECONDS_MAX: Final = 3.0
ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024
PATH_DEFAULT: Final = "/metrics"
_CLAIMS: Final = re.compile(r'semel_http_claims_total\{(?:[^}]*,)?outcome="([a-z]+)"[^}]*\} ([0-9.e+]+)')
_BEGAN: Final = re.compile(r"process_start_time_seconds ([0-9.e+]+)")
_HOUR_SECONDS: Final = 3_600
# The rate of a process that has just started would be a guess.
_AGE_SECONDS_MIN: Final = 60

Answer = dict[str, Any]


class _NotTold(Exception):
    """The application's counters could not be read; the message says why."""


class Applications:
    """The addresses from the console's options, in their order."""

    def __init__(self, urls: Sequence[str]) -> None:
        """ValueError if a URL is no address of counters."""
        self._places = [_place(url) for url in urls]

    def every(self) -> list[Answer]:
        """The counts of each since its process started."""
        return [self._one(host, port, path) for host, port, path in self._places]

    def _one(self, host: str, port: int, path: str) -> Answer:
        shown: Answer = {"name": f"{shown_address(host, port)}{path}", "error": None}
        try:
            return {**shown, **counted(_text(host, port, path), time.time())}
        except _NotTold as error:
            return {**shown, "error": str(error)}


def _place(url: str) -> tuple[str, int, str]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 80
    except ValueError:
        host, port = None, 80
    if not host or parts.scheme != "http" or parts.username is not None or not parts.path.isprintable():
        raise ValueError("an application's counters have an address such as http://127.0.0.1:9100/metrics")
    return host, port, parts.path if parts.path.strip("/") else PATH_DEFAULT


def _text(host: str, port: int, path: str) -> str:
    connection = http.client.HTTPConnection(host, port, timeout=ANSWER_SECONDS_MAX)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read(ANSWER_BYTES_MAX)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _NotTold(f"it does not answer: {reason_of(error)}") from None
    finally:
        connection.close()
    if answer.status != 200:
        raise _NotTold(f"it answers {answer.status}")
    return body.decode(errors="replace")


def counted(text: str, now_seconds: float) -> Answer:
    """The counts by outcome, and the replays per hour, on average since the process began."""
    outcomes: dict[str, int] = {}
    began: float | None = None
    for line in text.splitlines():
        if match := _CLAIMS.match(line):
            outcomes[match[1]] = outcomes.get(match[1], 0) + round(_figure(match[2]))
        elif match := _BEGAN.match(line):
            began = _figure(match[1])
    if not outcomes:
        raise _NotTold("it tells no counters of HTTP keys; they appear with the first request that has a key")
    replayed = outcomes.get("replayed", 0)
    age_seconds = None if began is None else now_seconds - began
    is_known = age_seconds is not None and age_seconds >= _AGE_SECONDS_MIN
    return {
        "outcomes": outcomes,
        "began_ms": None if began is None else round(began * 1000),
        "replays_per_hour": round(replayed * _HOUR_SECONDS / age_seconds, 1) if age_seconds and is_known else None,
    }


def _figure(text: str) -> float:
    try:
        figure = float(text)
    except ValueError:
        raise _NotTold(f"it tells {text!r} where a number was expected") from None
    if not math.isfinite(figure):
        raise _NotTold("it tells a number without end")
    return figure
