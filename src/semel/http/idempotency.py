"""The configuration of the HTTP keys: the database, how to find the caller, which requests need a key, and the limits.

It decides what a request needs, and what happens to an effect and its answer. Both middlewares use it. It must never
use a connection.
"""

import asyncio
import inspect
import logging
import sys
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from typing import Any, Final, TypeAlias

from semel.database.clock import Clock, now_ms
from semel.database.effects import listen
from semel.database.errors import one_line
from semel.database.kinds import check_callable, check_kind
from semel.database.refusals import TransactionBroken
from semel.http.answers import (
    BODY_TOO_LARGE,
    CALLER_UNKNOWN,
    CONNECTION_UNUSED,
    DATABASE_AWAY,
    KEY_MALFORMED,
    KEY_MISSING,
    STILL_RUNNING,
    TRANSACTION_ENDED,
    WRITTEN_ELSEWHERE,
    Answer,
    Commits,
    Fate,
    Headers,
    Keeps,
    RequestRefused,
    commits_success,
    fate_of,
)
from semel.http.callers import checked_caller
from semel.http.claims import NO_LEASE, Term, name_of
from semel.http.places import Request, place_of
from semel.http.requests import KEY_HEADER, KeyMalformed, fingerprint, read_key
from semel.http.unkeyed import Unkeyed, reader_of
from semel.steps.records import Name
from semel.steps.slots import Slots
from semel.steps.transactions import (
    AsyncDatabase,
    AsyncTransaction,
    Database,
    LoopTransaction,
    NotCommitted,
    ThreadTransaction,
    Transaction,
    begin_of,
    check_database,
    is_asynchronous,
    is_of_one_thread,
    may_end_silently,
    transactions_max,
)

# A request that is repeated later than this counts as a new one. Payment interfaces usually promise a day, which is
# longer than any client retries.
RESULT_TTL_MS: Final = 24 * 60 * 60 * 1000
# A request whose process has died loses its key after this time; a running one renews its lease three times in it.
LEASE_MS: Final = 30_000
# A body is held in memory, and an answer in a row, so neither should be a file.
REQUEST_BYTES_MAX: Final = 1024 * 1024
ANSWER_BYTES_MAX: Final = 1024 * 1024
# The fingerprint of a larger body is made in a thread: that of a document of this size takes about a millisecond.
FINGERPRINT_HERE_BYTES_MAX: Final = 16 * 1024
# Each path of an application is told of once; paths with ids in them would fill the memory.
TOLD_PATHS_MAX: Final = 1000

logger = logging.getLogger("semel.http")

# The names in an ASGI scope or a WSGI environment under which a request carries the holder of its key, or what it works
# in without one.
CONTEXT: Final = "semel.http"
UNKEYED: Final = "semel.http.unkeyed"


Scope: TypeAlias = Callable[[Request], str | Awaitable[str | None] | None]


class Idempotency:
    """The configuration. `scope` identifies the caller: the same key of two callers is two keys."""

    def __init__(
        self,
        database: Database | AsyncDatabase,
        *,
        scope: Scope,
        methods: Sequence[str] = ("POST", "PATCH"),
        paths: Sequence[str] = ("*",),
        required: Sequence[str] = ("*",),
        steps: Sequence[str] = (),
        commits: Commits = commits_success,
        keeps: Keeps | None = None,
        lease_ms: int = LEASE_MS,
        result_ttl_ms: int = RESULT_TTL_MS,
        request_bytes_max: int = REQUEST_BYTES_MAX,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
        strict: bool = False,
        clock: Clock = now_ms,
    ) -> None:
        listen()
        check_database(database)
        check_callable("scope", scope, may_wait=True)
        for argument, function in (("commits", commits), ("clock", clock)):
            check_callable(argument, function)
        if keeps is not None:
            check_callable("keeps", keeps)
        self._methods = frozenset(method.upper() for method in _patterns("methods", methods))
        self._paths = _patterns("paths", paths)
        self._required = _patterns("required", required)
        self._steps = _patterns("steps", steps)
        self._commits = commits
        self._keeps = keeps
        self.lease_ms = _positive("lease_ms", lease_ms)
        self.result_ttl_ms = _positive("result_ttl_ms", result_ttl_ms)
        self.request_bytes_max = _positive("request_bytes_max", request_bytes_max)
        self.answer_bytes_max = _positive("answer_bytes_max", answer_bytes_max)
        self.strict = strict
        self._told: set[str] = set()
        self._has_told_of_stranger = False
        self.clock = clock
        self.database = database
        self.is_asynchronous = is_asynchronous(database)
        self._is_of_one_thread = is_of_one_thread(database)
        self.confirms = may_end_silently(database)
        self._scope = scope
        self._begin: Any = begin_of(database)
        self._session: Callable[[Any], Any] | None = None
        self._new_reader: Callable[[], Any] | None = reader_of(database)
        self._slots = Slots(transactions_max(database), one_loop=self.is_asynchronous)
        self._threads = ThreadPoolExecutor(transactions_max(database), "semel-http")
        # One at a time: while a fingerprint is made, the loop gets its turn only now and then.
        self._fingerprints = ThreadPoolExecutor(1, "semel-http-fingerprint")
        self._running: dict[Name, object] = {}

    def connection(self, request: Any) -> Any:
        """The connection or session of this request: its changes commit with the answer, or not at all."""
        return context_of(request).connection

    @property
    def session(self) -> Callable[[Any], Any]:
        """The connection or session of any request: `Depends(idempotency.session)` in FastAPI; `session(request)` in
        others, and `await session(request)` on an asynchronous database. With a key it is that of `connection`. Without
        one, a GET only reads, and what other methods do commits before the answer leaves, if its status says so."""
        if self._session is None:
            self._session = self._dependency()
        return self._session

    def _dependency(self) -> Callable[[Any], Any]:
        def session(request: Any) -> Any:
            work = _work_of(request)
            return work.session() if isinstance(work, Unkeyed) else work.connection

        async def session_async(request: Any) -> Any:
            work = _work_of(request)
            return await work.session_async() if isinstance(work, Unkeyed) else work.connection

        dependency = session_async if self.is_asynchronous else session
        # FastAPI hands a request over where the annotation says so.
        starlette = sys.modules.get("starlette.requests")
        dependency.__annotations__ = {} if starlette is None else {"request": starlette.Request}
        return dependency

    def key(self, request: Any) -> Any:
        """The key of a request with steps: `with key.step("charge") as step:`, or `async with` on an AsyncEngine."""
        return context_of(request).steps

    def concerns(self, method: str, path: str) -> bool:
        return method in self._methods and _matches(path, self._paths)

    def requires(self, path: str) -> bool:
        return _matches(path, self._required)

    def has_steps(self, path: str) -> bool:
        return _matches(path, self._steps)

    async def keyed_async(self, request: Request, fields: Sequence[str]) -> Name | None:
        """The caller and key of the request; None if it has no key and needs none."""
        key = self._key(request, fields)
        if key is None:
            return None
        caller = self._scope(request)
        return self._named(await caller if inspect.isawaitable(caller) else caller, key, request)

    def keyed(self, request: Request, fields: Sequence[str]) -> Name | None:
        key = self._key(request, fields)
        if key is None:
            return None
        return self._named(self._scope(request), key, request)

    def fingerprint(self, request: Request, path: bytes, query: bytes, body: bytes) -> str:
        return fingerprint(request.method, path, query, request.headers.get("content-type", ""), body)

    async def fingerprint_async(self, request: Request, path: bytes, query: bytes, body: bytes) -> str:
        """`fingerprint` without holding up the loop."""
        if len(body) <= FINGERPRINT_HERE_BYTES_MAX:
            return self.fingerprint(request, path, query, body)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._fingerprints, self.fingerprint, request, path, query, body)

    @property
    def term(self) -> Term:
        """How long a key counts that a transaction holds."""
        return Term(self.result_ttl_ms, NO_LEASE, self._given_now_ms)

    @property
    def lease_term(self) -> Term:
        """How long a key counts that a lease holds."""
        return Term(self.result_ttl_ms, self.lease_ms, self._given_now_ms)

    @property
    def _given_now_ms(self) -> int | None:
        """In place of the machine's own clock, the database's counts: the clocks of two machines may differ by more
        than a lease, or than a key is kept, and a machine whose clock is a day ahead would find every key expired, and
        execute requests again."""
        return None if self.clock is now_ms else self.clock()

    def fate(self, status: int, headers: Headers) -> Fate:
        return fate_of(status, headers, self._commits, self._keeps)

    def is_used_by_others(self, transaction: Transaction | LoopTransaction) -> bool:
        """Whether the framework works in the transaction without being handed it. If nobody knows, it may."""
        is_used = transaction.is_used
        return self.confirms and not self.strict if is_used is None else is_used

    def tell_of_unasked(self, request: Request, status: int) -> None:
        """Tell of a handler that has not asked for what commits with the key: what it has written elsewhere may be lost
        although its answer is replayed, or be there although it was executed again."""
        advice, path = self._way_of(request), place_of(request)
        if self.strict:
            logger.error("%s answered %d and was not kept: its handler did not ask for %s", path, status, advice)
            detail = (
                f"The handler of {path} did not ask for {advice}. The key stays free; what it wrote elsewhere may be "
                "there."
            )
            raise RequestRefused(CONNECTION_UNUSED, detail)
        if path not in self._told and len(self._told) < TOLD_PATHS_MAX:
            self._told.add(path)
            logger.warning(
                "%s answered %d under an Idempotency-Key, and its handler did not ask for %s: what it has written "
                "elsewhere does not commit with the key and the answer. strict=True refuses such an answer",
                *(path, status, advice),
            )

    def _way_of(self, request: Request) -> str:
        """How a handler of this framework asks for what commits with the key."""
        if self.has_steps(request.path):
            return "idempotency.key(request)"
        fastapi = sys.modules.get("fastapi")
        is_fastapi = fastapi is not None and isinstance(request.native.get("app"), fastapi.FastAPI)
        return "Depends(idempotency.session)" if is_fastapi else "idempotency.session(request)"

    def tell_of_refusal(self, request: Request, error: Exception) -> Answer:
        """Tell of a handler that has written beside its key, or has ended its transaction, and the answer that its
        client gets."""
        place = place_of(request)
        logger.error("%s was refused, and its key stays free: %s", place, error)
        if isinstance(error, TransactionBroken | NotCommitted):
            return RequestRefused(TRANSACTION_ENDED, f"{place}: {error}.").answer
        remedy = getattr(error, "remedy", "") or f"take {self._way_of(request)} in its handler for all that it writes"
        detail = (
            f"{place}: nothing was committed with the key, which stays free. So {remedy}; the log of the service says "
            "more."
        )
        return RequestRefused(WRITTEN_ELSEWHERE, detail).answer

    def tell_of_absence(self, request: Request, error: Exception) -> Answer:
        """Tell of a database that could not be asked for the key, and the answer that the client gets."""
        kind = type(error).__name__
        logger.warning(
            "%s was not executed, its key could not be claimed: %s: %s", place_of(request), kind, one_line(error)
        )
        return RequestRefused(DATABASE_AWAY, "Try again later.", 1).answer

    def tell_of_late_effect(self, request: Request, error: Exception) -> None:
        """Tell of what was written beside a key after the answer: nobody can take that back."""
        logger.error("%s: after its answer a change was refused, and so is missing: %s", place_of(request), error)

    def enter(self, name: Name, owner: object) -> None:
        """Refuse at once a request that already runs in this process. On SQLite it would otherwise wait for the other
        one to end."""
        if self._running.setdefault(name, owner) is not owner:
            raise RequestRefused(STILL_RUNNING, "It is still running; ask again for its answer.", 1)

    def leave(self, name: Name, owner: object) -> None:
        if self._running.get(name) is owner:
            del self._running[name]

    def check_threads(self) -> None:
        """Refuse a database with which a synchronous application cannot work."""
        if self.is_asynchronous:
            raise TypeError(
                "the database is an asynchronous one, and this application is synchronous: give it an Engine"
            )
        check_callable("scope", self._scope)

    def check_loop(self) -> None:
        """Refuse a database with which an asynchronous application cannot work."""
        if self._is_of_one_thread:
            raise TypeError(
                "the database is a transaction of one thread, and an asynchronous application works in others, "
                "where nothing would commit with the key: take WsgiIdempotency around the WSGI application"
            )

    def transaction(self) -> Transaction:
        return Transaction(self._begin)

    def loop_transaction(self) -> LoopTransaction:
        if self.is_asynchronous:
            return AsyncTransaction(self._begin, self._slots)
        return ThreadTransaction(self._begin, self._slots, self._threads)

    def unkeyed(self, method: str) -> Unkeyed:
        return Unkeyed(method, self._new_reader, self.transaction)

    def unkeyed_in_loop(self, method: str) -> Unkeyed:
        return Unkeyed(method, self._new_reader, self.loop_transaction).in_loop()

    def check_request_bytes(self, size: int) -> None:
        if size > self.request_bytes_max:
            raise RequestRefused(BODY_TOO_LARGE, f"It may have at most {self.request_bytes_max} bytes.")

    def _key(self, request: Request, fields: Sequence[str]) -> str | None:
        try:
            key = read_key(fields)
        except KeyMalformed as error:
            raise RequestRefused(KEY_MALFORMED, f"{error}.") from None
        if key is None and self.requires(request.path):
            raise RequestRefused(KEY_MISSING, f"Send a header {KEY_HEADER} with a name of your choice, such as a UUID.")
        return key

    def _named(self, returned: object, key: str, request: Request) -> Name:
        caller = checked_caller(returned, request.headers, request.native)
        if caller is not None:
            return name_of(caller, key)
        if not self._has_told_of_stranger:
            self._has_told_of_stranger = True
            logger.warning(
                "%s was refused: scope has returned %r, as it should for a stranger alone. For others it has to "
                "return the name under which the application has authenticated them",
                *(place_of(request), returned),
            )
        raise RequestRefused(CALLER_UNKNOWN, "Keys belong to their callers, and this request does not say who calls.")


def _matches(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def _patterns(name: str, patterns: Sequence[str]) -> tuple[str, ...]:
    if isinstance(patterns, str):
        raise TypeError(f"{name} is a sequence of patterns: say {name}=({patterns!r},)")
    for pattern in patterns:
        check_kind(f"each of {name}", pattern, str)
    return tuple(patterns)


def _positive(name: str, value: int) -> int:
    check_kind(name, value, int)
    if value <= 0:
        raise ValueError(f"{name} is {value}, and has to be more than 0")
    return value


def context_of(request: Any) -> Any:
    held = _carried(request, CONTEXT)
    if held is None:
        raise NoKey
    return held


def _work_of(request: Any) -> Any:
    work = _carried(request, CONTEXT) or _carried(request, UNKEYED)
    if work is None:
        raise NoMiddleware
    return work


def _carried(request: Any, name: str) -> Any:
    for native in (request, *(getattr(request, each, None) for each in ("scope", "environ", "META"))):
        if isinstance(native, MutableMapping) and name in native:
            return native[name]
    return None


class NoKey(RuntimeError):
    """This request has no key, so semel has opened no transaction for it."""

    def __init__(self) -> None:
        super().__init__(
            "this request carries no Idempotency-Key that the middleware looks at, so there is no transaction: see "
            "`methods`, `paths` and `required`. For requests with a key and without, take idempotency.session"
        )


class NoMiddleware(RuntimeError):
    """Nobody would end the transaction of this request."""

    def __init__(self) -> None:
        super().__init__(
            "this request has not passed the middleware of the keys, which ends its transaction: put AsgiIdempotency "
            "or WsgiIdempotency around the application"
        )
