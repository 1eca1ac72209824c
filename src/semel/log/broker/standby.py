"""The answers of a standby broker: it names the active broker and itself, reads what it has followed, lists no groups
and no transactions, and refuses everything else.

After such an error a client sends Metadata or FindCoordinator again, gets the address of the active broker, and goes on
there. Where a client would send the request to any broker, no error makes it choose another one, so the standby closes
the connection. Nothing here may change anything.
"""

from typing import Any

from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.refusal import refusal
from semel.wire import kafka, messages
from semel.wire.errors import ErrorCode
from semel.wire.message import Request
from semel.wire.steps import Steps


def is_served_by_handlers(api: Api, *, stands_by: bool) -> bool:
    """Whether the handler of this API may answer while this broker stands by, or is active and without a lease."""
    return api.standby is Here.SERVES or (api.standby is Here.READS and stands_by)


def refused_by_a_standby(api: Api, exchange: Exchange, body: memoryview, *, stands_by: bool) -> Steps[None]:
    """Answer that this is not the right broker for anything in the request. If it does not stand by, it is active and
    without a lease at the moment.
    """
    request_type = messages.request_type(api.key)
    request = yield from messages.decode_request_in_steps(request_type, exchange.version, body)
    error = _error_of(api, request, stands_by=stands_by)
    if error is None:
        exchange.reply_by_hanging_up()
        return
    answer = refusal(exchange.version, request, error)
    encoded = yield from messages.encode_response_in_steps(answer, exchange.version, exchange.correlation_id)
    exchange.reply((encoded,))


def _error_of(api: Api, request: Request[Any], *, stands_by: bool) -> ErrorCode | None:
    """The error after which the client looks for the right broker; None if none makes it do so."""
    if isinstance(request, kafka.produce.ProduceRequest) and request.acks == 0:
        return None
    if isinstance(request, kafka.init_producer_id.InitProducerIdRequest) and request.transactional_id is None:
        return None
    if api.standby is Here.LISTS_NOTHING and stands_by:
        return ErrorCode.NONE
    return api.standby.value if isinstance(api.standby.value, ErrorCode) else None
