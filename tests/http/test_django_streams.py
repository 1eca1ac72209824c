"""What the middleware of Django passes on, and does not keep."""

from __future__ import annotations

import io
import json
from functools import partial
from types import SimpleNamespace
from typing import Any

from applications import payments
from conftest_http import caller
from sqlalchemy import Engine, func, select

from djangos import alias_of, configure, model_on
from semel.http import Idempotency
from semel.http.idempotency import CONTEXT

NAME = f"{__name__}.IDEMPOTENCY"
IDEMPOTENCY: Any = None


def test_a_stream_leaves_after_its_commit_and_is_not_kept(engine: Engine) -> None:
    configure()
    from django.http import HttpResponse, StreamingHttpResponse
    from django.test import RequestFactory, override_settings

    from semel.http.django.middleware import IdempotencyMiddleware

    def view(request: Any) -> Any:
        payment.create(amount="5")
        if request.path == "/whole":
            return HttpResponse("whole")
        return StreamingHttpResponse(str(booked()) for _ in range(2))

    def booked() -> int:
        with engine.connect() as connection:
            return connection.scalar(select(func.count()).select_from(payments)) or 0

    def post(path: str) -> Any:
        return middleware(RequestFactory().post(path, headers={"Idempotency-Key": path, "X-Caller": "anna"}))

    global IDEMPOTENCY
    with alias_of(engine) as alias:
        from semel.http.django import transactions

        payment = model_on(alias)
        IDEMPOTENCY = Idempotency(partial(transactions, alias), scope=caller)
        with override_settings(SEMEL={"IDEMPOTENCY": NAME}):
            middleware = IdempotencyMiddleware(view)
        assert b"".join(post("/stream")) == b"11"
        again = post("/stream")
        assert (again.status_code, json.loads(again.content)["type"]) == (409, "urn:semel:problem:answer-not-kept")
        assert [post("/whole").content for _ in range(2)] == [b"whole"] * 2
        assert booked() == 2


def test_steps_are_found_under_asgi_as_well(engine: Engine) -> None:
    """Its requests have no environment."""
    configure()
    from django.core.handlers.asgi import ASGIRequest

    key = object()
    request = ASGIRequest({"type": "http", "method": "POST", "path": "/", "headers": []}, io.BytesIO())
    request.META[CONTEXT] = SimpleNamespace(steps=key)
    assert Idempotency(engine, scope=caller).key(request) is key
