"""A caller gets one answer for one intent: over lost answers, over 409, over a restart; and an outage is no storm.

The service is the real middleware behind a real socket; faults are answers that are cut off, and statuses.
"""

from __future__ import annotations

import asyncio
import io
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import httpx2
import pytest
import requests
from applications import payments
from flask import Flask, request
from requests.adapters import HTTPAdapter
from sqlalchemy import Engine, insert
from werkzeug.serving import make_server

from semel.http import Idempotency, WsgiIdempotency
from semel.http.attempts import Meaning, is_replayed, meaning_of, retry_after_seconds
from semel.http.client import AsyncCaller, Caller, GaveUp, KeyMisused, is_replay, key_of
from semel.retries import Retries, RetryBudget
from semel.testing.clock import Clock

# What befalls the next request: its answer is lost, or somebody on the way answers it.
LOSE = "lose"


class Service:
    """POST /payments books a payment. `faults` are the fates of the next requests."""

    def __init__(self, engine: Engine) -> None:
        self.faults: list[Any] = []
        self.seen: list[str] = []
        self.statuses: list[int] = []
        app = Flask("shop")

        @app.post("/payments")
        def pay() -> Any:
            connection = idempotency.connection(request)
            body = request.json
            connection.execute(insert(payments).values(amount=str(body["cents"])))
            return {"cents": body["cents"]}, body.get("status", 201)

        idempotency = Idempotency(engine, scope=lambda asked: asked.headers.get("x-caller", "anna"))
        app.wsgi_app = WsgiIdempotency(app.wsgi_app, idempotency)  # type: ignore[method-assign]
        self._app: Any = app.wsgi_app
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}/payments"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        self.seen.append(environ.get("HTTP_IDEMPOTENCY_KEY", ""))
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, tuple):
            # Read first: what is not read would become the next request of the connection.
            environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            status, headers = fault
            start(f"{status} Fault", [("Content-Length", "0"), *headers.items()])
            return [b""]
        answer = self._app(environ, start)
        if fault == LOSE:
            b"".join(answer)
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return answer


@pytest.fixture
def service(engine: Engine) -> Iterator[Service]:
    made = Service(engine)
    yield made
    made.stop()


CLIENTS: dict[str, Callable[[], Any]] = {
    "httpx": lambda: httpx.Client(trust_env=False),
    "httpx2": lambda: httpx2.Client(trust_env=False),
    "requests": requests.Session,
}


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    with CLIENTS[request.param]() as made:
        yield made


def caller_of(client: Any, clock: Clock | None = None, **options: Any) -> Caller:
    clock = clock or Clock()
    options = {"budget": RetryBudget(clock=clock), "pause": clock.sleep, "clock": clock.monotonic, **options}
    return Caller(client, **{"chance": lambda: 0.0, **options})


def booked(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return [row.amount for row in connection.execute(payments.select())]


def test_a_payment_whose_answers_are_lost_is_made_once(client: Any, service: Service, engine: Engine) -> None:
    """All attempts of a call have one key; the replay is told apart from the first answer."""
    service.faults = [LOSE, LOSE]
    answer = caller_of(client).post(service.url, json={"cents": 950})
    assert (answer.status_code, answer.json(), is_replay(answer)) == (201, {"cents": 950}, True)
    assert booked(engine) == ["950"]
    assert len(service.seen) == 3
    assert len(set(service.seen)) == 1
    assert not is_replay(caller_of(client).post(service.url, json={"cents": 950}))
    assert booked(engine) == ["950", "950"], "another call is another intent"


def test_an_intent_has_one_key_in_every_process(client: Any, service: Service, engine: Engine) -> None:
    """The second caller stands for the process that was started after the first one died: it has stored nothing."""
    service.faults = [LOSE]
    with pytest.raises(GaveUp) as gone:
        caller_of(client, retries=Retries(attempts=1)).post(service.url, json={"cents": 7}, intent="order 17")
    assert gone.value.key == key_of("order 17")
    answer = caller_of(client).post(service.url, json={"cents": 7}, intent="order 17")
    assert (answer.status_code, is_replay(answer), booked(engine)) == (201, True, ["7"])


def test_one_intent_with_two_bodies_is_the_callers_mistake(client: Any, service: Service, engine: Engine) -> None:
    caller = caller_of(client)
    caller.post(service.url, json={"cents": 7}, intent="order 17")
    with pytest.raises(KeyMisused, match="executed nothing"):
        caller.post(service.url, json={"cents": 8}, intent="order 17")
    assert booked(engine) == ["7"]


def test_a_request_that_is_running_is_waited_for_as_long_as_the_server_says(client: Any, service: Service) -> None:
    """409 with Retry-After counts neither as an attempt nor in the budget."""
    clock = Clock()
    budget = RetryBudget(reserve=1, clock=clock, per_second=0.001)
    service.faults = [(409, {"Retry-After": "3"})] * 4
    caller = caller_of(client, clock, budget=budget, retries=Retries(attempts=1, first_wait_ms=100))
    assert caller.post(service.url, json={"cents": 7}).status_code == 201
    assert clock.sleeps == [3.1] * 4
    assert int(budget.tokens) == 1


def test_waits_double_and_the_server_may_ask_for_more(client: Any, service: Service) -> None:
    clock = Clock()
    date = {"Date": "Mon, 02 Feb 2026 10:00:00 GMT", "Retry-After": "Mon, 02 Feb 2026 10:00:05 GMT"}
    service.faults = [(503, {}), (429, {"Retry-After": "2"}), (502, {"Retry-After": "soon"}), LOSE]
    caller = caller_of(client, clock, retries=Retries(attempts=5, first_wait_ms=100))
    assert caller.post(service.url, json={"cents": 7}).status_code == 201
    assert clock.sleeps == [0.1, 2.2, 0.4, 0.8]
    assert retry_after_seconds({name.lower(): value for name, value in date.items()}) == 5.0


def test_no_attempt_begins_after_the_deadline(client: Any, service: Service) -> None:
    """Nobody waits until the time is up only to say then that it is."""
    clock = Clock()
    service.faults = [(503, {"Retry-After": "3600"})]
    with pytest.raises(GaveUp, match="the time is up") as gone:
        caller_of(client, clock).post(service.url, json={"cents": 7})
    assert (clock.sleeps, gone.value.answer.status_code, len(service.seen)) == ([], 503, 1)


def test_an_outage_is_no_storm_because_all_callers_share_the_budget(client: Any, service: Service) -> None:
    clock = Clock()
    # What time fills in during this test is less than one token.
    budget = RetryBudget(0.2, per_second=0.001, reserve=5, clock=clock)
    service.faults = [(503, {})] * 100
    callers = [caller_of(client, clock, budget=budget) for _ in range(5)]
    for number in range(50):
        with pytest.raises(GaveUp):
            callers[number % 5].post(service.url, json={"cents": 7})
    assert len(service.seen) <= 50 + 5 + 50 * 0.2
    assert len(service.seen) >= 50 + 5


@pytest.mark.parametrize("status", [400, 402, 404, 409, 422, 501])
def test_an_answer_of_the_application_is_final(client: Any, service: Service, status: int) -> None:
    """Also 409 and 422, which mean the key only where their problem names it."""
    answer = caller_of(client).post(service.url, json={"cents": 7, "status": status})
    assert (answer.status_code, len(service.seen)) == (status, 1)


def test_a_body_that_can_be_read_once_is_sent_as_often_as_needed_or_refused(
    client: Any, service: Service, engine: Engine
) -> None:
    service.faults = [LOSE]
    pieces = iter([b'{"cents"', b": 7}"])
    headers = {"Content-Type": "application/json"}
    if isinstance(client, httpx.Client | httpx2.Client):
        assert caller_of(client).post(service.url, content=pieces, headers=headers).status_code == 201
        assert booked(engine) == ["7"]
    else:
        with pytest.raises(TypeError, match="hand over its bytes"):
            caller_of(client).post(service.url, data=pieces, headers=headers)


def test_a_streamed_answer_that_breaks_off_is_none() -> None:
    class BreaksOff(HTTPAdapter):
        attempts = 0

        def send(self, request: Any, *_: Any, **__: Any) -> requests.Response:
            self.attempts += 1
            answer = requests.Response()
            answer.status_code, answer.url, answer.request = 201, request.url, request
            answer.raw = io.BytesIO(b"paid") if self.attempts == 2 else Broken()
            return answer

    class Broken:
        def read(self, _size: int) -> bytes:
            raise requests.exceptions.ChunkedEncodingError("it ends in the middle")

    adapter = BreaksOff()
    session = requests.Session()
    session.mount("http://", adapter)
    answer = Caller(session, pause=lambda _: None, budget=RetryBudget()).post("http://shop/payments", stream=True)
    assert (answer.content, adapter.attempts) == (b"paid", 2)


def test_a_key_is_named_in_one_way(client: Any, service: Service) -> None:
    caller = caller_of(client)
    with pytest.raises(ValueError, match="an intent or a key"):
        caller.post(service.url, intent="order 17", key="k-1")
    with pytest.raises(ValueError, match="hand the key over as key="):
        caller.post(service.url, headers={"idempotency-key": "k-1"})
    with pytest.raises(ValueError, match="quotes"):
        caller.post(service.url, key='k"1')
    assert service.seen == []


def test_a_mistake_of_the_program_is_raised_and_not_tried_again(client: Any) -> None:
    with pytest.raises((httpx.UnsupportedProtocol, httpx2.UnsupportedProtocol, requests.exceptions.InvalidSchema)):
        caller_of(client).post("nowhere://shop/payments", json={})


def test_a_coroutine_calls_in_the_same_way(service: Service, engine: Engine) -> None:
    clock = Clock()

    async def pause(seconds: float) -> None:
        clock.sleep(seconds)

    async def call() -> httpx2.Response:
        async with httpx2.AsyncClient(trust_env=False) as client:
            caller = AsyncCaller(client, budget=RetryBudget(clock=clock), pause=pause, clock=clock.monotonic)
            answer: httpx2.Response = await caller.post(service.url, json={"cents": 7}, intent="order 17")
            return answer

    service.faults = [LOSE, (503, {})]
    answer = asyncio.run(call())
    assert (answer.json(), is_replay(answer), booked(engine)) == ({"cents": 7}, True, ["7"])


def test_the_drafts_own_problems_are_understood() -> None:
    """The titles of the examples in draft-ietf-httpapi-idempotency-key-header-07."""
    problem = {"content-type": "application/problem+json"}
    running = json.dumps({"title": "A request is outstanding for this Idempotency-Key"}).encode()
    used = json.dumps({"title": "Idempotency-Key is already used"}).encode()
    assert meaning_of(409, problem, running) is Meaning.RUNNING
    assert meaning_of(422, problem, used) is Meaning.MISUSED
    for body in (b"", b"[]", b'{"title": 7}', b"{", b"[" * 100_000):
        assert meaning_of(422, problem, body) is Meaning.FINAL
    assert is_replayed({"idempotent-replayed": "true"}), "as Stripe marks it"
