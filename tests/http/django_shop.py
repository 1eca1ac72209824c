"""The shop in Django, which finds its views by the name of a module."""

import json

from applications import Failure, Gate, answer_to, book
from django.http import HttpRequest, HttpResponse
from django.urls import path

from semel.database import within
from semel.http import Idempotency

# Put in by who makes the application.
parts: tuple[Idempotency, Gate] = ()  # type: ignore[assignment]


def pay(request: HttpRequest) -> HttpResponse:
    idempotency, gate = parts
    asked = json.loads(request.body)
    gate.enter()
    with within(idempotency.connection(request)) as connection:
        book(connection, asked)
    if asked.get("fails"):
        raise Failure
    status, headers, body = answer_to(asked, gate)
    response = HttpResponse(body, status=status)
    for name, value in headers.items():
        response[name] = value
    return response


urlpatterns = [path("payments", pay)]
