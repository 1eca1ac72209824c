"""How all APIs except Produce and Fetch are served: a handler maps a request to the fields of its answer.

    @answered
    def handle(broker: Serving, exchange: Exchange, request: Any) -> Fields:
        return {"topics": [{"name": topic.name, **attempted(_delete, broker, topic)} for topic in request.topics]}

If a request may name very many things, the handler takes a step for each of them (`semel.wire.steps`), so that other
clients are served in between:

    @answered_in_steps
    def handle(broker: Serving, exchange: Exchange, request: Any) -> Steps[Fields]:
        return {"topics": (yield from each(request.topics, lambda topic: {...}))}

`semel.wire.messages` defines the fields of requests and answers. An answer is sent when everything that is in the log
at the time of the handler's return is durable: so no change that it reports, and nothing that it shows, can be lost. On
a store, the broker also proves first that no other broker had taken over. If a request names several things, each has
its own result: `attempted` turns the refusal of one into its error code and message, so that the others are still
carried out. Nothing here may know a particular API.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec

from semel.log.broker.declaration import Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.serving import Handler, Serving
from semel.wire import messages
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused
from semel.wire.steps import Steps, finish

Fields = Mapping[str, object]

P = ParamSpec("P")


def answered(answer_to: Callable[[Serving, Exchange, Any], Fields]) -> Handler:
    """A handler that decodes a request, and sends the result of `answer_to` when the log is durable."""

    @wraps(answer_to)
    def handle(broker: Serving, exchange: Exchange, body: memoryview) -> Steps[None]:
        request = yield from decoded(exchange, body)
        fields = answer_to(broker, exchange, request)
        yield from answer_in_steps(exchange, fields, after=broker.log.end)

    return handle


def answered_in_steps(answer_to: Callable[[Serving, Exchange, Any], Steps[Fields]]) -> Handler:
    """The same for an `answer_to` that works in steps."""

    @wraps(answer_to)
    def handle(broker: Serving, exchange: Exchange, body: memoryview) -> Steps[None]:
        request = yield from decoded(exchange, body)
        fields = yield from answer_to(broker, exchange, request)
        yield from answer_in_steps(exchange, fields, after=broker.log.end)

    return handle


def decoded(exchange: Exchange, body: memoryview) -> Steps[Any]:
    """The decoded request."""
    return messages.decode_request_in_steps(exchange.api_key, exchange.version, body)


def answer_in_steps(exchange: Exchange, fields: Fields, *, after: int = 0, version: int | None = None) -> Steps[None]:
    """Answer with these fields once the journal is durable up to `after`, in the version of the request or another."""
    api_key = exchange.api_key
    version = exchange.version if version is None else version
    throttle_ms = exchange.throttle()
    if throttle_ms:
        fields = {**fields, "throttle_time": throttle_ms}
    encoded = yield from messages.encode_response_in_steps(api_key, version, exchange.correlation_id, fields)
    api = exchange.api
    # The answer to a heartbeat promises nothing, and there are many heartbeats.
    says_nothing = api is not None and (
        api.standby is Here.SERVES or (api.is_heartbeat and not fields.get("error_code"))
    )
    exchange.reply((encoded,), after, is_to_be_proved=not says_nothing)


def answer(exchange: Exchange, fields: Fields, *, after: int = 0) -> None:
    """The same at once, for a request that was parked."""
    finish(answer_in_steps(exchange, fields, after=after))


def attempted(work: Callable[P, Fields], *arguments: P.args, **options: P.kwargs) -> Fields:
    """The fields that `work` returns, or an error code and a message. `work` must change everything or nothing."""
    try:
        return work(*arguments, **options)
    except (Refused, OSError) as error:
        return _why_not(error)


def attempted_in_steps(work: Steps[Fields]) -> Steps[Fields]:
    """The same for `work` in steps."""
    try:
        return (yield from work)
    except (Refused, OSError) as error:
        return _why_not(error)


def _why_not(error: Refused | OSError) -> Fields:
    if isinstance(error, Refused):
        return {"error_code": error.error, "error_message": error.message}
    message = f"the disk refused the change: {error.strerror or error}"
    return {"error_code": ErrorCode.KAFKA_STORAGE_ERROR, "error_message": message}
