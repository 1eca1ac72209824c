"""The middleware for ASGI: FastAPI, Starlette, Litestar, or any other application.

It holds back the answer to a request with a key until claim, effect and answer are committed. It does not change a
request without a key, and only ends what its handler has taken by `session`. It must never send an answer whose effect
could still be lost.

The last message of an answer does not prove that the handler has finished: middleware in between, such as Starlette's
`@app.middleware("http")`, also sends one for a handler that has raised or was interrupted. An answer that is as long as
its Content-Length says proves it. Any other answer is committed when the application has returned without an exception,
and was not told that the client is gone.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from semel.database.kinds import check_callable, check_kind
from semel.database.procedures import drive_async
from semel.http.answers import Answer, Fate, RequestRefused, lowered, streams, ttl_header
from semel.http.holders import Holder, claimed, holder_of, refusable, refusal, settled, tallied
from semel.http.idempotency import CONTEXT, UNKEYED, Idempotency
from semel.http.places import Request, note_place
from semel.http.requests import KEY_HEADER
from semel.steps.heartbeat import beating
from semel.steps.transactions import whole

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]


class AsgiIdempotency:
    """Use `app.add_middleware(AsgiIdempotency, idempotency=idempotency)`, or wrap any application."""

    def __init__(self, app: Application, idempotency: Idempotency) -> None:
        check_kind("idempotency", idempotency, Idempotency)
        check_callable("the application", app, may_wait=True)
        idempotency.check_loop()
        self._app = app
        self._idempotency = idempotency

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if not self._idempotency.concerns(_method(scope), _path(scope)):
            await self._pass(scope, receive, send)
            return
        try:
            exchange = await self._exchange(scope, receive, send)
        except RequestRefused as refused:
            await _send_answer(send, refused.answer)
            return
        if exchange is None:
            await self._pass(scope, receive, send)
        else:
            await exchange.run(self._app)

    async def _pass(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """A request without a key: its answer goes out as it comes, after what its handler has asked for was ended."""
        unkeyed = scope[UNKEYED] = self._idempotency.unkeyed_in_loop(_method(scope))

        async def settle_and_send(message: Message) -> None:
            if message["type"] == "http.response.start" and unkeyed.is_begun:
                fate = self._idempotency.fate(message["status"], lowered(message.get("headers", ())))
                await drive_async(unkeyed.settle(fate))
            await send(message)

        try:
            await self._app(scope, receive, settle_and_send)
        except Exception as error:
            if unkeyed.is_begun:
                note_place(error, _request(scope))
            raise
        finally:
            if unkeyed.is_begun:
                await whole(drive_async(unkeyed.end()))

    async def _exchange(
        self, scope: MutableMapping[str, Any], receive: Receive, send: Send
    ) -> "_Exchange | _Gone | None":
        """How to handle the request; None if it has no key and needs none."""
        request = _request(scope)
        fields = [value.decode("latin-1") for name, value in scope["headers"] if name.lower() == KEY_HEADER.encode()]
        name = await self._idempotency.keyed_async(request, fields)
        if name is None:
            return None
        body = await self._body(receive)
        if body is None:
            return _Gone()
        path = scope.get("raw_path") or scope["path"].encode()
        fingerprint = await self._idempotency.fingerprint_async(request, path, scope.get("query_string", b""), body)
        holder = holder_of(self._idempotency, request, name, fingerprint, self._idempotency.loop_transaction)
        return _Exchange(self._idempotency, holder, scope, _Receive(body, receive), send)

    async def _body(self, receive: Receive) -> bytes | None:
        """The whole body; None if the client left before its end."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            body += message.get("body", b"")
            self._idempotency.check_request_bytes(len(body))
            if not message.get("more_body", False):
                return bytes(body)


class _Gone:
    """For a client that left before it had sent all of its body: nobody waits for an answer."""

    async def run(self, app: Application) -> None:
        pass


class _Receive:
    """Returns the whole body at once, then any other message, such as that the client is gone."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self.has_told_of_end = False
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            message = await self._receive()
            self.has_told_of_end |= message["type"] == "http.disconnect"
            return message
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


class _Exchange:
    """One request with a key, and its answer, which is held back until it is committed."""

    def __init__(
        self,
        idempotency: Idempotency,
        holder: Holder,
        scope: MutableMapping[str, Any],
        receive: _Receive,
        send: Send,
    ) -> None:
        self._idempotency = idempotency
        self._holder = holder
        self._scope = scope
        self._receive = receive
        self._send = send
        self._start: Message = {}
        self._body = bytearray()
        self._has_ended = False
        self._is_settled = False
        self._is_replaced = False

    async def run(self, app: Application) -> None:
        try:
            answer = await drive_async(claimed(self._holder))
            if answer is None:
                await self._execute(app)
        finally:
            # Run as a whole, because a cancelled task may be cancelled again at each await in it.
            await whole(drive_async(self._holder.release()))
        if answer is not None:
            await _send_answer(self._send, answer)

    async def _execute(self, app: Application) -> None:
        self._scope[CONTEXT] = self._holder
        # With extensions, an application could answer past the messages that this class reads.
        self._scope["extensions"] = {}
        with tallied(self._holder):
            await self._run(app)

    async def _run(self, app: Application) -> None:
        async with beating(self._holder.lease):
            try:
                with self._holder.executing():
                    await app(self._scope, self._receive, self._hold_back)
            except Exception as error:
                beside = None if self._is_settled else refusable(self._holder, error)
                if beside is not None:
                    await self._replace(await drive_async(refusal(self._holder, beside)))
                raise
            await self._settle_at_return()

    async def _hold_back(self, message: Message) -> None:
        if self._is_replaced:
            return
        if self._is_settled:
            await self._send(message)
        elif message["type"] == "http.response.start":
            # A second start is accepted, too: from an application whose first answer was replaced after an exception.
            self._start, self._has_ended = message, False
            self._body.clear()
            if streams(lowered(message.get("headers", ()))):
                await self._settle_unkept()
        elif message["type"] == "http.response.body":
            await self._add(message.get("body", b""), more=message.get("more_body", False))

    async def _add(self, piece: bytes, *, more: bool) -> None:
        self._body += piece
        if len(self._body) > self._idempotency.answer_bytes_max:
            await self._settle_unkept()
            await self._send_body(more=more)
        elif not more:
            self._has_ended = True
            answer = self._answer()
            if answer.promised_bytes == len(answer.body):
                await self._settle_whole(answer)

    async def _settle_at_return(self) -> None:
        """Settle an answer that is now known to be complete, because the application returned without an error."""
        if not self._has_ended or self._is_settled or self._receive.has_told_of_end:
            return
        answer = self._answer()
        answer.check_whole()
        await self._settle_whole(answer)

    def _answer(self) -> Answer:
        return Answer(self._start["status"], lowered(self._start.get("headers", ())), bytes(self._body))

    async def _settle_whole(self, answer: Answer) -> None:
        await self._settle(answer)
        await self._send_body(more=False)

    async def _settle_unkept(self) -> None:
        """From here on the answer is sent as it comes. It cannot be replayed, and a retry learns that."""
        await self._settle(None)

    async def _settle(self, answer: Answer | None) -> None:
        status = self._start["status"]
        fate = self._idempotency.fate(status, lowered(self._start.get("headers", ())))
        instead = await drive_async(settled(self._holder, fate, status, answer))
        if instead is None:
            self._is_settled = True
            if fate is not Fate.FORGOTTEN:
                ttl = ttl_header(self._idempotency.result_ttl_ms)
                self._start = {**self._start, "headers": [*self._start.get("headers", ()), ttl]}
            await self._send(self._start)
        else:
            await self._replace(instead)

    async def _replace(self, instead: Answer) -> None:
        self._is_settled = self._is_replaced = True
        await _send_answer(self._send, instead)

    async def _send_body(self, *, more: bool) -> None:
        if not self._is_replaced:
            await self._send({"type": "http.response.body", "body": bytes(self._body), "more_body": more})


async def _send_answer(send: Send, answer: Answer) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": list(answer.sent_headers)})
    await send({"type": "http.response.body", "body": answer.body, "more_body": False})


def _request(scope: MutableMapping[str, Any]) -> Request:
    headers: dict[str, str] = {}
    for name, value in lowered(scope["headers"]):
        known, text = name.decode("latin-1"), value.decode("latin-1")
        headers[known] = f"{headers[known]}, {text}" if known in headers else text
    return Request(_method(scope), _path(scope), headers, scope)


def _method(scope: MutableMapping[str, Any]) -> str:
    """In upper case, as Django and Quart read it; some servers pass on what the client has sent, and "post" would be
    executed without its key."""
    return str(scope["method"]).upper()


def _path(scope: MutableMapping[str, Any]) -> str:
    """The path as the application's routes see it: without the mount point, if the server names it."""
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    if root and (path == root or path.startswith(f"{root}/")):
        path = path.removeprefix(root)
    return path or "/"
