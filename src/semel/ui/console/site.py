"""The paths of the console, and who may use them.

    /enter?token=...      opens a session, once
    /static/...           the files for the browser, the same for everybody
    /api/QUESTION?...     an answer as it is now, as JSON
    /events/QUESTION?...  the same answer, and again whenever it changes
    /file/FILE?...        a file to keep
    /plan/CHANGE?...      what a change would do now, as JSON
    /do/CHANGE            the change, by POST
    /login, /logout       if people log in, by POST
    anything else         the shell, in which the browser shows the page of that path

The door checks every request first, and every path with answers or changes asks it again. A question must never change
anything: changes have their own table.
"""

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from semel.client.errors import LogError
from semel.ui.charts.drawing import colours
from semel.ui.console.decisions import DecisionFeed
from semel.ui.console.door import Door, Session
from semel.ui.console.http import PageRefused, Request, Response, as_json, in_time, json_response
from semel.ui.console.live import Live
from semel.ui.console.plans import ADDED
from semel.ui.console.query import Query
from semel.ui.console.sources import CHANGES, FILES, PLANS, QUESTIONS, Question, Sources
from semel.wire.errors import ProtocolError

if TYPE_CHECKING:
    from semel.ui.console.trial import Trial

# The stream of the broker's decisions, if the console knows the address; the second one adds the switches of a trial.
DECISIONS: Final = "decisions"
CHAOS: Final = "chaos"
# The first page, with a part for each thing that the console's options name.
OVERVIEW: Final = "overview"
_PARTS: Final = (OVERVIEW, "claims", "audits", "standbys")

# How long a page that watches waits for an answer, and the first page for one of its parts: a database that hangs must
# not hide what the cluster answers. Both are shorter than a request may take.
ANSWER_SECONDS_MAX: Final = 25.0
PART_SECONDS_MAX: Final = 12.0

_TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}

# A thread cannot be stopped: what it has begun it may still do.
_UNKNOWN: Final = "nobody knows whether it was done; look before you try again"

_LOG: Final = logging.getLogger("semel.console")

_ASSET_NAME: Final = re.compile(rf"[a-z]+\.({'|'.join(_TYPES)})")
_ASSETS: Final = files("semel.ui.console") / "assets"
_SHELL: Final = "index.html"
_CHARTS: Final = "charts.css"


@dataclass(frozen=True)
class Stream:
    """An answer that a page watches."""

    answers: Callable[[], AsyncGenerator[bytes, None]]


@dataclass(frozen=True)
class File:
    """A file that the browser is to keep. It may be large, so it is read only when the server has room for it."""

    read: Callable[[], Awaitable[Response]]


class Site:
    def __init__(
        self,
        door: Door,
        sources: Sources,
        decisions: DecisionFeed | None,
        trial: "Trial | None",
        live: Live,
        about: Mapping[str, Any],
        entered: Callable[[], None],
        tell: Callable[[str], None],
    ) -> None:
        """`about` has the facts about the console itself for every page; `entered` is called when a token was used, and
        `tell` gets lines about logins and changes.
        """
        self._door = door
        self._sources = sources
        self._live = live
        self._decisions = decisions
        self._trial = trial
        self._about = about
        self._entered = entered
        self._tell = tell

    async def prepare(self) -> None:
        """Ask the questions of the first page once. That imports the client and connects to the cluster before the
        browser asks.
        """
        await self._overview()

    async def answer(self, request: Request) -> Response | Stream | File:
        self._door.check_origin(request)
        _, area, *rest = [*request.path.split("/", 2), ""]
        name = rest[0]
        if request.method == "POST":
            return await self._take(area, name, request)
        if request.method != "GET":
            raise PageRefused(405, "the console takes GET and POST")
        if area == "enter":
            session = self._door.enter(request.query.get("token", ""))
            self._entered()
            return Response(303, "text/plain", b"", {"Location": "/", "Set-Cookie": self._door.set_cookie(session)})
        if area == "static":
            return _asset(name)
        if area == "api":
            return json_response(await self._answer_to(name, request))
        if area == "events":
            self._door.session_of(request)
            return self._while_let_in(request, self._stream(name, Query(request.query)))
        if area == "plan":
            self._door.session_of(request)
            return json_response(await self._ask(PLANS, name, Query(request.query)))
        if area == "file":
            return self._file(name, request)
        return _asset(_SHELL)

    def _file(self, name: str, request: Request) -> File:
        self._door.session_of(request)
        _check_known(name, FILES)

        async def read() -> Response:
            file_name, content = await self._ask(FILES, name, Query(request.query))
            kept = {"Content-Disposition": f'attachment; filename="{file_name}"'}
            return Response(200, "application/octet-stream", content, kept)

        return File(read)

    async def _answer_to(self, name: str, request: Request) -> Any:
        if name == "door":
            return {"people": self._door.people is not None}
        session = self._door.session_of(request)
        if name == "session":
            return self._session(session)
        if name in (DECISIONS, CHAOS):
            feed, beside = self._feed(name)
            return await feed.now(Query(request.query), beside)
        if name == OVERVIEW:
            return await self._overview()
        return await self._ask(QUESTIONS, name, Query(request.query))

    def _session(self, session: Session) -> dict[str, Any]:
        allows_changes = self._door.allows_changes(session)
        return {
            **self._about,
            "allows_changes": allows_changes,
            "person": None if session.person is None else session.person.name,
            "change_token": session.change_token if allows_changes else "",
        }

    def _stream(self, name: str, query: Query) -> Stream:
        if name in (DECISIONS, CHAOS):
            feed, beside = self._feed(name)
            return Stream(lambda: feed.watch(query, beside))
        _check_known(name, QUESTIONS)

        async def ask() -> bytes:
            if name == OVERVIEW:
                return as_json(await self._overview())
            try:
                return as_json(await in_time(self._ask(QUESTIONS, name, query), ANSWER_SECONDS_MAX))
            except PageRefused as refused:
                return as_json({"error": str(refused)})
            except Exception as error:
                return as_json({"error": str(mistake(error))})

        return Stream(lambda: self._live.watch(f"{name}?{query}", ask, QUESTIONS[name].pause_factor))

    def _while_let_in(self, request: Request, stream: Stream) -> Stream:
        """The stream, which ends before the first answer that this browser may not see any more."""

        async def answers() -> AsyncGenerator[bytes, None]:
            async with contextlib.aclosing(stream.answers()) as all_answers:
                async for answer in all_answers:
                    try:
                        self._door.session_of(request)
                    except PageRefused:
                        # A browser that may still come in connects again by itself; any other is told why it may not.
                        return
                    yield answer

        return Stream(answers)

    async def _overview(self) -> dict[str, Any]:
        """The parts of the first page by name; a part that fails shows its error, and hides no other."""
        names = [name for name in _PARTS if self._sources.has(QUESTIONS[name].source)]
        questions = {name: in_time(self._ask(QUESTIONS, name, Query({})), PART_SECONDS_MAX) for name in names}
        if self._decisions is not None:
            questions[DECISIONS] = in_time(self._counts(), PART_SECONDS_MAX)
        answers = await asyncio.gather(*questions.values(), return_exceptions=True)
        parts: dict[str, Any] = {}
        for name, answer in zip(questions, answers, strict=True):
            if isinstance(answer, PageRefused):
                parts[name] = {"error": str(answer)}
            elif isinstance(answer, Exception):
                parts[name] = {"error": str(mistake(answer))}
            elif isinstance(answer, BaseException):
                raise answer
            else:
                parts[name] = answer
        return parts

    async def _counts(self) -> dict[str, Any]:
        """The counts of the decisions and their chart, because the first page lists no decisions."""
        assert self._decisions is not None
        decisions = await self._decisions.now(Query({}))
        return {name: decisions[name] for name in ("counts", "history")}

    def _feed(self, name: str) -> tuple[DecisionFeed, Callable[[], dict[str, Any]]]:
        if name == CHAOS:
            if self._trial is None:
                raise PageRefused(404, "there is no trial: start the console with --trial DIR")
            assert self._decisions is not None, "a trial's broker tells its decisions"
            return self._decisions, self._trial.status
        if self._decisions is None:
            raise PageRefused(
                404, "the console does not know where the broker tells: start it with --decisions HOST:PORT"
            )
        return self._decisions, dict

    async def _take(self, area: str, name: str, request: Request) -> Response:
        """Handle a POST: a login, a logout or a change."""
        if area == "login":
            fields = Query(_fields(request.body))
            user, password = fields.text("user"), fields.text("password")
            session = await asyncio.to_thread(self._door.login, request, user, password)
            self._tell(f"{user} has logged in")
            return _with_cookie(self._door.set_cookie(session))
        if area == "logout":
            self._door.logout(request)
            return _with_cookie(self._door.no_cookie())
        session = self._door.check_change(request)
        if area != "do":
            raise PageRefused(405, "changes are sent to /do/...")
        fields = Query(_fields(request.body))
        # Also if nobody waits for the answer any more.
        outcome = f"error: {_UNKNOWN}"
        try:
            outcome = await in_time(self._ask(CHANGES, name, fields), ANSWER_SECONDS_MAX, f": {_UNKNOWN}")
        except Exception as error:
            outcome = f"error: {error}"
            raise
        finally:
            self._tell(_audit_line(session, request, name, fields, outcome))
        return json_response({"done": outcome})

    async def _ask(self, table: Mapping[str, Question], name: str, query: Query) -> Any:
        _check_known(name, table)
        try:
            return await self._sources.ask(table[name], query)
        except (LogError, ProtocolError) as error:
            raise PageRefused(502, str(error)) from None


def _audit_line(session: Session, request: Request, name: str, fields: Query, outcome: str) -> str:
    """When somebody has changed what, from where, and how that ended."""
    who = "a browser that was let in" if session.person is None else session.person.name
    asked = ", ".join(f"{field}={value!r}" for field, value in fields.without(ADDED).items())
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {who} from {request.peer}: {name}({asked}): {outcome}"


def _with_cookie(cookie: str) -> Response:
    answer = json_response({"done": "done"})
    return Response(answer.status, answer.content_type, answer.body, {"Set-Cookie": cookie})


def mistake(error: Exception) -> PageRefused:
    """The answer after an error of the console itself, which must affect only one page."""
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
    fields = {name: str(value) for name, value in values.items()}
    try:
        "".join(fields.values()).encode()
    except UnicodeEncodeError:
        raise PageRefused(400, "a change has whole characters, and no halves of them") from None
    return fields


def _asset(name: str) -> Response:
    if name == _CHARTS:
        return Response(200, "text/css; charset=utf-8", colours().encode())
    match = _ASSET_NAME.fullmatch(name)
    if match is None:
        raise PageRefused(404, "there is no such file")
    try:
        body = (_ASSETS / name).read_bytes()
    except OSError:
        raise PageRefused(404, "there is no such file") from None
    return Response(200, f"{_TYPES[match[1]]}; charset=utf-8", body)
