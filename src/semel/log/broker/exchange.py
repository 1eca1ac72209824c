"""One request and the answer it will get, as a handler sees it.

A handler answers at once or later, and may say which position of the journal has to be durable before the answer is
sent. This file must never know how a connection reads, writes or ends.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from semel.log.broker.declaration import Api
from semel.log.core.access import Principal
from semel.log.security.listeners import Listener
from semel.log.security.login import Login
from semel.wire.errors import ProtocolError
from semel.wire.frames import RequestHeader
from semel.wire.steps import Steps

Buffer = bytes | bytearray | memoryview

# In place of an answer: the connection is closed.
HANGING_UP: Final[Sequence[Buffer]] = (b"",)


class Parked(Protocol):
    """A request that waits, for example for records or for other members."""

    def give_up(self) -> None:
        """The client has disconnected, so it cannot be answered any more."""

    def answer_now(self) -> None:
        """Answer without waiting any longer."""


class Line(Protocol):
    """The connection, as far as a request needs it."""

    peer: str
    # The client's address without its port, and the address to charge, which several clients may share.
    client_host: str
    address: str
    # Later connections have higher numbers.
    number: int
    listener: Listener
    login: Login | None
    # The client was told already that only the active broker can create the topic that it asks for.
    was_referred: bool
    # A standby forwards requests over it.
    is_of_a_standby: bool

    @property
    def principal(self) -> Principal: ...

    @property
    def is_lost(self) -> bool: ...

    def note_answer(self, exchange: "Exchange") -> None: ...

    def throttle(self, exchange: "Exchange", key: str | None, amount: float) -> int: ...

    def note_login(self) -> None: ...

    def stop_serving(self) -> None: ...

    def finish(self) -> None: ...

    def refuse(self, error: ProtocolError) -> None: ...

    def park(self, parked: Parked) -> None: ...

    def unpark(self, parked: Parked) -> None: ...

    def mute(self) -> None: ...

    def unmute(self) -> None: ...


class Meter:
    """How long the broker was busy with a request."""

    __slots__ = ("_began", "_seconds")

    def __init__(self) -> None:
        self._seconds = 0.0
        self._began: float | None = None

    def measured(self, steps: Steps[None]) -> Steps[None]:
        """The same steps, measured; the steps of other requests that run in between do not count."""
        self._began = time.perf_counter()
        for pieces in steps:
            self._seconds, self._began = self.read(), None
            yield pieces
            self._began = time.perf_counter()
        self._seconds, self._began = self.read(), None

    def read(self) -> float:
        """The seconds so far."""
        return self._seconds if self._began is None else self._seconds + time.perf_counter() - self._began


class Exchange:
    """One request and the answer it will get."""

    __slots__ = (
        "after",
        "answer",
        "answer_bytes",
        "api",
        "api_key",
        "client_id",
        "connection",
        "correlation_id",
        "header_bytes",
        "is_to_be_proved",
        "meter",
        "proof",
        "received_at",
        "version",
    )

    def __init__(self, connection: Line, header: RequestHeader, apis: Mapping[int, Api]) -> None:
        self.api_key, self.version, self.correlation_id, self.client_id, self.header_bytes = header
        declared = apis.get(self.api_key)
        # None if this broker does not serve the API in this version, so that nobody knows how the request is encoded.
        self.api = declared if declared is not None and declared.takes(self.version) else None
        # None unless a quota limits the broker's time.
        self.meter: Meter | None = None
        self.received_at = time.perf_counter()
        self.connection = connection
        self.answer: Sequence[Buffer] | None = None
        self.answer_bytes = 0
        self.after = 0
        self.is_to_be_proved = False
        # The number of the proof for which the answer waits.
        self.proof = 0

    def reply(self, answer: Sequence[Buffer], after: int = 0, *, is_to_be_proved: bool = False) -> None:
        """Answer with a whole frame, given in one or more buffers, once the journal is durable up to `after`. With
        `is_to_be_proved`, for an answer that a takeover would make wrong, it is first proved that no other broker has
        taken over before now.
        """
        self.answer = answer
        self.is_to_be_proved = is_to_be_proved
        self.answer_bytes = sum(map(len, answer))
        self.after = after
        self.connection.note_answer(self)

    def reply_nothing(self) -> None:
        """End a request that gets no answer (Produce with acks=0)."""
        self.reply(())

    def reply_by_hanging_up(self, after: int = 0) -> None:
        """Close the connection in place of an answer, because the protocol has no other way to report the error."""
        # The requests after this one are not served: their sender could never know how far the broker got.
        self.connection.stop_serving()
        self.reply(HANGING_UP, after)

    def end_connection(self) -> None:
        """Serve no later request, and close the connection when this answer is sent."""
        self.connection.finish()

    def throttle(self, key: str | None = None, amount: float = 0) -> int:
        """Charge the client for this amount of the quota `key`, just before the answer. Return for how many
        milliseconds the client has to wait; the broker does not read from it for that time.
        """
        return self.connection.throttle(self, key, amount)

    def refuse(self, error: ProtocolError) -> None:
        """End the connection because of an invalid request."""
        self.connection.refuse(error)

    def park(self, parked: Parked) -> None:
        """Until it is unparked, tell `parked` when the connection is lost or the client stops sending."""
        self.connection.park(parked)

    def unpark(self, parked: Parked) -> None:
        self.connection.unpark(parked)

    @property
    def is_of_a_login(self) -> bool:
        """Whether a client may send it before it has logged in."""
        return self.api is not None and self.api.before_login

    @property
    def is_lost(self) -> bool:
        """Whether the connection was lost while this request was served."""
        return self.connection.is_lost

    @property
    def peer(self) -> str:
        return self.connection.peer

    @property
    def address(self) -> str:
        return self.connection.address

    @property
    def client_host(self) -> str:
        """The address from which the client connects, without its port."""
        return self.connection.client_host

    @property
    def listener(self) -> Listener:
        """The listener to which the client is connected."""
        return self.connection.listener

    @property
    def principal(self) -> Principal:
        """The principal of the client; `ANONYMOUS` before a login."""
        return self.connection.principal

    @property
    def login(self) -> Login | None:
        """The login of the connection; None if the listener asks for none."""
        return self.connection.login

    def note_login(self) -> None:
        """The client is logged in now."""
        self.connection.note_login()

    @property
    def connection_number(self) -> int:
        """The number of the connection: a later one has a higher number."""
        return self.connection.number
