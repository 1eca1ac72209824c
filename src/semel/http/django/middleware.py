"""The middleware of Django: key, answer and what the ORM does commit in one transaction of the alias.

It is synchronous: under ASGI, Django runs it in the thread in which the ORM works for a view that is a coroutine, so
both have one connection. It must never pass on an answer whose effect could still be lost.
"""

from collections.abc import Callable, Iterable
from typing import Any

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from semel.database.procedures import drive
from semel.http.answers import Answer, Fate, Headers, RequestRefused, lowered, streams, ttl_header
from semel.http.django.configuration import configured
from semel.http.holders import Holder, claimed, holder_of, settled, tallied
from semel.http.idempotency import CONTEXT
from semel.http.places import NATIVE, Request
from semel.steps.heartbeat import beating_in_thread


class IdempotencyMiddleware:
    """Stands in MIDDLEWARE below authentication, and takes the Idempotency of the settings."""

    sync_capable = True
    async_capable = False

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        if not apps.is_installed("semel.django"):
            raise ImproperlyConfigured('the keys have no tables: put "semel.django" into INSTALLED_APPS')
        self._get_response = get_response
        self._idempotency = configured()
        self._idempotency.check_threads()

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        parsed = _request(request)
        if not self._idempotency.concerns(parsed.method, parsed.path):
            return self._get_response(request)
        try:
            holder = self._holder(parsed, request)
        except RequestRefused as refused:
            return _response(refused.answer)
        return self._get_response(request) if holder is None else self._run(holder, request)

    def _holder(self, parsed: Request, request: HttpRequest) -> Holder | None:
        """None if the request has no key, and needs none."""
        key = request.META.get("HTTP_IDEMPOTENCY_KEY")
        name = self._idempotency.keyed(parsed, [] if key is None else [key])
        if name is None:
            return None
        length = str(request.META.get("CONTENT_LENGTH") or "")
        self._idempotency.check_request_bytes(int(length) if length.isdigit() else 0)
        body = request.body
        self._idempotency.check_request_bytes(len(body))
        path, query = request.path.encode("utf-8", "surrogateescape"), request.META.get("QUERY_STRING", "")
        fingerprint = self._idempotency.fingerprint(parsed, path, query.encode("latin-1", "replace"), body)
        return holder_of(self._idempotency, parsed, name, fingerprint, self._idempotency.transaction)

    def _run(self, holder: Holder, request: HttpRequest) -> HttpResponseBase:
        answer = drive(claimed(holder))
        if answer is not None:
            return _response(answer)
        request.META[CONTEXT] = holder
        try:
            with beating_in_thread(holder.lease), tallied(holder), holder.executing():
                return self._execute(holder, request)
        finally:
            drive(holder.release())

    def _execute(self, holder: Holder, request: HttpRequest) -> HttpResponseBase:
        response = self._get_response(request)
        headers = _lowered(response.items())
        try:
            fate = self._idempotency.fate(response.status_code, headers)
            instead = drive(settled(holder, fate, response.status_code, self._kept(response, headers)))
        except BaseException:
            response.close()
            raise
        if instead is not None:
            response.close()
            return _response(instead)
        if fate is not Fate.FORGOTTEN:
            [(name, value)] = (ttl_header(self._idempotency.result_ttl_ms),)
            response.headers[name.decode()] = value.decode()
        return response

    def _kept(self, response: Any, headers: Headers) -> Answer | None:
        """The answer as it is kept; None if it is a stream, or too large."""
        if response.streaming or streams(headers) or len(response.content) > self._idempotency.answer_bytes_max:
            return None
        return Answer(response.status_code, headers, response.content)


def _request(request: HttpRequest) -> Request:
    headers = {name.lower(): value for name, value in request.headers.items()}
    return Request((request.method or "").upper(), request.path_info, headers, {**request.META, NATIVE: request})


def _response(answer: Answer) -> HttpResponse:
    response = HttpResponse(answer.body, status=answer.status)
    del response.headers["Content-Type"]
    for name, value in answer.sent_headers:
        response.headers[name.decode("latin-1")] = value.decode("latin-1")
    return response


def _lowered(headers: Iterable[tuple[str, str]]) -> Headers:
    return lowered((name.encode("latin-1"), value.encode("latin-1")) for name, value in headers)
