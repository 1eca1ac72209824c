"""How the steps of a handler are taken, and what becomes of a request for which they break off.

This file must never know a particular API.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from semel.core.steps import Steps
from semel.wire.errors import ProtocolError

if TYPE_CHECKING:
    from semel.broker.broker import Broker
    from semel.broker.connection import Exchange


def serve_on(
    broker: "Broker", exchange: "Exchange", steps: Steps[None], done: Callable[[], None] | None = None
) -> None:
    """Take these steps for a request, in as many turns of the event loop as they need. If they break off, the
    connection ends.
    """

    def note_end(error: Exception | None) -> None:
        if isinstance(error, ProtocolError):
            exchange.refuse(error)
        elif error is not None:
            asked = {"client": exchange.client_id, "api": exchange.api_key, "version": exchange.version}
            broker.tell_of_slip("request_failed", error, peer=exchange.peer, **asked)
            # What it had changed before it broke off has to become durable all the same.
            broker.follow_journal()
            exchange.reply_by_hanging_up()
        if done is not None:
            done()

    broker.turns.begin(steps, note_end)
