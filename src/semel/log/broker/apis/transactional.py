"""What the APIs of transactions share: refusals, with the error codes that a request's version knows.

Older versions of each API have no error for a fenced producer, and use the one for an invalid epoch; clients of those
versions understand it. This file must never decide anything.
"""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from semel.log.broker.apis.answers import attempted, attempted_in_steps
from semel.log.broker.exchange import Exchange
from semel.log.broker.serving import Handler, Serving
from semel.log.broker.transactions import Talk
from semel.wire.errors import ErrorCode
from semel.wire.refusals import INVALID_PRODUCER_EPOCH, PRODUCER_FENCED, Refused
from semel.wire.steps import Steps

T = TypeVar("T")


def attempted_for_owner(broker: Serving, exchange: Exchange, work: Callable[[], T], *, fenced_from: int) -> T | Refused:
    """What `work` returns, or its refusal. From version `fenced_from` on that may be PRODUCER_FENCED."""
    return _with_known_errors(broker, exchange, attempted(work), fenced_from)


def attempted_for_owner_in_steps(
    broker: Serving, exchange: Exchange, work: Steps[T], *, fenced_from: int
) -> Steps[T | Refused]:
    """The same for `work` in steps."""
    return _with_known_errors(broker, exchange, (yield from attempted_in_steps(work)), fenced_from)


def _with_known_errors(broker: Serving, exchange: Exchange, outcome: T | Refused, fenced_from: int) -> T | Refused:
    if not isinstance(outcome, Refused):
        return outcome
    if outcome.error == PRODUCER_FENCED:
        broker.metrics.fenced_requests += 1
        if exchange.version < fenced_from:
            return Refused(INVALID_PRODUCER_EPOCH, outcome.message)
    if outcome.error == ErrorCode.KAFKA_STORAGE_ERROR:
        # The error after which every client tries again.
        return Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE, outcome.message)
    return outcome


class Straggler(Exception):
    """A request came over a connection that its client has given up; see `semel.log.broker.transactions`."""


def check_timely(broker: Serving, exchange: Exchange, producer_id: int, talk: Talk = "transaction") -> None:
    """Raise `Straggler` if the client has given up this connection. Handlers call this again after every step."""
    if broker.transactions.is_straggler(producer_id, exchange.connection_number, talk):
        raise Straggler


def hanging_up_on_stragglers(handler: Handler) -> Handler:
    """A handler that closes the connection of a straggler in place of an answer."""

    @wraps(handler)
    def handle(broker: Serving, exchange: Exchange, body: memoryview) -> Steps[None]:
        try:
            yield from handler(broker, exchange, body)
        except Straggler:
            # The entries that the request committed before must become durable all the same.
            broker.pump.sync_soon()
            exchange.reply_by_hanging_up()

    return handle
