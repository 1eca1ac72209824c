"""What the handler of an API may ask of its broker, and how a handler's steps are taken.

A handler sees `Serving` and nothing else of the broker: no sockets, no threads, no life. This file must never know a
particular API.
"""

from collections.abc import Callable
from typing import Protocol

from semel.broker.classic_groups import ClassicGroupCoordinator
from semel.broker.clock import Clock
from semel.broker.consumer_groups import ConsumerGroupCoordinator
from semel.broker.decisions import Decisions
from semel.broker.exchange import Exchange
from semel.broker.guard import Guard
from semel.broker.journal_pump import JournalPump
from semel.broker.limits import Limits
from semel.broker.members import Members
from semel.broker.metrics import Metrics
from semel.broker.runtime import Runtime
from semel.broker.sessions import FetchSessions
from semel.broker.throttle import Throttle
from semel.broker.transactions import TransactionCoordinator
from semel.broker.turns import Turns
from semel.compaction.opening import KeyChecks
from semel.core.steps import Pace, Steps
from semel.security.listeners import Listener
from semel.storage.log import Log
from semel.storage.segment import Stretch
from semel.wire.errors import ProtocolError


class Serving(Protocol):
    """What a handler may ask for."""

    # The state of everything, and what changes it.
    log: Log
    runtime: Runtime
    transactions: TransactionCoordinator
    guard: Guard
    throttle: Throttle
    members: Members
    groups: ClassicGroupCoordinator
    consumer_groups: ConsumerGroupCoordinator
    # What it is all done by.
    clock: Clock
    turns: Turns
    pace: Pace
    pump: JournalPump
    limits: Limits
    metrics: Metrics
    decisions: Decisions
    # Of fetches: partitions in those that wait, and bytes that clients have not taken yet.
    fetch_sessions: FetchSessions
    waiting_partitions: int
    unsent_bytes: int
    key_checks: KeyChecks
    # How the broker was set.
    listeners: list[Listener]
    auto_create_topics: bool
    partitions_default: int

    @property
    def node_id(self) -> int:
        """The number of the broker that is active: of this one, unless it stands by."""

    @property
    def is_active(self) -> bool:
        """Whether this is the broker that may change things."""

    def active_at(self, listener: Listener) -> tuple[str, int]:
        """The host and the port by which clients of this listener reach the active broker."""

    def warm(self, stretches: list[Stretch], done: Callable[[], None]) -> None:
        """Have records brought from the disk into memory without waiting for it, then call `done`."""


class Handler(Protocol):
    """What serves one kind of request, in steps. `body` is as it was until the last of them."""

    def __call__(self, broker: Serving, exchange: Exchange, body: memoryview) -> Steps[None]: ...


def serve_on(broker: Serving, exchange: Exchange, steps: Steps[None], done: Callable[[], None] | None = None) -> None:
    """Take these steps for a request, in as many turns of the event loop as they need. If they break off, the
    connection ends.
    """

    def note_end(error: Exception | None) -> None:
        if isinstance(error, ProtocolError):
            exchange.refuse(error)
        elif error is not None:
            request = {"client": exchange.client_id, "api": exchange.api_key, "version": exchange.version}
            broker.runtime.tell_of_slip("request_failed", error, peer=exchange.peer, **request)
            # What it had changed before it broke off has to become durable all the same.
            broker.pump.follow()
            exchange.reply_by_hanging_up()
        if done is not None:
            done()

    broker.turns.begin(steps, note_end)
