"""A console in the loop of a test, and what a browser sends to it and keeps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from typing import Any, NamedTuple
from urllib.parse import urlencode

from console_changes import added
from semel.client.settings import ClientSettings
from semel.ui.console.server import Console, Contents

SECONDS_MAX = 120


def settings_of(bootstrap: str) -> ClientSettings:
    host, _, port = bootstrap.rpartition(":")
    return ClientSettings(bootstrap=((host, int(port)),), fetch_wait_ms_max=0)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def told(self) -> Any:
        return json.loads(self.body)


class Browser:
    def __init__(self, console: Console, lines: list[str]) -> None:
        """`lines` are those that the console prints."""
        self.lines = lines
        self.place = console.address.removeprefix("http://").partition("/")[0]
        self.cookie = ""

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.send(self.head("GET", path, headers))

    async def post(self, path: str, values: object, **headers: str) -> Answer:
        body = values if isinstance(values, bytes) else json.dumps(values).encode()
        told = {
            "Origin": f"http://{self.place}",
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        return await self.send(self.head("POST", path, told) + body)

    async def change(self, name: str, values: dict[str, Any], **given: str) -> Answer:
        """Look at the plan of a change and agree to it, as a page does, or the refusal of the plan; `given` is what the
        person types besides.
        """
        shown = await self.get(f"/plan/{name}?{urlencode(values)}")
        if shown.status != 200:
            return shown
        token = (await self.get("/api/session")).told["change_token"]
        return await self.post(f"/do/{name}", {**values, **added(shown.told), **given}, X_Semel_Change=token)

    async def enter(self) -> Answer:
        """Open the address that was printed last."""
        answer = await self.get("/enter" + self.lines[-1].rpartition("/enter")[2])
        self.cookie = answer.headers.get("set-cookie", "").partition(";")[0]
        return answer

    async def events(self, path: str) -> AsyncGenerator[Any, None]:
        """The answers of a stream, as they come."""
        reader, writer = await self.connect()
        writer.write(self.head("GET", path, {}))
        try:
            await reader.readuntil(b"\r\n\r\n")
            while line := await reader.readline():
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])
        finally:
            writer.close()

    def head(self, method: str, path: str, headers: dict[str, str]) -> bytes:
        own = {"Host": self.place, **({"Cookie": self.cookie} if self.cookie else {}), **headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in own.items())
        return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode()

    async def send(self, data: bytes) -> Answer:
        reader, writer = await self.connect()
        writer.write(data)
        try:
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        first, *rest = head.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
        return Answer(int(first.split()[1]), headers, body)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = self.place.rpartition(":")
        return await asyncio.open_connection(host, int(port), limit=1 << 24)


@asynccontextmanager
async def consoled(bootstrap: str, login: dict[str, Any], **options: Any) -> AsyncIterator[Browser]:
    lines: list[str] = []
    given = Contents(**{one.name: options.pop(one.name) for one in fields(Contents) if one.name in options})
    console = Console("127.0.0.1", 0, replace(settings_of(bootstrap), **login), given, tell=lines.append, **options)
    await console.start()
    try:
        yield Browser(console, lines)
    finally:
        await console.stop()


def browse(
    bootstrap: str,
    story: Callable[[Browser], Coroutine[Any, Any, None]],
    login: dict[str, Any] | None = None,
    **options: Any,
) -> None:
    """Have a browser live through a story. `login` are settings of the console's client, `options` its own, and
    what it was given."""

    async def live() -> None:
        async with asyncio.timeout(SECONDS_MAX), consoled(bootstrap, login or {}, **options) as browser:
            await story(browser)

    asyncio.run(live())
