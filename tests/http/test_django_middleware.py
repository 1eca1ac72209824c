"""The middleware of Django keeps, refuses and passes on what the others do: what differs is between it and Django."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from conftest_http import caller
from sqlalchemy import Engine

from djangos import alias_of, configure, model_on
from semel.database.kinds import WrongKind
from semel.http import Idempotency, Request

View = Callable[[Any], Any]
Send = Callable[..., Any]
IDEMPOTENCY: Any = None
TYPE = "Content-Type"
TTL = "Idempotency-TTL"


@contextmanager
def served(engine: Engine, view: Callable[[Any, Any], Any], **options: Any) -> Iterator[Send]:
    """Send a request through the middleware to a view, which gets the payments as well."""
    configure()
    from django.test import RequestFactory, override_settings

    from semel.http.django import transactions
    from semel.http.django.middleware import IdempotencyMiddleware

    global IDEMPOTENCY
    with alias_of(engine) as alias:
        IDEMPOTENCY = Idempotency(partial(transactions, alias), **{"scope": caller, **options})
        with override_settings(SEMEL={"IDEMPOTENCY": f"{__name__}.IDEMPOTENCY"}):
            middleware = IdempotencyMiddleware(partial(view, model_on(alias)))

        def send(path: str = "/pay", body: bytes = b"", *, key: str = "k-1", **environ: Any) -> Any:
            headers = {"Idempotency-Key": key, "X-Caller": "anna"}
            request = RequestFactory().post(path, body, "text/plain", headers=headers, **environ)
            return middleware(request)

        send.middleware = middleware  # type: ignore[attr-defined]
        yield send


def problem(response: Any) -> str:
    return str(json.loads(response.content)["type"]).removeprefix("urn:semel:problem:")


def pay(payments: Any, request: Any) -> Any:
    from django.http import HttpResponse

    payments.create(amount="5")
    return HttpResponse(f"paid {payments.count()}", status=201)


def test_a_repeated_request_gets_the_first_answer_and_says_how_long_it_is_kept(engine: Engine) -> None:
    with served(engine, pay) as send:
        first, again, other = send(), send(), send(key="k-2")
    assert [one.content for one in (first, again, other)] == [b"paid 1", b"paid 1", b"paid 2"]
    assert "Idempotency-Replayed" not in first
    assert again["Idempotency-Replayed"] == "true"
    assert int(first[TTL]) >= int(again[TTL]) > 0


def test_another_query_or_mount_is_another_request(engine: Engine) -> None:
    with served(engine, pay) as send:
        assert send("/pay?currency=EUR").status_code == 201
        assert problem(send("/pay?currency=USD")) == "payload-differs"
        assert send(key="k-2", SCRIPT_NAME="/shop").status_code == 201
        assert problem(send(key="k-2", SCRIPT_NAME="/other-shop")) == "payload-differs"


def test_patterns_are_held_against_the_path_below_the_mount(engine: Engine) -> None:
    with served(engine, pay, paths=("/pay",)) as send:
        assert [send(SCRIPT_NAME="/shop").content for _ in range(2)] == [b"paid 1"] * 2


class Unread(io.BytesIO):
    """A body that nobody may read."""

    def read(self, *_: Any) -> bytes:
        raise AssertionError("it was read")


def test_a_body_that_is_too_large_is_refused_before_it_is_read(engine: Engine) -> None:
    with served(engine, pay, request_bytes_max=5) as send:
        assert send(body=b"12345").status_code == 201
        assert problem(send(body=b"123456", key="k-2", **{"wsgi.input": Unread()})) == "body-too-large"


def test_a_body_that_does_not_say_its_length_is_measured(engine: Engine) -> None:
    with served(engine, pay, request_bytes_max=5) as send:
        from django.core.handlers.asgi import ASGIRequest

        headers = [(b"idempotency-key", b"k-1"), (b"x-caller", b"anna")]
        scope = {"type": "http", "method": "POST", "path": "/pay", "headers": headers}
        assert problem(send.middleware(ASGIRequest(scope, io.BytesIO(b"123456")))) == "body-too-large"  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["events", "large"])
def test_an_answer_that_is_endless_or_too_large_is_not_kept(engine: Engine, kind: str) -> None:
    def view(payments: Any, request: Any) -> Any:
        response = pay(payments, request)
        if kind == "events":
            response[TYPE] = "text/event-stream"
        return response

    with served(engine, view, answer_bytes_max=6 if kind == "events" else 5) as send:
        assert send().status_code == 201
        assert problem(send()) == "answer-not-kept"


def test_an_answer_of_just_the_largest_size_is_kept(engine: Engine) -> None:
    with served(engine, pay, answer_bytes_max=6) as send:
        assert [send().content for _ in range(2)] == [b"paid 1"] * 2


def test_a_request_that_is_not_kept_or_fails_is_executed_again(engine: Engine) -> None:
    """And its answer promises nothing."""
    outcomes = iter([503, RuntimeError, 201])

    def view(payments: Any, request: Any) -> Any:
        response = pay(payments, request)
        outcome = next(outcomes)
        if outcome is RuntimeError:
            raise RuntimeError
        response.status_code = outcome
        return response

    with served(engine, view) as send:
        first = send()
        assert (first.status_code, TTL in first) == (503, False)
        with pytest.raises(RuntimeError):
            send()
        assert send().content == b"paid 1"


def test_a_response_that_is_not_sent_is_closed(engine: Engine) -> None:
    """It may hold a file."""
    closed = []

    def view(payments: Any, request: Any) -> Any:
        from django.http import HttpResponse

        response = HttpResponse("nothing was done")
        response.close = lambda: closed.append(request.path)  # type: ignore[method-assign]
        return response

    with served(engine, view, strict=True) as send:
        assert problem(send("/unasked")) == "connection-not-used"
    with served(engine, view, commits=lambda status: None) as send, pytest.raises(WrongKind):
        send("/mistaken")
    assert closed == ["/unasked", "/mistaken"]


def test_a_replay_has_the_headers_of_the_first_answer_and_none_of_djangos(engine: Engine) -> None:
    def view(payments: Any, request: Any) -> Any:
        response = pay(payments, request)
        response["Location"] = "/payments/1"
        del response[TYPE]
        return response

    with served(engine, view) as send:
        first, again = send(), send()
    assert (first["Location"], again["Location"]) == ("/payments/1", "/payments/1")
    assert TYPE not in again


def test_a_view_finds_its_steps(engine: Engine) -> None:
    def view(payments: Any, request: Any) -> Any:
        with IDEMPOTENCY.key(request).step("pay") as step:
            if step.first:
                step.result = "paid"
        return pay(payments, request)

    with served(engine, view, steps=("/pay",)) as send:
        assert send().status_code == 201


def test_no_answer_leaves_while_somebody_else_may_still_roll_its_effect_back(engine: Engine) -> None:
    with served(engine, pay) as send:
        from django.db import transaction

        with pytest.raises(RuntimeError, match="durable"), transaction.atomic(using=IDEMPOTENCY.database.args[0]):
            send()
        assert send().content == b"paid 1"


def test_a_caller_that_would_have_to_be_awaited_is_refused_at_the_start(engine: Engine) -> None:
    async def scope(request: Request) -> str:
        return "anna"

    with pytest.raises(WrongKind), served(engine, pay, scope=scope):
        pass
