"""Measures what clients use, and stops reading for a while from a client that is over its quota (KIP-219).

The broker does not hold back an answer: it sends the answer at once, with the time that the client should wait
(`throttle_time_ms`), and reads nothing more from the connection for that time. If the client does not wait on its own,
its next answers come later. Only a fetch by a client that is already over its quota gets no records. This file must
never decide which quota counts (`semel.log.core.quotas`).
"""

import logging
from typing import Final, Generic, TypeVar

from semel.log.broker.exchange import Exchange, Line, Meter
from semel.log.broker.runtime import Runtime
from semel.log.core.quotas import BUSY, CONNECTED, NAME_BYTES_MAX, Limit
from semel.log.core.rates import SPAN_MS_MIN, WINDOW_MS, Rate
from semel.wire.steps import Steps, at_once

# The rates that are kept for clients, and for addresses. A new one replaces the least recently used. A client that
# chooses another client id each time gets a new quota each time, as in Apache Kafka.
RATES_MAX: Final = 10_000
# Shorter than the time after which an idle connection is closed, so that a connection that must wait is not closed.
WAIT_MS_MAX: Final = 300_000
# As in Apache Kafka: a client must not lose its group session because of one long request, such as the creation of a
# large topic.
BUSY_WAIT_MS_MAX: Final = WINDOW_MS

N = TypeVar("N")


class Rates(Generic[N]):
    """The rates by name. If there are too many, the least recently used is dropped."""

    def __init__(self, rates_max: int = RATES_MAX) -> None:
        self._rates_max = rates_max
        self._rates: dict[N, Rate] = {}

    def __len__(self) -> int:
        return len(self._rates)

    def of(self, name: N) -> Rate:
        rate = self._rates.pop(name, None) or Rate()
        if len(self._rates) >= self._rates_max:
            del self._rates[next(iter(self._rates))]
        self._rates[name] = rate
        return rate


class Throttle:
    """The measurements of one broker, and the connections that it does not read from."""

    def __init__(self, runtime: Runtime) -> None:
        self._quotas = runtime.log.state.quotas
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        self._events = runtime.events
        # By the key of the quota, and the name of the clients that share it.
        self._rates: Rates[tuple[str, tuple[str, str]]] = Rates()
        self._connecting: Rates[str] = Rates()
        # The connections that wait, by their numbers, each with the end of its wait.
        self._muted: dict[int, tuple[Line, int]] = {}
        self._ends = runtime.alarm.deadlines(self._unmute)
        # The keys that have a quota. The others are not measured.
        self.keys = self._quotas.keys

    # -- requests -----------------------------------------------------------------------------------------------

    def measured(self, exchange: Exchange, steps: Steps[None]) -> Steps[None]:
        """The steps of a request; their time is measured if a quota limits it."""
        if BUSY not in self.keys:
            return steps
        exchange.meter = Meter()
        return exchange.meter.measured(steps)

    def charge(self, exchange: Exchange, key: str | None, amount: float) -> int:
        """Charge a client for this amount, just before the answer, and for the time that its request took. Return for
        how many milliseconds it has to wait; the broker does not read from it for that time.
        """
        if exchange.login is not None and not exchange.login.is_over:
            # It is not known yet whose quota counts.
            return 0
        wait_ms = 0 if key is None else self._record(exchange, key, amount, WAIT_MS_MAX)
        if exchange.meter is not None:
            wait_ms = max(wait_ms, self._record(exchange, BUSY, 100 * exchange.meter.read(), BUSY_WAIT_MS_MAX))
        if wait_ms:
            self._hold(exchange, wait_ms)
        return wait_ms

    def has_to_wait_ms(self, exchange: Exchange, key: str) -> int:
        """How long a client has to wait because of earlier requests; the broker does not read from it for that time."""
        limit = self._limit(exchange, key)
        if limit is None:
            return 0
        rate = self._rates.of((key, limit.bucket))
        wait_ms = min(rate.wait_ms(limit.per_second, self._clock.steady_ms()), WAIT_MS_MAX)
        if wait_ms:
            self._hold(exchange, wait_ms)
        return wait_ms

    def amount_max(self, exchange: Exchange, key: str) -> float | None:
        """How much a client that was idle may use at once without having to wait; None if that is not limited."""
        limit = self._limit(exchange, key)
        return None if limit is None else limit.per_second * SPAN_MS_MIN / 1000

    def _record(self, exchange: Exchange, key: str, amount: float, wait_ms_max: int) -> int:
        limit = self._limit(exchange, key)
        if limit is None:
            return 0
        now_ms = self._clock.steady_ms()
        rate = self._rates.of((key, limit.bucket))
        rate.record(amount, now_ms)
        return min(rate.wait_ms(limit.per_second, now_ms), wait_ms_max)

    def _limit(self, exchange: Exchange, key: str) -> Limit | None:
        if key not in self.keys:
            return None
        client_id = exchange.client_id or ""
        # A longer client id cannot have a quota, and must not be kept as a name.
        return self._quotas.limit(key, exchange.principal.name, client_id if len(client_id) <= NAME_BYTES_MAX else "")

    # -- connections that wait ----------------------------------------------------------------------------------

    def _hold(self, exchange: Exchange, wait_ms: int) -> None:
        self._metrics.throttled_requests += 1
        until_ms = self._clock.steady_ms() + wait_ms
        connection = exchange.connection
        if exchange.is_lost:
            return
        _, before_ms = self._muted.get(connection.number, (connection, 0))
        self._muted[connection.number] = connection, max(until_ms, before_ms)
        connection.mute()
        self._ends.note(connection.number, until_ms)

    def _unmute(self, number: int, now_ms: int) -> Steps[None]:
        return at_once(lambda: self._read_on(number, now_ms))

    def _read_on(self, number: int, now_ms: int) -> None:
        if number not in self._muted:
            return
        connection, until_ms = self._muted[number]
        if until_ms > now_ms:
            self._ends.note(number, until_ms)
            return
        del self._muted[number]
        connection.unmute()

    def forget(self, connection: Line) -> None:
        """The connection has ended."""
        self._muted.pop(connection.number, None)

    # -- connections that begin ---------------------------------------------------------------------------------

    def admits(self, connection: Line) -> bool:
        """Whether this address may open one more connection now. Connections that are refused do not count."""
        if CONNECTED not in self.keys:
            return True
        limit = self._quotas.connections_per_second(connection.client_host)
        if limit is None:
            return True
        now_ms = self._clock.steady_ms()
        rate = self._connecting.of(connection.address)
        rate.record(1, now_ms)
        if rate.wait_ms(limit, now_ms):
            rate.record(-1, now_ms)
            self._events.tell(logging.WARNING, "address_over_quota", address=connection.address, per_second=limit)
            return False
        return True
