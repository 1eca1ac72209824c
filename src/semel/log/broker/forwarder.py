"""Forwards requests from a standby to the active broker: those that a client may send to any broker, which only the
active one can answer, or answers with newer knowledge. Brokers of Apache Kafka forward such requests to the controller.

Most clients choose any broker at random for them, and tell the program of an error instead of choosing another one. If
the active broker does not answer, the standby answers by itself. Nothing here may wait for long: a client that waits
here does not look for the next active broker.

Each request gets a connection of its own. On it the standby first says, by ApiVersions, that it is one. A broker that
is no longer active, or not yet, does not forward such a request again: it could go round for ever.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from typing import Any, Final

from semel.log.broker.exchange import Exchange
from semel.wire import kafka, messages, versions
from semel.wire.errors import ProtocolError
from semel.wire.frames import SIZE_BYTES, frame_size, parse_response_header, request_prefix
from semel.wire.message import Request

Reach = Callable[[str, int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]

# A machine that is gone does not even refuse a connection.
CONNECT_SECONDS_MAX: Final = 1.0
# The active broker may have to store a change before it answers.
ANSWER_SECONDS_MAX: Final = 5.0
# After a failure the standby answers by itself for this long, so that its clients do not wait each time.
PAUSE_SECONDS: Final = 1.0
# How many requests may be under way, where the process may open that many sockets.
UNDER_WAY_MAX: Final = 100
# The name of the software with which a standby presents itself, and the version of ApiVersions in which it does.
STANDBY_SOFTWARE: Final = "semel-standby"
_PRESENTED_IN: Final = 3


@cache
def _presentation() -> Request[Any]:
    """Made when it is needed, because a broker that starts should not wait for what that loads."""
    return kafka.api_versions.ApiVersionsRequest(client_software_name=STANDBY_SOFTWARE, client_software_version="1")


class CannotReach(Exception):
    """The active broker cannot be reached, or does not answer in time: others would wait for it, too."""


class Forwarder:
    """Forwards requests for one broker, and gives up on all of them when it becomes active or stops."""

    def __init__(self, reach: Reach, frame_bytes_max: int, under_way_max: int = UNDER_WAY_MAX) -> None:
        """`reach` connects to a host and port."""
        self._reach = reach
        self._frame_bytes_max = frame_bytes_max
        self._under_way_max = under_way_max
        self._tasks: set[asyncio.Task[bytes]] = set()
        self._pauses_until = 0.0
        self._stopped = False

    def takes(self, exchange: Exchange) -> bool:
        """Whether this request is one to forward now."""
        if exchange.api is None or not exchange.api.forwards:
            return False
        if self._stopped or len(self._tasks) >= self._under_way_max:
            return False
        # Another standby has forwarded it, or this one, if the address of the active broker leads back to it.
        return not exchange.connection.is_of_a_standby and asyncio.get_running_loop().time() >= self._pauses_until

    def forward(
        self,
        address: tuple[str, int],
        exchange: Exchange,
        body: bytes,
        answer_here: Callable[[], None],
        done: Callable[[], None],
    ) -> None:
        """Answer with the answer of the broker at this address, and call `done`, after which the next request of this
        client may begin; or call `answer_here` if there is no answer.
        """

        def end(task: asyncio.Task[bytes]) -> None:
            self._tasks.discard(task)
            # A task that was cancelled may never have begun. But each task ends.
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if isinstance(error, CannotReach):
                self._pauses_until = asyncio.get_running_loop().time() + PAUSE_SECONDS
            if exchange.is_lost:
                done()
            elif error is None:
                exchange.reply((task.result(),))
                done()
            elif self._stopped:
                exchange.reply_by_hanging_up()
                done()
            else:
                answer_here()

        task = asyncio.get_running_loop().create_task(self._ask(address, exchange, body))
        self._tasks.add(task)
        task.add_done_callback(end)

    def give_up(self) -> None:
        """Wait for no answer any more: this broker can answer everything by itself now."""
        for task in self._tasks:
            task.cancel()

    def stop(self) -> None:
        """Wait for no answer any more: this broker stops."""
        self._stopped = True
        self.give_up()

    async def _ask(self, address: tuple[str, int], exchange: Exchange, body: bytes) -> bytes:
        """The frame that the broker at this address answers."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                reader, writer = await self._reach(*address)
        except (OSError, ValueError) as error:
            # A ValueError says that the host cannot be the name of a machine.
            raise CannotReach(f"{address[0]}:{address[1]}: {error}") from error
        try:
            async with asyncio.timeout(ANSWER_SECONDS_MAX):
                number, client = exchange.correlation_id, exchange.client_id
                presented = messages.encode_request(_presentation(), _PRESENTED_IN, number, client)
                prefix = request_prefix(exchange.api_key, exchange.version, number, client, len(body))
                writer.write(presented + prefix + body)
                await writer.drain()
                await self._frame(reader, versions.API_VERSIONS, _PRESENTED_IN, number)
                return await self._frame(reader, exchange.api_key, exchange.version, number)
        except TimeoutError as error:
            raise CannotReach(f"{address[0]}:{address[1]}: no answer") from error
        finally:
            with suppress(OSError):
                writer.close()

    async def _frame(self, reader: asyncio.StreamReader, api_key: int, version: int, number: int) -> bytes:
        """The next frame, which must be the answer to the request of this number. Raises ProtocolError, EOFError."""
        size = await reader.readexactly(SIZE_BYTES)
        frame = size + await reader.readexactly(frame_size(size, 0, self._frame_bytes_max))
        if parse_response_header(api_key, version, memoryview(frame)[SIZE_BYTES:])[0] != number:
            raise ProtocolError("an answer to another request")
        return frame
