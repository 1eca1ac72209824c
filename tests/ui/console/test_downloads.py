"""A large key or value is downloaded as it is in the log, by those who may see it, and a few at a time."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import pytest

from browsing import Browser, browse
from eventually import eventually
from semel.client.places import TopicPartition
from semel.testing.broker import FaultyBroker
from semel.ui.console import server
from semel.ui.console.askers import Askers
from semel.ui.console.query import Query
from semel.ui.console.records import file_name
from semel.ui.console.sources import CLUSTER, FILES, Question
from semel.wire.records import Record

FILE = "/file/record?topic=payments&partition=0&offset=0"


def test_a_value_is_a_file_with_the_bytes_that_are_in_the_log(broker: FaultyBroker) -> None:
    value = bytes(range(256)) * 3_000 + b"<script>alert(1)</script>"
    broker.seed("payments", Record(value, b"key"), Record(b"", None))

    async def story(browser: Browser) -> None:
        await browser.enter()
        told = await browser.get(FILE)
        assert (told.status, told.body) == (200, value)
        # No browser shows it as a page, whatever it holds.
        assert told.headers["content-disposition"] == 'attachment; filename="payments-0-0.value"'
        assert told.headers["content-type"] == "application/octet-stream"
        assert told.headers["x-content-type-options"] == "nosniff"
        assert (await browser.get(f"{FILE}&part=key")).body == b"key"
        assert (await browser.get(FILE.replace("offset=0", "offset=1"))).body == b""
        for path, status in (
            (FILE.replace("offset=0", "offset=1&part=key"), 404),
            (FILE.replace("offset=0", "offset=7"), 502),
            (f"{FILE}&part=headers", 400),
            ("/file/record", 400),
            ("/file/nowhere", 404),
        ):
            refused = await browser.get(path)
            assert (refused.status, list(refused.told)) == (status, ["error"]), path

    browse(broker.bootstrap, story)


def test_a_file_needs_a_session_and_no_other_page_gets_one(broker: FaultyBroker) -> None:
    broker.seed("payments", "secret")

    async def story(browser: Browser) -> None:
        assert (await browser.get(FILE)).status == 403
        await browser.enter()
        assert (await browser.get(FILE, Origin="http://evil.example")).status == 403
        assert (await browser.get(FILE)).body == b"secret"

    browse(broker.bootstrap, story)


def test_only_a_few_files_are_read_at_once(semel_broker: FaultyBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is in memory as a whole."""
    go_on = threading.Event()

    def slow(view: object, query: Query) -> tuple[str, bytes]:
        assert go_on.wait(60)
        return "name", b"content"

    monkeypatch.setitem(FILES, "record", Question(CLUSTER, slow))

    async def story(browser: Browser) -> None:
        await browser.enter()
        asked = [asyncio.ensure_future(browser.get(FILE)) for _ in range(server.FILES_MAX + 1)]
        (first,), _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        assert (first.result().status, "try again" in first.result().told["error"]) == (503, True)
        go_on.set()
        assert sorted(one.status for one in await asyncio.gather(*asked)) == [200, 200, 503]
        assert (await browser.get(FILE)).body == b"content"

    browse(semel_broker.bootstrap, story)


def test_a_name_of_a_topic_in_the_name_of_a_file_is_no_header_and_no_path() -> None:
    """Neither semel nor Apache Kafka allows such a topic; another cluster may."""
    hostile = TopicPartition('../a"b\r\nSet-Cookie: x', 0)
    assert file_name(hostile, 7, "value") == ".._a_b__Set-Cookie__x-0-7.value"


def test_a_thread_that_waits_keeps_no_answer() -> None:
    """Four of them would keep four files of the largest size."""

    class Large:
        pass

    async def asking() -> weakref.ref[Large]:
        return weakref.ref(await Askers(object).ask(lambda _: Large()))

    kept = asyncio.run(asking())
    assert eventually(lambda: gc.collect() >= 0 and kept() is None)
