"""The client's side of `Idempotency-Key`: one key for each intent, and one final answer after any number of attempts.

    caller = Caller(requests.Session())
    answer = caller.post("https://shop/payments", json={"cents": 950}, intent="order 17")

It works with `httpx2`, `httpx` and `requests`, and returns their own response objects. A returned answer is final;
anything else is raised. It must never send one key with two different requests, nor an attempt without the key of the
first one.
"""

import asyncio
import inspect
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from semel.database.keys import derived_key
from semel.database.procedures import Procedure, drive, drive_async
from semel.http.attempts import Meaning, is_replayed, meaning_of, retry_after_seconds
from semel.http.requests import KEY_HEADER, read_key
from semel.retries import Retries, RetryBudget
from semel.retries.backoff import is_no_answer
from semel.retries.budget import PROCESS_BUDGET

__all__ = ["AsyncCaller", "Caller", "GaveUp", "KeyMisused", "is_replay", "key_of"]

# Five attempts, with at most six seconds of waiting in total.
RETRIES: Final = Retries(attempts=5, first_wait_ms=400)
# No attempt begins later than this after the first one.
DEADLINE_SECONDS: Final = 60.0
# By default `requests` waits for ever.
TIMEOUT_SECONDS: Final = 10.0


class GaveUp(Exception):
    """There is no final answer, and the request may have been executed. The same call with the same key finds out:
    `key` is the key that was sent, `answer` the last answer, or None."""

    def __init__(self, key: str, attempts: int, reason: str, answer: Any) -> None:
        super().__init__(
            f"gave up after {attempts} attempts, because {reason}: the request may have been executed, so send it "
            f"again under its key {key!r} and no other"
        )
        self.key = key
        self.attempts = attempts
        self.answer = answer


class KeyMisused(Exception):
    """The server knows this key from another request: nothing was executed. An intent must always have the same body,
    and another intent needs another name."""

    def __init__(self, key: str, answer: Any) -> None:
        super().__init__(f"the server has seen the key {key!r} with another request, and executed nothing")
        self.key = key
        self.answer = answer


def key_of(intent: str) -> str:
    """The key of an intent. It is the same in every process, so nothing has to be stored before the first attempt."""
    return derived_key("semel.http.client", intent)


def is_replay(answer: Any) -> bool:
    """Whether the server returned the answer of an earlier attempt, and executed nothing this time."""
    return is_replayed(_headers(answer))


@dataclass(frozen=True)
class _Pace:
    """When attempts are made. Tests replace `clock`, `chance` and the pause, so no test waits."""

    retries: Retries
    deadline_seconds: float
    budget: RetryBudget
    clock: Callable[[], float]
    chance: Callable[[], float]

    def call(self, key: str, send: Callable[[], Any], pause: Callable[[float], Any]) -> Procedure[Any]:
        until = self.clock() + self.deadline_seconds
        self.budget.earn()
        attempts = failures = 0
        while True:
            answer, failure = None, None
            attempts += 1
            try:
                answer = yield send()
            except Exception as error:
                if not is_no_answer(error):
                    raise
                failure, reason = error, f"{type(error).__name__}: {error}"
                meaning, wait_seconds = Meaning.FAILED, 0.0
            else:
                headers = _headers(answer)
                meaning = meaning_of(answer.status_code, headers, answer.content)
                wait_seconds = retry_after_seconds(headers)
                reason = f"the last answer was {answer.status_code}"
            if meaning is Meaning.FINAL:
                return answer
            if meaning is Meaning.MISUSED:
                raise KeyMisused(key, answer)
            if meaning is Meaning.FAILED:
                failures += 1
                if failures >= self.retries.attempts:
                    raise GaveUp(key, attempts, reason, answer) from failure
            # A little longer than the server asks for, so that not all clients return at the same moment.
            wait_seconds += self.retries.wait_seconds(max(failures, 1), self.chance())
            if self.clock() + wait_seconds > until:
                raise GaveUp(key, attempts, f"{reason}, and the time is up", answer) from failure
            # If another attempt is running, the server is not overloaded, so to ask for its answer costs no token.
            if meaning is Meaning.FAILED and not self.budget.take():
                raise GaveUp(key, attempts, f"{reason}, and the retry budget is used up", answer) from failure
            yield pause(wait_seconds)


class _AnyCaller:
    def __init__(
        self,
        client: Any,
        *,
        retries: Retries = RETRIES,
        deadline_seconds: float = DEADLINE_SECONDS,
        budget: RetryBudget = PROCESS_BUDGET,
        pause: Callable[[float], Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`retries` sets the number of attempts and the waits; no attempt begins later than `deadline_seconds` after
        the first. The process shares `budget`."""
        if not callable(getattr(client, "request", None)):
            raise TypeError(f"a {type(client).__qualname__} sends no requests: hand over {self._clients}")
        if inspect.iscoroutinefunction(client.request) is not self._is_asynchronous:
            raise TypeError(f"{type(client).__qualname__} is of the other kind: hand over {self._clients}")
        self._client = client
        self._pause = pause or self._sleep
        self._pace = _Pace(retries, deadline_seconds, budget, clock, chance)

    _sleep: Callable[[float], Any]
    _clients: str
    _is_asynchronous: bool


class Caller(_AnyCaller):
    """Sends requests with a key, over an `httpx2.Client` or a `requests.Session`."""

    _sleep = staticmethod(time.sleep)
    _clients = "an httpx2.Client or a requests.Session"
    _is_asynchronous = False

    def request(
        self, method: str, url: Any, *, intent: str | None = None, key: str | None = None, **arguments: Any
    ) -> Any:
        """The final answer. The key is that of the `intent`, or `key`, or a new one for each call; the other arguments
        are those of the client's own `request`."""
        named, headers = _keyed(intent, key, arguments)
        send = _sending(self._client, method, url, headers, arguments)
        return drive(self._pace.call(named, send, self._pause))

    def post(self, url: Any, **arguments: Any) -> Any:
        """`request("POST", ...)`."""
        return self.request("POST", url, **arguments)


class AsyncCaller(_AnyCaller):
    """Sends requests with a key, over an `httpx2.AsyncClient`."""

    _sleep = staticmethod(asyncio.sleep)
    _clients = "an httpx2.AsyncClient"
    _is_asynchronous = True

    async def request(
        self, method: str, url: Any, *, intent: str | None = None, key: str | None = None, **arguments: Any
    ) -> Any:
        """The final answer, as `Caller.request` returns it."""
        named, headers = _keyed(intent, key, arguments)
        request = self._client.build_request(method, url, headers=headers, **arguments)
        # A body from a generator can be sent only once, so it is read into memory first.
        await request.aread()

        def send() -> Awaitable[Any]:
            sent: Awaitable[Any] = self._client.send(request)
            return sent

        return await drive_async(self._pace.call(named, send, self._pause))

    async def post(self, url: Any, **arguments: Any) -> Any:
        """`request("POST", ...)`."""
        return await self.request("POST", url, **arguments)


def _keyed(intent: str | None, key: str | None, arguments: dict[str, Any]) -> tuple[str, dict[str, str]]:
    if intent is not None and key is not None:
        raise ValueError("a request has an intent or a key, and not both: the key of an intent is key_of(intent)")
    headers = dict(arguments.pop("headers", None) or {})
    if any(str(name).lower() == KEY_HEADER for name in headers):
        raise ValueError("the header Idempotency-Key is set by the caller: hand the key over as key=")
    named = (str(uuid.uuid4()) if intent is None else key_of(intent)) if key is None else key
    field = f'"{named}"'
    if read_key([field]) != named:
        raise ValueError(f"{named!r} would be another key in a header: take printable ASCII without quotes")
    return named, {**headers, "Idempotency-Key": field}


def _sending(
    client: Any, method: str, url: Any, headers: dict[str, str], arguments: dict[str, Any]
) -> Callable[[], Any]:
    """The request is made once, so that all its attempts have the same bytes."""
    if hasattr(client, "build_request"):
        request = client.build_request(method, url, headers=headers, **arguments)
        request.read()
        return lambda: client.send(request)
    return _sending_by_requests(client, method, url, headers, arguments)


def _sending_by_requests(
    client: Any, method: str, url: Any, headers: dict[str, str], arguments: dict[str, Any]
) -> Callable[[], Any]:
    from requests import Request

    options = {"timeout": TIMEOUT_SECONDS} | {
        name: arguments.pop(name) for name in ("timeout", "allow_redirects") if name in arguments
    }
    of_place = {name: arguments.pop(name, None) for name in ("proxies", "stream", "verify", "cert")}
    request = client.prepare_request(Request(method.upper(), url, headers=headers, **arguments))
    if not isinstance(request.body, str | bytes | None):
        raise TypeError("a body that is read while it is sent can be sent once only: hand over its bytes")
    options |= client.merge_environment_settings(request.url, of_place.pop("proxies") or {}, **of_place)

    def send() -> Any:
        answer = client.send(request, **options)
        # With stream=True nothing was read yet, and an answer that breaks off is none.
        _ = answer.content
        return answer

    return send


def _headers(answer: Any) -> Mapping[str, str]:
    return {str(name).lower(): str(value) for name, value in answer.headers.items()}
