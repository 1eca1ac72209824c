"""What lies under which path of the console, and who may have it.

    /enter?token=...      opens a session, once
    /static/...           what the browser runs: the same for everybody
    /api/QUESTION?...     an answer as it is now, as JSON
    /events/QUESTION?...  the same answer, and again whenever it changes
    /do/CHANGE            a change, by POST
    anything else         the shell, in which the browser shows the page of that path

Every request passes the door first, and every path that tells something or changes something asks it again. A question
must never change anything; that is what the table of changes is for.
"""

import json
import logging
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, TypeVar

from semel.client.cluster import Cluster
from semel.client.errors import LogError
from semel.console import groups, pipelines, producers, records, topics, transactions
from semel.console.askers import Askers
from semel.console.decisions import DecisionFeed
from semel.console.door import Door
from semel.console.http import PageRefused, Request, Response, as_json, json_response
from semel.console.live import Live
from semel.console.query import Query
from semel.wire.errors import ProtocolError

if TYPE_CHECKING:
    from semel.console.claims import Databases

T = TypeVar("T")

QUESTIONS: Final[Mapping[str, Callable[[Cluster, Query], Any]]] = {
    "topics": topics.every_topic,
    "topic": topics.one_topic,
    "records": records.some_records,
    "piece": records.piece_of_record,
    "transactions": transactions.open_transactions,
    "producers": producers.of_topic,
    "groups": groups.every_group,
    "group": groups.one_group,
    "reset_preview": groups.reset_preview,
    "pipelines": pipelines.every_sink,
}
CHANGES: Final[Mapping[str, Callable[[Cluster, Query], str]]] = {
    "abort": transactions.abort,
    "reset": groups.reset,
}

_TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
# What the application's tables are asked for, where the console was given databases.
DATABASE_QUESTIONS: Final[Mapping[str, Callable[["Databases", Query], Any]]] = {
    "claims": lambda databases, query: databases.every(query),
}
DATABASE_CHANGES: Final[Mapping[str, Callable[["Databases", Query], str]]] = {
    "outbox_retry": lambda databases, query: databases.outbox_retry(query),
    "outbox_drop": lambda databases, query: databases.outbox_drop(query),
    "inbox_retry": lambda databases, query: databases.inbox_retry(query),
    "inbox_drop": lambda databases, query: databases.inbox_drop(query),
}

# What the broker tells by itself, where the console knows its address.
DECISIONS: Final = "decisions"

_LOG: Final = logging.getLogger("semel.console")

_ASSET_NAME: Final = re.compile(rf"[a-z]+\.({'|'.join(_TYPES)})")
_ASSETS: Final = files("semel.console") / "assets"
_SHELL: Final = "index.html"


@dataclass(frozen=True)
class Stream:
    """An answer that is to be watched."""

    answers: Callable[[], AsyncGenerator[bytes, None]]


class Site:
    def __init__(
        self,
        door: Door,
        cluster: Askers[Cluster],
        databases: "Askers[Databases] | None",
        decisions: DecisionFeed | None,
        live: Live,
        about: Mapping[str, Any],
        entered: Callable[[], None],
    ) -> None:
        """`about` is what every page may show of the console itself; `entered` is called when a token was used."""
        self._door = door
        self._cluster = cluster
        self._databases = databases
        self._live = live
        self._decisions = decisions
        self._about = about
        self._entered = entered

    async def answer(self, request: Request) -> Response | Stream:
        self._door.check_origin(request)
        _, area, *rest = [*request.path.split("/", 2), ""]
        name = rest[0]
        if request.method == "POST":
            return await self._change(area, name, request)
        if request.method != "GET":
            raise PageRefused(405, "the console takes GET and POST")
        if area == "enter":
            return self._enter(request)
        if area == "static":
            return _asset(name)
        if area == "api":
            session = self._door.session_of(request)
            if name == "session":
                return json_response({**self._about, "change_token": session.change_token})
            if name == DECISIONS:
                return json_response(await self._feed().now(Query(request.query)))
            return json_response(await self._ask(QUESTIONS, DATABASE_QUESTIONS, name, Query(request.query)))
        if area == "events":
            self._door.session_of(request)
            return self._stream(name, Query(request.query))
        return _asset(_SHELL)

    def _enter(self, request: Request) -> Response:
        session = self._door.enter(request.query.get("token", ""))
        self._entered()
        headers = {"Location": "/", "Set-Cookie": self._door.set_cookie(session)}
        return Response(303, "text/plain", b"", headers)

    def _stream(self, name: str, query: Query) -> Stream:
        if name == DECISIONS:
            feed = self._feed()
            return Stream(lambda: feed.watch(query))
        _check_known(name, QUESTIONS, DATABASE_QUESTIONS)

        async def ask() -> bytes:
            try:
                return as_json(await self._ask(QUESTIONS, DATABASE_QUESTIONS, name, query))
            except PageRefused as refused:
                return as_json({"error": str(refused)})
            except Exception as error:
                return as_json({"error": str(mistake(error))})

        return Stream(lambda: self._live.watch(f"{name}?{query}", ask))

    def _feed(self) -> DecisionFeed:
        if self._decisions is None:
            raise PageRefused(
                404, "the console does not know where the broker tells: start it with --decisions HOST:PORT"
            )
        return self._decisions

    async def _change(self, area: str, name: str, request: Request) -> Response:
        self._door.check_change(request)
        if area != "do":
            raise PageRefused(405, "changes are sent to /do/...")
        fields = Query(_fields(request.body))
        return json_response({"done": await self._ask(CHANGES, DATABASE_CHANGES, name, fields)})

    async def _ask(
        self,
        of_cluster: Mapping[str, Callable[[Cluster, Query], T]],
        of_databases: Mapping[str, Callable[["Databases", Query], T]],
        name: str,
        query: Query,
    ) -> T:
        _check_known(name, of_cluster, of_databases)
        if name in of_databases:
            if self._databases is None:
                raise PageRefused(404, "the console was given no database: start it with --database URL")
            return await self._databases.ask(lambda databases: of_databases[name](databases, query))
        try:
            return await self._cluster.ask(lambda cluster: of_cluster[name](cluster, query))
        except (LogError, ProtocolError) as error:
            raise PageRefused(502, str(error)) from None


def mistake(error: Exception) -> PageRefused:
    """The answer where the console itself made a mistake, which is to stay one page's."""
    _LOG.error("the console could not answer: %s: %s", type(error).__name__, error)
    return PageRefused(500, f"the console could not answer: {type(error).__name__}: {error}")


def _check_known(name: str, *tables: Mapping[str, object]) -> None:
    names = [name for table in tables for name in table]
    if name not in names:
        raise PageRefused(404, f"there is no {name!r} here; there are {', '.join(names)}")


def _fields(body: bytes) -> dict[str, str]:
    """The fields of a change: texts and numbers, by their names."""
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        raise PageRefused(400, "a change is a JSON object") from None
    if not isinstance(values, dict) or not all(
        isinstance(one, str) or (isinstance(one, int) and not isinstance(one, bool)) for one in values.values()
    ):
        raise PageRefused(400, "a change is a JSON object of texts and whole numbers")
    return {name: str(value) for name, value in values.items()}


def _asset(name: str) -> Response:
    match = _ASSET_NAME.fullmatch(name)
    if match is None:
        raise PageRefused(404, "there is no such file")
    try:
        body = (_ASSETS / name).read_bytes()
    except OSError:
        raise PageRefused(404, "there is no such file") from None
    return Response(200, f"{_TYPES[match[1]]}; charset=utf-8", body)
