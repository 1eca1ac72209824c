"""What clients use is measured here, and one that used more than its quota is not read from for a while (KIP-219).

What a client gets is not held back: the answer leaves at once and says how long the client should wait
(`throttle_time_ms`), and for that long the broker reads nothing more from the connection. A client that waits by itself
notices nothing else, and one that does not waits for its answers instead. Only a fetch of a client that is over its
quota already gets no records. This file must never decide which quota counts (`semel.core.quotas`).
"""

import logging
from typing import Final, Generic, TypeVar

from semel.broker.exchange import Exchange, Line, Meter
from semel.broker.runtime import Runtime
from semel.core.quotas import BUSY, CONNECTED, NAME_BYTES_MAX, Limit
from semel.core.rates import SPAN_MS_MIN, WINDOW_MS, Rate
from semel.core.steps import Steps, at_once

# What is measured at once, of clients and of addresses. Those that were used longest ago make way: one that chooses
# another client id each time has a quota of its own each time, as in Apache Kafka.
RATES_MAX: Final = 10_000
# So that no connection that was told to wait passes for one that is idle, and is closed.
WAIT_MS_MAX: Final = 300_000
# As in Apache Kafka: one long request, such as the making of a large topic, must not cost a client its sessions.
BUSY_WAIT_MS_MAX: Final = WINDOW_MS

N = TypeVar("N")


class Rates(Generic[N]):
    """The rates of all names, of which the last ones used are kept."""

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
    """The measurements of one broker, and the connections that are not read from."""

    def __init__(self, runtime: Runtime) -> None:
        self._quotas = runtime.log.state.quotas
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        self._events = runtime.events
        # By the key of the quota and the name under which it is used up.
        self._rates: Rates[tuple[str, tuple[str, str]]] = Rates()
        self._connecting: Rates[str] = Rates()
        # By their numbers, with the time until which they are not read from.
        self._muted: dict[int, tuple[Line, int]] = {}
        self._ends = runtime.alarm.deadlines(self._unmute)
        # The quotas that are set: where there are none, nothing is measured.
        self.keys = self._quotas.keys

    # -- requests -----------------------------------------------------------------------------------------------

    def measured(self, exchange: Exchange, steps: Steps[None]) -> Steps[None]:
        """The steps of a request; how long they take is measured where that is limited."""
        if BUSY not in self.keys:
            return steps
        exchange.meter = Meter()
        return exchange.meter.measured(steps)

    def charge(self, exchange: Exchange, key: str | None, amount: float) -> int:
        """A client has used this much, and is about to be answered: for how many milliseconds it has to wait then, and
        will not be read from. The time that its request took is charged as well."""
        if exchange.login is not None and not exchange.login.is_over:
            # Nobody knows yet whose quota it is.
            return 0
        wait_ms = 0 if key is None else self._record(exchange, key, amount, WAIT_MS_MAX)
        if exchange.meter is not None:
            wait_ms = max(wait_ms, self._record(exchange, BUSY, 100 * exchange.meter.read(), BUSY_WAIT_MS_MAX))
        if wait_ms:
            self._hold(exchange, wait_ms)
        return wait_ms

    def has_to_wait_ms(self, exchange: Exchange, key: str) -> int:
        """For how long a client has to wait because of what it has used before; it is not read from for that time."""
        limit = self._limit(exchange, key)
        if limit is None:
            return 0
        rate = self._rates.of((key, limit.bucket))
        wait_ms = min(rate.wait_ms(limit.per_second, self._clock.steady_ms()), WAIT_MS_MAX)
        if wait_ms:
            self._hold(exchange, wait_ms)
        return wait_ms

    def amount_max(self, exchange: Exchange, key: str) -> float | None:
        """As much as a client may use at once without having to wait, if it has used nothing lately; None for all."""
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
        # No quota is set for a longer one, and a measurement is kept under it.
        return self._quotas.limit(key, exchange.principal.name, client_id if len(client_id) <= NAME_BYTES_MAX else "")

    # -- connections that are not read from ---------------------------------------------------------------------

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
        """Whether one more connection may come from this address now. Those that are sent away do not count."""
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
