"""How all APIs except Produce and Fetch are served: a handler maps a request to its answer.

    @answered
    def handle(
        broker: Serving, exchange: Exchange, request: kafka.heartbeat.HeartbeatRequest
    ) -> kafka.heartbeat.HeartbeatResponse:
        refusal = attempted(_heartbeat, broker, exchange, request)
        return kafka.heartbeat.HeartbeatResponse(error_code=error_of(refusal))

If a request may name very many things, the handler takes a step for each of them (`semel.wire.steps`), so that other
clients are served in between, and is decorated with `answered_in_steps`.

`semel.wire.kafka` has the requests and the answers. An answer is sent when everything that is in the log at the time of
the handler's return is durable: so no change that it reports, and nothing that it shows, can be lost. On a store, the
broker also proves first that no other broker had taken over. What a standby answers as well waits for neither
(`shown_end`): a client asks it in order to find the active broker. If a request names several things, each has its own
result: `attempted` returns the refusal of one, so that the others are still carried out. Nothing here may know a
particular API.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from semel.log.broker.declaration import Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.serving import Handler, Serving
from semel.wire import messages
from semel.wire.errors import ErrorCode
from semel.wire.message import Request, Response
from semel.wire.refusals import NONE, Refused
from semel.wire.steps import Steps, finish

A = TypeVar("A", bound=Response)
P = ParamSpec("P")
R = TypeVar("R", bound=Request[Any])
T = TypeVar("T")


def answered(answer_to: Callable[[Serving, Exchange, R], A]) -> Handler:
    """A handler that decodes a request, and sends the result of `answer_to` when the log is durable."""

    @wraps(answer_to)
    def handle(broker: Serving, exchange: Exchange, body: memoryview) -> Steps[None]:
        request: Any = yield from decoded(exchange, messages.request_type(exchange.api_key), body)
        answer = answer_to(broker, exchange, request)
        yield from answer_in_steps(exchange, answer, after=_end_for(broker, exchange))

    return handle


def answered_in_steps(answer_to: Callable[[Serving, Exchange, R], Steps[A]]) -> Handler:
    """The same for an `answer_to` that works in steps."""

    @wraps(answer_to)
    def handle(broker: Serving, exchange: Exchange, body: memoryview) -> Steps[None]:
        request: Any = yield from decoded(exchange, messages.request_type(exchange.api_key), body)
        answer = yield from answer_to(broker, exchange, request)
        yield from answer_in_steps(exchange, answer, after=_end_for(broker, exchange))

    return handle


def shown_end(broker: Serving) -> int:
    """The position that must be durable before clients are told of the topics. Without a lease it may never be: then
    they are told that no topic has a leader.
    """
    return 0 if broker.role.has_lost_lease else broker.log.shown_end


def _end_for(broker: Serving, exchange: Exchange) -> int:
    api = exchange.api
    return shown_end(broker) if api is not None and api.standby is Here.SERVES else broker.log.end


def decoded(exchange: Exchange, request_type: type[R], body: memoryview) -> Steps[R]:
    """The decoded request."""
    return messages.decode_request_in_steps(request_type, exchange.version, body)


def answer_in_steps(
    exchange: Exchange, response: Response, *, after: int = 0, version: int | None = None
) -> Steps[None]:
    """Send this answer once the journal is durable up to `after`, in the version of the request or another."""
    throttle_ms = exchange.throttle()
    if throttle_ms and "throttle_time_ms" in response.FIELDS:
        throttled: Any = response
        throttled.throttle_time_ms = throttle_ms
    version = exchange.version if version is None else version
    encoded = yield from messages.encode_response_in_steps(response, version, exchange.correlation_id)
    api = exchange.api
    # The answer to a heartbeat promises nothing, and there are many heartbeats.
    says_nothing = api is not None and (
        api.standby is Here.SERVES or (api.is_heartbeat and not getattr(response, "error_code", NONE))
    )
    exchange.reply((encoded,), after, is_to_be_proved=not says_nothing)


def answer(exchange: Exchange, response: Response, *, after: int = 0) -> None:
    """The same at once, for a request that was parked."""
    finish(answer_in_steps(exchange, response, after=after))


def attempted(work: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T | Refused:
    """What `work` returns, or its refusal. `work` must change everything or nothing."""
    try:
        return work(*arguments, **options)
    except (Refused, OSError) as error:
        return _refusal(error)


def attempted_in_steps(work: Steps[T]) -> Steps[T | Refused]:
    """The same for `work` in steps."""
    try:
        return (yield from work)
    except (Refused, OSError) as error:
        return _refusal(error)


def error_of(outcome: object) -> int:
    """The error code of what was attempted."""
    return outcome.error if isinstance(outcome, Refused) else NONE


def message_of(outcome: object) -> str | None:
    """Why it was refused."""
    return outcome.message if isinstance(outcome, Refused) else None


def _refusal(error: Refused | OSError) -> Refused:
    if isinstance(error, Refused):
        # The traceback would keep alive what the work had in its hands.
        return error.with_traceback(None)
    message = f"the disk refused the change: {error.strerror or error}"
    return Refused(ErrorCode.KAFKA_STORAGE_ERROR, message)
