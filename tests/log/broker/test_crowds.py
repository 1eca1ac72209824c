"""Silent connections keep nobody out: not those of other addresses, nor those on another listener."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from skipping import SkippingLoop, run
from watched import Watched, serving

import plain_messages as messages
from asking import Asker, ConnectionEnded
from ledger import NOW_MS
from semel.log.broker.broker import Broker
from semel.log.broker.connection import RESTING_SECONDS
from semel.log.broker.connections import KEPT_PART
from semel.log.broker.limits import Limits
from semel.log.security.listeners import Listener
from semel.testing.broker import FaultyBroker
from semel.testing.clock import Clock
from semel.wire.steps import finish
from semel.wire.versions import API_VERSIONS

PLACES = 2 * KEPT_PART


@contextmanager
def silent(bootstrap: str, source: str, count: int) -> Iterator[list[socket.socket]]:
    """So many connections from one address that stay silent."""
    host, port = bootstrap.rsplit(":", 1)
    with ExitStack() as held:
        yield [
            held.enter_context(socket.create_connection((host, int(port)), timeout=30, source_address=(source, 0)))
            for _ in range(count)
        ]


def is_served(broker: Watched, source: str) -> bool:
    asker = broker.connect(source=source)
    return not asker(API_VERSIONS, 0).error_code


def test_one_silent_address_keeps_nobody_out() -> None:
    with serving(connections_max=PLACES) as broker, silent(broker.bootstrap, "127.0.0.2", 3 * PLACES):
        assert is_served(broker, "127.0.0.3")
        assert is_served(broker, "127.0.0.2"), "the oldest one of the address is closed for it"
        assert broker.look(lambda b: len(b.connections)) <= PLACES // 2 + 2


def test_many_silent_addresses_keep_nobody_out() -> None:
    with serving(connections_max=PLACES) as broker, ExitStack() as held:
        for number in range(2, 2 * PLACES):
            held.enter_context(silent(broker.bootstrap, f"127.0.0.{number}", 3))
        assert all(is_served(broker, f"127.0.1.{number}") for number in range(1, 5))
        assert broker.look(lambda b: len(b.connections)) <= PLACES


def test_a_client_that_is_at_work_never_displaced() -> None:
    with serving(connections_max=PLACES) as broker:
        busy = [broker.connect(source="127.0.0.2") for _ in range(3)]
        for asker in busy:
            asker(API_VERSIONS, 0)
        with silent(broker.bootstrap, "127.0.0.2", 3 * PLACES):
            assert is_served(broker, "127.0.0.3")
            assert all(not asker(API_VERSIONS, 0).error_code for asker in busy)


def test_who_was_silent_for_long_displaced_for_the_clients_of_other_addresses() -> None:
    frame = messages.encode_request(API_VERSIONS, 0, 1, None, messages.build_request(API_VERSIONS, 0))
    clock = Clock(NOW_MS)

    async def scenario(loop: SkippingLoop) -> None:
        async with Broker(limits=Limits(connections_max=4), clock=clock.time) as broker:

            async def connected(source: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
                port = broker.listeners[0].port
                return await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))

            async def is_served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
                writer.write(frame)
                with suppress(ConnectionError, asyncio.IncompleteReadError):
                    await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
                    return True
                return False

            early = [await connected("127.0.0.2") for _ in range(2)]
            others = [await connected(f"127.0.0.{number}") for number in (3, 4)]
            assert all([await is_served(*one) for one in (*early, *others)])
            loop.skip(clock, RESTING_SECONDS + 1)
            assert await is_served(*others[0])
            finish(broker._chores._look_at_connections())
            late = await connected("127.0.0.5")
            assert await is_served(*late)
            assert await is_served(*others[0])
            assert [await is_served(*one) for one in early].count(False) == 1
            for _, writer in (*early, *others, late):
                writer.close()

    run(scenario)


def test_all_clients_of_one_listener_together_leave_the_places_of_another_one() -> None:
    inside, outside = Listener("INSIDE"), Listener("OUTSIDE")
    with FaultyBroker(limits=Limits(connections_max=PLACES), listeners=[inside, outside]) as broker:
        at_inside, at_outside = (f"127.0.0.1:{listener.port}" for listener in broker._broker.listeners)
        with ExitStack() as held:
            for number in range(2, 2 * PLACES):
                with suppress(ConnectionEnded, ConnectionResetError):
                    held.enter_context(Asker(at_outside, source=f"127.0.0.{number}"))(API_VERSIONS, 0)
            # All are at work, so none of them is closed.
            with Asker(at_outside, source="127.0.1.1") as late, pytest.raises((ConnectionEnded, ConnectionResetError)):
                late(API_VERSIONS, 0)
            for number in range(PLACES // KEPT_PART):
                asker = held.enter_context(Asker(at_inside, source=f"127.0.2.{number + 1}"))
                assert not asker(API_VERSIONS, 0).error_code
