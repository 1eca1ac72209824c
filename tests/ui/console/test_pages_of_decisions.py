"""What the page of decisions says is what the broker told: the counts, and the newest of each verdict."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from asking import Asker, at
from browsing import Browser, browse, consoled
from eventually import eventually
from semel.log.broker.broker import Broker
from semel.log.broker.certificates import TlsSettings
from semel.log.broker.metrics_server import serve_metrics
from semel.log.security.listeners import Listener, SecurityProtocol
from semel.testing.certificates import Authority
from semel.ui.console.broker_door import BrokerDoor, NotTold
from semel.ui.console.decisions import NEWEST_MAX, DecisionFeed
from semel.ui.console.query import PageRefused, Query
from semel.wire.basic import BasicLogin
from semel.wire.versions import LIST_TRANSACTIONS

NOWHERE = "127.0.0.1:1"
EVERYTHING = Query({})
NONE = {"accepted": 0, "duplicate": 0, "gap": 0, "fenced": 0}
# A number without end, as Python reads 1e999.
ENDLESS = json.dumps({"decisions": [], "counts": {**NONE, "gap": 1e999}, "left_out": NONE}).encode()


@asynccontextmanager
async def told() -> AsyncIterator[tuple[Broker, BrokerDoor]]:
    """A broker that tells its decisions."""
    async with Broker() as broker:
        server = await serve_metrics(broker, "127.0.0.1", 0)
        yield broker, BrokerDoor(*server.sockets[0].getsockname()[:2])
        server.close()


async def send(broker: Broker, *sequences: int) -> None:
    """As the first idempotent producer there ever was."""

    def ask() -> None:
        with Asker(broker.bootstrap) as asker:
            for sequence in sequences:
                asker.produce("payments", at(1), producer_id=0, producer_epoch=0, base_sequence=sequence)

    await asyncio.to_thread(ask)


async def made(broker: Broker) -> None:
    def ask() -> None:
        with Asker(broker.bootstrap) as asker:
            asker.create("payments")

    await asyncio.to_thread(ask)


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 120))


def test_a_page_gets_the_counts_at_once_and_each_verdict_as_it_falls() -> None:
    async def story() -> None:
        async with told() as (broker, address):
            await made(broker)
            await send(broker, 0, 0)
            feed = DecisionFeed(address)
            first = await feed.now(EVERYTHING)
            assert (first["counts"]["accepted"], first["counts"]["duplicate"], first["decisions"]) == (1, 1, [])
            answers = feed.watch(EVERYTHING)
            assert b'"duplicate":1' in (await anext(answers)).replace(b": ", b":")
            await send(broker, 1, 1)
            while (now := await feed.now(EVERYTHING))["counts"]["duplicate"] < 2:
                await anext(answers)
            assert [one["said"] for one in now["decisions"]] == ["DUPLICATE offset:1", "OK offset:1"]
            assert now["left_out"] == 0
            duplicates = await feed.now(Query({"outcome": "duplicate"}))
            assert [one["outcome"] for one in duplicates["decisions"]] == ["duplicate"]
            await answers.aclose()
            feed.stop()

    run(story)


def test_a_duplicate_stays_in_sight_among_all_that_is_accepted() -> None:
    async def story() -> None:
        async with told() as (broker, address):
            await made(broker)
            feed = DecisionFeed(address)
            answers = feed.watch(EVERYTHING)
            await anext(answers)
            await send(broker, 0, 0, *range(1, 2 * NEWEST_MAX))
            while (now := await feed.now(EVERYTHING))["counts"]["accepted"] < 2 * NEWEST_MAX:
                await anext(answers)
            assert len(now["decisions"]) == NEWEST_MAX
            assert [one["number"] for one in now["decisions"]] == list(range(2 * NEWEST_MAX + 1, NEWEST_MAX + 1, -1))
            duplicates = await feed.now(Query({"outcome": "duplicate"}))
            assert [one["number"] for one in duplicates["decisions"]] == [2]
            await answers.aclose()
            feed.stop()

    run(story)


@pytest.mark.parametrize(
    ("spoken", "reason"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\nthis machine alone\n", "403 Forbidden: this machine alone"),
        (b"HTTP/1.1 200 OK\r\n\r\ndata: {}\n\n", "'decisions'"),
        (b"HTTP/1.1 200 OK\r\n\r\ndata: [1]\n\n", "list indices"),
        (b"HTTP/1.1 200 OK\r\n\r\ndata: nonsense\n\n", "Expecting value"),
        (b'HTTP/1.1 200 OK\r\n\r\ndata: {"decisions": [{"outcome": "<script>"}]}\n\n', "script"),
        (b'HTTP/1.1 200 OK\r\n\r\ndata: {"decisions": [{"outcome": "gap"}]}\n\n', "'number'"),
        (b"HTTP/1.1 200 OK\r\n\r\ndata: " + ENDLESS + b"\n\n", "infinity"),
        (b"HTTP/1.1 200 OK\r\n\r\ndata: " + b"[" * 200_000 + b"\n\n", "decoding a JSON array"),
        (b"x" * 3_000_000, "does not tell its decisions"),
        (b"", "does not tell its decisions"),
    ],
)
def test_whatever_is_said_in_the_place_of_decisions_is_one_line(spoken: bytes, reason: str) -> None:
    async def story() -> None:
        async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(spoken)
            writer.close()

        server = await asyncio.start_server(speak, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()

        async def look(browser: Browser) -> None:
            await browser.enter()
            refused = await browser.get("/api/decisions")
            assert refused.status == 502
            assert reason in refused.told["error"]
            events = browser.events("/events/decisions")
            assert "127.0.0.1" in (await anext(events))["error"]
            await events.aclose()

        await asyncio.to_thread(browse, NOWHERE, look, decisions=BrokerDoor(*address))
        server.close()

    run(story)


def test_what_a_broker_told_is_forgotten_when_another_one_answers_in_its_place() -> None:
    """A broker that was started again counts from one: what it tells would stand below all that the first one told."""

    async def story() -> None:
        lives = iter([(900, "duplicate", "timed_out"), (1, "accepted", "acquired")])
        ends = asyncio.Event()

        async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            number, outcome, shared = next(lives)
            left_out = {"accepted": 9, "duplicate": number, "gap": 0, "fenced": 0}
            decisions = [{"number": number, "outcome": outcome}]
            event = {"counts": {outcome: number}, "left_out": left_out, "decisions": decisions}
            event["shared"] = [{"event": shared}]
            writer.write(b"HTTP/1.1 200 OK\r\n\r\ndata: %s\n\n" % json.dumps(event).encode())
            await ends.wait()
            ends.clear()
            writer.close()

        server = await asyncio.start_server(speak, "127.0.0.1", 0)
        feed = DecisionFeed(BrokerDoor(*server.sockets[0].getsockname()[:2]), pause=lambda _: asyncio.sleep(0))
        assert (await feed.now(EVERYTHING))["counts"] == {"duplicate": 900}
        answers = feed.watch(EVERYTHING)
        ends.set()
        while (told := json.loads(await anext(answers))).get("counts") != {"accepted": 1}:
            pass
        assert told.pop("history")["accepted_max"] == 0
        assert told.pop("decisions") == [{"number": 1, "outcome": "accepted"}]
        assert told == {"counts": {"accepted": 1}, "left_out": 1, "shared": [{"event": "acquired"}]}
        await answers.aclose()
        feed.stop()
        ends.set()
        server.close()

    run(story)


def test_a_broker_that_is_away_or_unknown_is_one_line() -> None:
    async def away(browser: Browser) -> None:
        await browser.enter()
        refused = await browser.get("/api/decisions")
        assert (refused.status, "127.0.0.1:1 does not tell" in refused.told["error"]) == (502, True)
        assert (await browser.get("/api/decisions?outcome=nonsense")).status == 400
        assert (await browser.get("/api/session")).told["has_decisions"] is True

    browse(NOWHERE, away, decisions=BrokerDoor("127.0.0.1", 1))

    async def unknown(browser: Browser) -> None:
        await browser.enter()
        refused = await browser.get("/api/decisions")
        assert (refused.status, "--decisions" in refused.told["error"]) == (404, True)
        assert (await browser.get("/events/decisions")).status == 404

    browse(NOWHERE, unknown)


def test_the_broker_is_listened_to_only_while_somebody_looks() -> None:
    async def story() -> None:
        async with told() as (broker, address):
            feed = DecisionFeed(address, linger_seconds=0.0)
            await feed.now(EVERYTHING)
            assert await asyncio.to_thread(eventually, lambda: not broker.decisions.is_watched)

    run(story)


def test_a_console_asks_for_its_first_page_before_a_browser_does() -> None:
    async def story() -> None:
        async with told() as (broker, address), consoled(broker.bootstrap, {}, decisions=address):
            assert await asyncio.to_thread(eventually, lambda: broker.decisions.is_watched)
            assert await asyncio.to_thread(eventually, lambda: LIST_TRANSACTIONS in broker.metrics.latencies)

    run(story)


def test_a_feed_gets_in_over_tls_with_its_login_and_says_so_where_it_does_not(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    trusting = ssl.create_default_context(cafile=authority.file)

    async def story() -> None:
        tls = TlsSettings(*authority.issue("broker", "localhost"))
        async with Broker(listeners=[Listener("SEALED", SecurityProtocol.SSL)], tls=tls) as broker:
            login = BasicLogin("console", "planted-secret")
            server = await serve_metrics(broker, "127.0.0.1", 0, login=login, tls=broker.doors.tls_context)
            port = server.sockets[0].getsockname()[1]
            right = BrokerDoor("localhost", port, login, trusting)
            feed = DecisionFeed(right)
            assert (await feed.now(EVERYTHING))["counts"]
            feed.stop()
            with pytest.raises(NotTold, match="there is no topic"):
                await asyncio.to_thread(right.windows, "payments", 0)
            for wrong, why in (
                (right._replace(login=None), "401 Unauthorized"),
                (right._replace(login=BasicLogin("console", "wrong")), "401 Unauthorized"),
                (right._replace(tls=ssl.create_default_context()), "certificate"),
            ):
                feed = DecisionFeed(wrong)
                with pytest.raises(PageRefused, match=why):
                    await feed.now(EVERYTHING)
                feed.stop()
                with pytest.raises(NotTold, match=why[:3]):
                    await asyncio.to_thread(wrong.windows, "payments", 0)
            assert "planted-secret" not in f"{right} {right!r} {[right]}"
            server.close()

    run(story)
