"""The middleware for WSGI: Flask, Django, or any other application.

Like the one for ASGI, it holds back the answer to a request with a key until claim, effect and answer are committed,
does not change a request without a key, and only ends what its handler has taken by `session`.
"""

import contextlib
import io
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final

from semel.database.kinds import check_callable, check_kind
from semel.database.procedures import drive
from semel.database.refusals import WrittenElsewhere
from semel.http.answers import Answer, Fate, Headers, RequestRefused, lowered, streams, ttl_header
from semel.http.holders import Holder, claimed, holder_of, refusable, refusal, settled, tallied
from semel.http.idempotency import CONTEXT, UNKEYED, Idempotency
from semel.http.places import Request, keep_route, note_place
from semel.http.unkeyed import Unkeyed
from semel.steps.heartbeat import beating_in_thread

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

_HEADERS_WITHOUT_PREFIX: Final = ("CONTENT_TYPE", "CONTENT_LENGTH")
_READ_BYTES: Final = 65536


class WsgiIdempotency:
    """Use `app.wsgi_app = WsgiIdempotency(app.wsgi_app, idempotency)`, or wrap any application."""

    def __init__(self, app: "WSGIApplication", idempotency: Idempotency) -> None:
        check_kind("idempotency", idempotency, Idempotency)
        check_callable("the application", app, may_wait=True)
        if iscoroutinefunction(app) or iscoroutinefunction(type(app).__call__):
            raise TypeError("the application is one of ASGI: take AsgiIdempotency around it")
        idempotency.check_threads()
        self._app = app
        self._idempotency = idempotency

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        request = _request(environ)
        if not self._idempotency.concerns(request.method, request.path):
            return self._pass(request, environ, start_response)
        try:
            exchange = self._exchange(request, environ)
        except RequestRefused as refused:
            return _send_answer(start_response, refused.answer)
        if exchange is None:
            return self._pass(request, environ, start_response)
        return exchange.run(self._app, start_response)

    def _pass(self, request: Request, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        """A request without a key: its answer goes out as it comes, after what its handler has asked for was ended."""
        unkeyed = environ[UNKEYED] = self._idempotency.unkeyed(request.method)

        def settle_and_start(status: str, headers: list[tuple[str, str]], *error: Any) -> Callable[[bytes], object]:
            drive(unkeyed.settle(self._idempotency.fate(int(status.split(" ", 1)[0]), _lowered(headers))))
            return start_response(status, headers, *error)

        try:
            pieces = self._app(environ, settle_and_start)
        except BaseException as error:
            if unkeyed.is_begun:
                note_place(error, request)
            drive(unkeyed.end())
            raise
        if unkeyed.is_begun:
            return _Ending(pieces, unkeyed)
        # Nobody would end what is begun from here on.
        drive(unkeyed.end())
        return pieces

    def _exchange(self, request: Request, environ: "WSGIEnvironment") -> "_Exchange | _Gone | None":
        """How to handle the request; None if it has no key and needs none."""
        key = environ.get("HTTP_IDEMPOTENCY_KEY")
        name = self._idempotency.keyed(request, [] if key is None else [key])
        if name is None:
            return None
        body = self._body(environ)
        if body is None:
            return _Gone()
        path = (environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")).encode("latin-1")
        query = environ.get("QUERY_STRING", "").encode("latin-1")
        fingerprint = self._idempotency.fingerprint(request, path, query, body)
        environ["wsgi.input"] = io.BytesIO(body)
        environ["CONTENT_LENGTH"] = str(len(body))
        environ.pop("HTTP_TRANSFER_ENCODING", None)
        holder = holder_of(self._idempotency, request, name, fingerprint, self._idempotency.transaction)
        return _Exchange(self._idempotency, holder, environ)

    def _body(self, environ: "WSGIEnvironment") -> bytes | None:
        """The body: as long as its Content-Length says, or to its end if the server knows that end. None if it is cut
        short."""
        body = bytearray()
        if environ.get("CONTENT_LENGTH"):
            length = _length(environ["CONTENT_LENGTH"])
            self._idempotency.check_request_bytes(length)
            while len(body) < length and (piece := environ["wsgi.input"].read(length - len(body))):
                body += piece
            return bytes(body) if len(body) == length else None
        while environ.get("wsgi.input_terminated") and (piece := environ["wsgi.input"].read(_READ_BYTES)):
            body += piece
            self._idempotency.check_request_bytes(len(body))
        return bytes(body)


class _Gone:
    """For a client that left before it had sent all of its body, or a Content-Length that is no number."""

    def run(self, app: "WSGIApplication", start_response: "StartResponse") -> Iterable[bytes]:
        start_response("400 Bad Request", [("Content-Length", "0")])
        return []


class _Exchange:
    """One request with a key, and its answer, which is held back until it is committed."""

    def __init__(self, idempotency: Idempotency, holder: Holder, environ: "WSGIEnvironment") -> None:
        self._idempotency = idempotency
        self._holder = holder
        self._environ = environ
        self._started: tuple[str, list[tuple[str, str]]] = ("", [])
        self._written = bytearray()
        self._is_sent = False

    def run(self, app: "WSGIApplication", start_response: "StartResponse") -> Iterable[bytes]:
        answer = drive(claimed(self._holder))
        if answer is not None:
            return _send_answer(start_response, answer)
        self._environ[CONTEXT] = self._holder
        try:
            with beating_in_thread(self._holder.lease), tallied(self._holder), self._holder.executing():
                return self._execute(app, start_response)
        finally:
            drive(self._holder.release())

    def _execute(self, app: "WSGIApplication", start_response: "StartResponse") -> Iterable[bytes]:
        try:
            pieces = app(self._environ, self._start)
        except Exception as error:
            beside = refusable(self._holder, error)
            if beside is None:
                raise
            return _send_answer(start_response, drive(refusal(self._holder, beside)))
        rest = iter(pieces)
        try:
            is_whole = self._read(rest)
            headers = _lowered(self._started[1])
            status = int(self._started[0].split(" ", 1)[0])
            answer = Answer(status, headers, bytes(self._written)) if is_whole else None
            if answer is not None:
                answer.check_whole()
            fate = self._idempotency.fate(status, headers)
            instead = drive(settled(self._holder, fate, status, answer))
        except BaseException:
            _close(pieces)
            raise
        if instead is not None:
            _close(pieces)
            return _send_answer(start_response, instead)
        self._is_sent = True
        start_response(self._started[0], [*self._started[1], *self._ttl(fate)])
        if is_whole:
            # The answer is kept, so it is sent; the log has told of what was refused after it.
            with contextlib.suppress(WrittenElsewhere):
                _close(pieces)
            return [bytes(self._written)]
        return _Passing(bytes(self._written), rest, pieces)

    def _ttl(self, fate: Fate) -> list[tuple[str, str]]:
        return [] if fate is Fate.FORGOTTEN else _texts((ttl_header(self._idempotency.result_ttl_ms),))

    def _start(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], object]:
        if exc_info is not None and self._is_sent:
            # The server cannot send another answer any more, and has to break this one off.
            raise exc_info[1].with_traceback(exc_info[2])
        keep_route(self._environ)
        # A second start replaces the answer of an application that has failed in the middle, with what it had written.
        self._started = status, headers
        self._written.clear()
        return self._written.extend

    def _read(self, pieces: Iterator[bytes]) -> bool:
        """Whether this has read to the end of an answer that can be kept."""
        for piece in pieces:
            self._written += piece
            if len(self._written) > self._idempotency.answer_bytes_max or self._is_stream():
                return False
        return not self._is_stream()

    def _is_stream(self) -> bool:
        content_types = (value for name, value in self._started[1] if name.lower() == "content-type")
        return streams(tuple((b"content-type", value.encode("latin-1")) for value in content_types))


class _Passing:
    """An answer that is not kept: first the part that was read, then the rest as it comes."""

    def __init__(self, read: bytes, rest: Iterator[bytes], pieces: Iterable[bytes]) -> None:
        self._read = read
        self._rest = rest
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        yield self._read
        yield from self._rest

    def close(self) -> None:
        _close(self._pieces)


class _Ending:
    """The answer to a request without a key, whose session is closed after it."""

    def __init__(self, pieces: Iterable[bytes], unkeyed: Unkeyed) -> None:
        self._pieces = pieces
        self._unkeyed = unkeyed

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces

    def close(self) -> None:
        try:
            _close(self._pieces)
        finally:
            drive(self._unkeyed.end())


def _lowered(headers: Iterable[tuple[str, str]]) -> Headers:
    return lowered((name.encode("latin-1"), value.encode("latin-1")) for name, value in headers)


def _length(text: str) -> int:
    """The length; -1, which no body has, if the text is no number."""
    try:
        return int(text)
    except ValueError:
        return -1


def _close(pieces: Iterable[bytes]) -> None:
    close = getattr(pieces, "close", None)
    if close is not None:
        close()


def _send_answer(start_response: "StartResponse", answer: Answer) -> list[bytes]:
    start_response(f"{answer.status} {_phrase(answer.status)}", _texts(answer.sent_headers))
    return [answer.body]


def _texts(headers: Headers) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def _request(environ: "WSGIEnvironment") -> Request:
    headers = {
        name.removeprefix("HTTP_").replace("_", "-").lower(): value
        for name, value in environ.items()
        if name.startswith("HTTP_") or name in _HEADERS_WITHOUT_PREFIX
    }
    # The path as the application's routes see it: without the mount point, which is SCRIPT_NAME.
    path = (environ.get("PATH_INFO") or "/").encode("latin-1").decode("utf-8", "replace")
    # In upper case, as Flask and Django read it; otherwise "post" would be executed without its key.
    return Request(environ["REQUEST_METHOD"].upper(), path, headers, environ)
