"""The part of the broker that the handlers of APIs may use, and the running of a handler's steps.

A handler sees only `Serving`: no sockets, no threads, no start and stop. This file must never know a particular API.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from semel.log.broker.alone import Alone
from semel.log.broker.classic_groups import ClassicGroupCoordinator
from semel.log.broker.clock import Clock
from semel.log.broker.consumer_groups import ConsumerGroupCoordinator
from semel.log.broker.decisions import Decisions
from semel.log.broker.declaration import Api
from semel.log.broker.exchange import Exchange
from semel.log.broker.guard import Guard
from semel.log.broker.journal_pump import JournalPump
from semel.log.broker.limits import Limits
from semel.log.broker.members import Members
from semel.log.broker.metrics import Metrics
from semel.log.broker.role import Role
from semel.log.broker.runtime import Runtime
from semel.log.broker.sessions import FetchSessions
from semel.log.broker.share_groups import ShareGroupCoordinator
from semel.log.broker.throttle import Throttle
from semel.log.broker.transactions import TransactionCoordinator
from semel.log.broker.turns import Turns
from semel.log.broker.wakeups import Wakeups
from semel.log.broker.warmer import Warmer
from semel.log.compaction.records import KeyChecks
from semel.log.security.listeners import Listener
from semel.log.storage.log import Log
from semel.wire.errors import ProtocolError
from semel.wire.steps import Pace, Steps


class Serving(Protocol):
    """The broker, as a handler sees it."""

    # The declarations of all APIs, by their keys.
    apis: Mapping[int, Api]
    # The state, and the objects that change it.
    log: Log
    runtime: Runtime
    transactions: TransactionCoordinator
    guard: Guard
    throttle: Throttle
    members: Members
    groups: ClassicGroupCoordinator
    consumer_groups: ConsumerGroupCoordinator
    share_groups: ShareGroupCoordinator
    # Says which broker is the active one.
    role: Role | Alone
    # The tools with which requests are served.
    clock: Clock
    turns: Turns
    pace: Pace
    pump: JournalPump
    warmer: Warmer
    wakeups: Wakeups
    limits: Limits
    metrics: Metrics
    decisions: Decisions
    # The partitions in waiting fetches, and the bytes of answers that clients have not taken yet.
    fetch_sessions: FetchSessions
    waiting_partitions: int
    unsent_bytes: int
    key_checks: KeyChecks
    # The broker's settings.
    listeners: list[Listener]
    auto_create_topics: bool
    partitions_default: int


class Handler(Protocol):
    """Serves requests of one API, in steps. `body` stays valid until the last step."""

    def __call__(self, broker: Serving, exchange: Exchange, body: memoryview) -> Steps[None]: ...


def serve_on(broker: Serving, exchange: Exchange, steps: Steps[None], done: Callable[[], None] | None = None) -> None:
    """Run the steps of a request, in as many turns of the event loop as they need. If they fail, close the
    connection.
    """

    def note_end(error: Exception | None) -> None:
        if isinstance(error, ProtocolError):
            exchange.refuse(error)
        elif error is not None:
            request = {"client": exchange.client_id, "api": exchange.api_key, "version": exchange.version}
            broker.runtime.tell_of_slip("request_failed", error, peer=exchange.peer, **request)
            # The changes before the error must become durable all the same.
            broker.pump.sync_soon()
            exchange.reply_by_hanging_up()
        if done is not None:
            done()

    broker.turns.begin(steps, note_end)
