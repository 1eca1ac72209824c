"""Requests that are served by hand, a step at a time, so that a test can do something between any two of them.

A request is given to its handler as a connection would give it; nothing here may know what an API does.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import plain_messages as messages
from asking import NEWEST, topic_wanted
from semel.log.broker.apis import served_by_its_handler
from semel.log.broker.broker import Broker
from semel.log.broker.limits import Limits
from semel.log.core.access import ANONYMOUS
from semel.wire.frames import SIZE_BYTES, parse_request_header, parse_response_header
from semel.wire.steps import Pace
from semel.wire.versions import CREATE_TOPICS

if TYPE_CHECKING:
    from semel.log.broker.exchange import Exchange

T = TypeVar("T")

# Every end is prepared, and every offset has an entry of its own.
SMALL_STEPS: Final = Pace(pieces_per_turn=1, unprepared_max=0, offsets_per_entry_max=1)


class HungUp(Exception):
    """The connection would have been closed instead of an answer."""


class Asked:
    """A request that came over a connection of this number."""

    def __init__(self, broker: Broker, api_key: int, version: int | None = None, *, over: int = 1, **values: Any):
        self.api = broker.apis[api_key]
        self.api_key = api_key
        self.version = NEWEST[api_key] if version is None else version
        self.correlation_id = 7
        self.client_id = "by hand"
        self.peer = "hand:1"
        self.address = self.client_host = "hand"
        self.listener = broker.listeners[0]
        self.principal = ANONYMOUS
        self.connection_number = over
        self.is_lost = False
        self.after = -1
        self.header_bytes = 0
        self._answer: bytes | None = None
        request = messages.build_request(api_key, self.version, **values)
        frame = memoryview(
            bytearray(messages.encode_request(api_key, self.version, self.correlation_id, self.client_id, request))
        )[SIZE_BYTES:]
        body = frame[parse_request_header(frame).body :]
        self._steps = served_by_its_handler(broker, cast("Exchange", self), body)

    def reply(self, answer: Any, after: int = 0, *, is_to_be_proved: bool = False) -> None:
        self._answer, self.after = b"".join(answer), after

    def reply_by_hanging_up(self, after: int = 0) -> None:
        raise HungUp

    def throttle(self, key: str | None = None, amount: float = 0) -> int:
        """There is no quota."""
        return 0

    def park(self, parked: object) -> None:
        """Nothing is told to who waits: the connection stays."""

    def unpark(self, parked: object) -> None:
        """Nothing more waits."""

    @property
    def is_answered(self) -> bool:
        return self._answer is not None

    def step(self) -> bool:
        """Take one step; whether there may be another."""
        return next(self._steps, None) is not None

    def close(self) -> None:
        """Take no more steps, as when the broker stops."""
        self._steps.close()

    def answer(self) -> Any:
        """Take all steps that are left; the answer."""
        while self.step():
            pass
        assert self._answer is not None
        frame = self._answer[SIZE_BYTES:]
        _, body = parse_response_header(self.api_key, self.version, frame)
        return messages.decode_response(self.api_key, self.version, frame[body:])


def ask(broker: Broker, api_key: int, version: int | None = None, *, over: int = 1, **values: Any) -> Any:
    """The answer to a request that nothing comes between."""
    return Asked(broker, api_key, version, over=over, **values).answer()


def in_a_broker(test: Callable[[Broker], None], **limits: int) -> None:
    """Run this on the loop of a broker for which what is written counts at once."""

    async def run() -> None:
        async with Broker(durability="os", pace=SMALL_STEPS, limits=Limits(**limits)) as broker:
            test(broker)
            broker.log.sync_now()

    asyncio.run(run())


def create(broker: Broker, name: str, partitions: int = 1, **configs: str) -> None:
    (created,) = ask(broker, CREATE_TOPICS, topics=[topic_wanted(name, partitions, **configs)], timeout_ms=1000).topics
    assert created.error_code == 0


def after_each_step(begin: Callable[[Broker], Asked], then: Callable[[Broker, Asked], T]) -> list[T]:
    """Do something after the first step of a request, in another broker after the second, and so on to the last."""
    steps, goes_on = 0, True
    came_of_it: list[T] = []
    while goes_on:
        steps += 1

        def attempt(broker: Broker, steps: int = steps) -> None:
            nonlocal goes_on
            asked = begin(broker)
            goes_on = all(asked.step() for _ in range(steps))
            if goes_on:
                came_of_it.append(then(broker, asked))

        in_a_broker(attempt)
    return came_of_it
