"""Forwards requests from a standby to the active broker: those that a client may send to any broker, which only the
active one can answer, or answers with newer knowledge. Brokers of Apache Kafka forward such requests to the controller.

Most clients choose any broker at random for them, and tell the program of an error instead of choosing another one. If
the active broker does not answer, the standby answers by itself. Nothing here may wait for long: a client that waits
here does not look for the next active broker.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from semel.broker.exchange import Exchange
from semel.wire import versions
from semel.wire.errors import ProtocolError
from semel.wire.frames import SIZE_BYTES, frame_size, request_prefix

Reach = Callable[[str, int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]

FORWARDED: Final = frozenset(
    (
        *(versions.METADATA, versions.INIT_PRODUCER_ID, versions.DESCRIBE_TOPIC_PARTITIONS),
        *(versions.DESCRIBE_CONFIGS, versions.ALTER_CONFIGS, versions.INCREMENTAL_ALTER_CONFIGS),
        *(versions.DESCRIBE_ACLS, versions.CREATE_ACLS, versions.DELETE_ACLS),
        *(versions.DESCRIBE_CLIENT_QUOTAS, versions.ALTER_CLIENT_QUOTAS),
        *(versions.DESCRIBE_USER_SCRAM_CREDENTIALS, versions.ALTER_USER_SCRAM_CREDENTIALS),
    )
)
# A machine that is gone does not even refuse a connection.
CONNECT_SECONDS_MAX: Final = 1.0
# The active broker may have to store a change before it answers.
ANSWER_SECONDS_MAX: Final = 5.0
# After a failure the standby answers by itself for this long, so that its clients do not wait each time.
PAUSE_SECONDS: Final = 1.0
# How many requests may be under way.
UNDER_WAY_MAX: Final = 100


class Forwarder:
    """Forwards requests for one broker, and gives up on all of them when it becomes active or stops."""

    def __init__(self, reach: Reach, frame_bytes_max: int) -> None:
        """`reach` connects to a host and port."""
        self._reach = reach
        self._frame_bytes_max = frame_bytes_max
        self._tasks: set[asyncio.Task[None]] = set()
        # The addresses from which this broker is connected to the active one.
        self._own: set[str] = set()
        self._pauses_until = 0.0
        self._stopped = False

    def takes(self, exchange: Exchange) -> bool:
        """Whether this request is one to forward now."""
        if exchange.api_key not in FORWARDED or self._stopped or len(self._tasks) >= UNDER_WAY_MAX:
            return False
        # If the address of the active broker leads back to this one, its own request comes in here.
        return exchange.peer not in self._own and asyncio.get_running_loop().time() >= self._pauses_until

    def forward(
        self, address: tuple[str, int], exchange: Exchange, body: bytes, answer_here: Callable[[], None]
    ) -> None:
        """Answer with the answer of the broker at this address; or call `answer_here` if it gives none."""
        task = asyncio.get_running_loop().create_task(self._answer(address, exchange, body, answer_here))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def give_up(self) -> None:
        """Wait for no answer any more: this broker can answer everything by itself now."""
        for task in self._tasks:
            task.cancel()

    def stop(self) -> None:
        """Wait for no answer any more: this broker stops."""
        self._stopped = True
        self.give_up()

    async def _answer(
        self, address: tuple[str, int], exchange: Exchange, body: bytes, answer_here: Callable[[], None]
    ) -> None:
        try:
            frame = await self._ask(address, exchange, body)
        except (OSError, EOFError, TimeoutError, ProtocolError):
            self._pauses_until = asyncio.get_running_loop().time() + PAUSE_SECONDS
        except asyncio.CancelledError:
            pass
        else:
            if not exchange.is_lost:
                exchange.reply((frame,))
            return
        if exchange.is_lost:
            return
        if self._stopped:
            exchange.reply_by_hanging_up()
        else:
            answer_here()

    async def _ask(self, address: tuple[str, int], exchange: Exchange, body: bytes) -> bytes:
        """The frame that the broker at this address answers."""
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            reader, writer = await self._reach(*address)
        host, port = writer.get_extra_info("sockname")[:2]
        own = f"{host}:{port}"
        self._own.add(own)
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                header = exchange.api_key, exchange.version, exchange.correlation_id, exchange.client_id
                writer.write(request_prefix(*header, len(body)) + body)
                await writer.drain()
                size = await reader.readexactly(SIZE_BYTES)
                return size + await reader.readexactly(frame_size(size, 0, self._frame_bytes_max))
        finally:
            self._own.discard(own)
            with suppress(OSError):
                writer.close()
