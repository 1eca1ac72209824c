"""The console as a browser meets it: who gets what, what an away broker looks like, and that nothing ends it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from datetime import datetime
from importlib.resources import files
from typing import Any

import pytest

from asking import Asker
from browsing import Browser, browse
from semel.testing.broker import FaultyBroker
from semel.ui.console.server import CONNECTIONS_MAX
from transacting import TransactionalProducer, committed

NOWHERE = "127.0.0.1:1"


def test_a_browser_is_let_in_once_by_the_address_that_was_printed(semel_broker: FaultyBroker) -> None:
    async def story(browser: Browser) -> None:
        (line,) = browser.lines
        assert line.startswith("semel console on http://127.0.0.1:")
        refused = await browser.get("/api/topics")
        assert (refused.status, "printed" in refused.told["error"]) == (403, True)
        entered = await browser.enter()
        assert (entered.status, entered.headers["location"]) == (303, "/")
        assert (await browser.get("/api/topics")).told["topics"] == []
        assert (await browser.get("/enter" + line.rpartition("/enter")[2])).status == 403
        # The next browser has an address of its own.
        assert len(browser.lines) == 2
        await browser.enter()
        assert (await browser.get("/api/session")).told["bootstrap"] == [semel_broker.bootstrap]

    browse(semel_broker.bootstrap, story)


def test_without_a_session_a_browser_gets_the_shell_and_nothing_of_the_cluster() -> None:
    """So a link that somebody was sent opens: its page asks with the cookie, which no other site's link carries."""

    async def story(browser: Browser) -> None:
        for path in ("/", "/topics", "/records?topic=a", "/nowhere/at/all"):
            shell = await browser.get(path)
            assert (shell.status, shell.headers["content-type"]) == (200, "text/html; charset=utf-8")
        for path in ("/api/session", "/api/topics", "/api/nowhere", "/events/topics", "/plan/abort?id=a", "/plan/x"):
            assert (await browser.get(path)).status == 403
        assert (await browser.post("/do/abort", {"id": "a"})).status == 403

    browse(NOWHERE, story)


@pytest.mark.parametrize("name", sorted(one.name for one in (files("semel.ui.console") / "assets").iterdir()))
def test_each_asset_is_served_and_loads_nothing_from_elsewhere(name: str) -> None:
    async def story(browser: Browser) -> None:
        asset = await browser.get(f"/static/{name}")
        assert asset.status == 200
        body = asset.body.decode().replace("http://www.w3.org/2000/svg", "")
        assert "//" not in body.replace("// ", "") or ".js" in name
        assert not any(word in body for word in ("http:", "https:", "innerHTML", "eval(", "@import", " style="))

    browse(NOWHERE, story)


def test_the_shell_names_all_that_its_script_imports_so_that_a_browser_asks_for_it_at_once() -> None:
    assets = files("semel.ui.console") / "assets"
    modules = {one.name for one in assets.iterdir() if one.name.endswith(".js")}
    shell = (assets / "index.html").read_text()
    assert {name for name in modules if f'href="/static/{name}"' in shell} == modules - {"console.js"}


@pytest.mark.parametrize(
    "path", ["/static/", "/static/../site.py", "/static/%2e%2e/site.py", "/static/a%00.js", "/static/nowhere.js"]
)
def test_nothing_but_assets_is_served_as_one(path: str) -> None:
    async def story(browser: Browser) -> None:
        assert (await browser.get(path)).status == 404

    browse(NOWHERE, story)


def test_a_broker_that_is_away_is_one_line_and_comes_back(broker: FaultyBroker) -> None:
    async def story(browser: Browser) -> None:
        await browser.enter()
        answers = browser.events("/events/topics")
        assert (await anext(answers))["count"] == 0
        broker.kill()
        assert "127.0.0.1" in (await anext(answers))["error"]
        away = await browser.get("/api/topics")
        assert (away.status, list(away.told)) == (502, ["error"])
        broker.restart()
        broker.create_topic("back")
        while (told := await anext(answers)).get("count") != 1:
            assert told.keys() & {"error", "count"}
        await answers.aclose()

    browse(broker.bootstrap, story)


def test_what_makes_no_sense_is_one_line(semel_broker: FaultyBroker) -> None:
    async def story(browser: Browser) -> None:
        await browser.enter()
        for path, status in (
            ("/api/nowhere", 404),
            ("/api/topics?page=x", 400),
            ("/api/topic", 400),
            ("/api/topic?topic=nowhere", 502),
            ("/api/topic?topic=" + "a" * 2000, 400),
            ("/api/records?topic=nowhere", 502),
            ("/events/nowhere", 404),
            ("/plan/nowhere", 404),
            ("/plan/abort", 400),
            ("/plan/abort?id=nobody", 400),
        ):
            refused = await browser.get(path)
            assert refused.status == status, path
            assert "\n" not in refused.told["error"]
        assert (await browser.send(browser.head("DELETE", "/api/topics", {}))).status == 405
        assert (await browser.get("/api/topics", Origin="http://evil.example")).status == 403
        assert (await browser.send(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")).status == 403
        assert (await browser.send(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")).status == 400

    browse(semel_broker.bootstrap, story)


def test_a_stuck_transaction_is_aborted_from_the_page_where_changes_are_allowed(
    broker: FaultyBroker, ask: Asker
) -> None:
    stuck = TransactionalProducer(ask, "stuck")
    broker.create_topic("payments")
    stuck.claim()
    stuck.add("payments")
    stuck.send("payments", "lost")
    broker.seed("payments", "waits")

    async def story(browser: Browser) -> None:
        await browser.enter()
        (shown,) = (await browser.get("/api/transactions")).told["transactions"]
        change = {"id": shown["id"]}
        token = (await browser.get("/api/session")).told["change_token"]
        assert (await browser.post("/do/abort", change)).status == 403
        for body in (b"[]", b"{", b'{"id": {}}', b"\xff", b'{"id": true}', b'{"id": "\\ud800"}'):
            assert (await browser.post("/do/abort", body, X_Semel_Change=token)).status == 400
        assert (await browser.post("/do/nowhere", change, X_Semel_Change=token)).status == 404
        assert (await browser.post("/api/topics", change, X_Semel_Change=token)).status == 405
        unseen = await browser.post("/do/abort", change, X_Semel_Change=token)
        assert (unseen.status, "look again" in unseen.told["error"]) == (400, True)
        done = await browser.change("abort", change)
        assert (done.status, "aborted" in done.told["done"]) == (200, True)
        refused, line = browser.lines[-2:]
        assert "a browser that was let in from 127.0.0.1: abort(id='stuck'): error: something has changed" in refused
        assert line.endswith(f": abort(id='stuck'): {done.told['done']}")
        assert datetime.fromisoformat(line.split()[0]).tzinfo is not None

    browse(broker.bootstrap, story, allow_changes=True)
    assert committed(ask, "payments") == ["waits"]


def test_a_console_that_only_reads_changes_nothing_whatever_it_is_sent(broker: FaultyBroker, ask: Asker) -> None:
    stuck = TransactionalProducer(ask, "stuck")
    broker.create_topic("payments")
    stuck.claim()
    stuck.add("payments")
    stuck.send("payments", "kept")

    async def story(browser: Browser) -> None:
        await browser.enter()
        token = (await browser.get("/api/session")).told["change_token"]
        plan = (await browser.get("/plan/abort?id=stuck")).told
        change = {"id": "stuck", "mark": plan["mark"]}
        assert plan["command"] == "semel transactions abort stuck"
        refused = await browser.post("/do/abort", change, X_Semel_Change=token)
        assert (refused.status, "--allow-changes" in refused.told["error"]) == (403, True)

    browse(broker.bootstrap, story)
    assert stuck.end() == 0
    assert committed(ask, "payments") == ["kept"]


def test_a_wrong_password_is_one_line_and_a_right_one_shows_what_the_user_may_see() -> None:
    with FaultyBroker(security="SASL_PLAINTEXT") as broker:
        broker.create_topic("payments")
        login = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": broker.login.mechanism,
            "sasl_username": broker.login.user,
        }

        async def refused(browser: Browser) -> None:
            await browser.enter()
            answer = await browser.get("/api/topics")
            assert (answer.status, "refused user" in answer.told["error"]) == (502, True)
            assert "guessed" not in answer.told["error"]

        async def shown(browser: Browser) -> None:
            await browser.enter()
            assert (await browser.get("/api/topics")).told["topics"][0]["name"] == "payments"

        browse(broker.bootstrap, refused, {**login, "sasl_password": "guessed"})
        browse(broker.bootstrap, shown, {**login, "sasl_password": broker.login.password})


def test_a_console_that_ends_under_an_open_page_prints_nothing(semel_broker: FaultyBroker) -> None:
    """Ctrl-C while somebody looks is how most consoles end."""

    async def story(browser: Browser) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: printed.append(context["message"]))
        await browser.enter()
        pages.append(browser.events("/events/topics"))
        assert (await anext(pages[0]))["topics"] == []

    printed: list[str] = []
    pages: list[AsyncGenerator[Any, None]] = []
    browse(semel_broker.bootstrap, story)
    assert printed == []


def test_a_browser_is_answered_however_many_connections_are_silent(semel_broker: FaultyBroker) -> None:
    async def story(browser: Browser) -> None:
        await browser.enter()
        host, _, port = browser.place.rpartition(":")
        silent = [
            await asyncio.open_connection(host, int(port), local_addr=(f"127.0.0.{last}", 0))
            for last in range(1, 4)
            for _ in range(CONNECTIONS_MAX)
        ]
        assert (await browser.get("/api/topics")).status == 200
        # The oldest were closed.
        reader, _ = silent[0]
        assert await reader.read() == b""
        for _, writer in silent:
            writer.close()

    browse(semel_broker.bootstrap, story)


def test_a_cluster_that_does_not_answer_in_time_is_one_line() -> None:
    async def story(browser: Browser) -> None:
        await browser.enter()
        late = await browser.get("/api/topics")
        assert (late.status, late.told["error"]) == (504, "there is no answer after 0.2 s: try again")
        token = (await browser.get("/api/session")).told["change_token"]
        assert (await browser.post("/do/delete_topic", {"topic": "a"}, X_Semel_Change=token)).status == 504
        said = "error: nobody knows whether it was done; look before you try again"
        assert browser.lines[-1].endswith(f": delete_topic(topic='a'): {said}")

    with socket.create_server(("127.0.0.1", 0)) as silent:
        browse("{}:{}".format(*silent.getsockname()), story, deadline_seconds=0.2, allow_changes=True)
