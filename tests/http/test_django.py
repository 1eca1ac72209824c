"""An answer goes out only when its commit is known, also where Django rolls back without a word."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import pytest
from applications import payments
from conftest_http import caller
from sqlalchemy import Engine, func, select
from sqlalchemy.exc import DBAPIError

from djangos import alias_of, model_on
from semel.http import AsgiIdempotency, Idempotency, WsgiIdempotency

View = Callable[[Any], Any]


@pytest.fixture
def alias(engine: Engine) -> Iterator[str]:
    with alias_of(engine) as name:
        yield name


def plain(alias: str) -> Any:
    """As an application writes it that does not know of ours."""
    from django.db import connections, transaction

    @contextlib.contextmanager
    def transactions() -> Iterator[Any]:
        with transaction.atomic(using=alias):
            yield connections[alias].connection

    return transactions


def ours(alias: str) -> Any:
    from semel.http.django import transactions

    return partial(transactions, alias)


def booked(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(payments)) or 0


@contextlib.contextmanager
def routed(view: View, path: str = "/payments") -> Iterator[None]:
    import django_shop
    from django.urls import clear_url_caches
    from django.urls import path as url_path

    patterns = list(django_shop.urlpatterns)
    django_shop.urlpatterns[:] = [url_path(path.lstrip("/"), view)]
    clear_url_caches()
    try:
        yield
    finally:
        django_shop.urlpatterns[:] = patterns
        clear_url_caches()


def post(idempotency: Idempotency, view: View, path: str = "/payments", *, signals: bool = True) -> tuple[str, bytes]:
    """Through the whole of Django, with its signals."""
    with routed(view, path):
        return _post(idempotency, path, signals)


def _post(idempotency: Idempotency, path: str, signals: bool) -> tuple[str, bytes]:
    from django.core.signals import request_started
    from django.core.wsgi import get_wsgi_application
    from django.db import close_old_connections

    started: list[str] = []
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": path, "SERVER_NAME": "shop", "SERVER_PORT": "80"}
    environ |= {"HTTP_IDEMPOTENCY_KEY": "k-1", "HTTP_X_CALLER": "anna", "wsgi.input": io.BytesIO()}  # type: ignore[dict-item]
    if not signals:
        request_started.disconnect(close_old_connections)
    try:
        app = WsgiIdempotency(get_wsgi_application(), idempotency)
        pieces = app(environ, lambda status, headers, exc_info=None: started.append(status))
        body = b"".join(pieces)
        close = getattr(pieces, "close", None)
        if close is not None:
            close()
    finally:
        request_started.connect(close_old_connections)
    return started[-1], body


def test_a_key_commits_with_the_orm_beside_all_of_djangos_signals(engine: Engine, alias: str) -> None:
    from django.http import HttpResponse

    def view(_request: Any) -> Any:
        payment.create(amount="5")
        executions.append(1)
        return HttpResponse("paid", status=201)

    executions: list[int] = []
    payment = model_on(alias)
    idempotency = Idempotency(ours(alias), scope=caller)
    assert [post(idempotency, view) for _ in range(3)] == [("201 Created", b"paid")] * 3
    assert (booked(engine), executions) == (1, [1])


@pytest.mark.parametrize("kind", [plain, ours])
def test_a_view_that_catches_an_error_of_the_database_answers_nothing_that_was_rolled_back(
    engine: Engine, alias: str, kind: Any
) -> None:
    """Django marks the transaction, and rolls back in its end without an error."""
    from django.db import IntegrityError
    from django.http import HttpResponse

    def view(_request: Any) -> Any:
        payment.create(amount="5")
        if not executions:
            executions.append(1)
            with contextlib.suppress(IntegrityError):
                payment.create(amount=None)
        return HttpResponse("paid", status=201)

    executions: list[int] = []
    payment = model_on(alias)
    idempotency = Idempotency(kind(alias), scope=caller)
    if engine.dialect.name == "sqlite":
        status, problem = post(idempotency, view, signals=kind is ours)
        assert (status[:3], json.loads(problem)["type"]) == ("500", "urn:semel:problem:transaction-ended")
    else:
        # PostgreSQL has undone the transaction by itself, and refuses the answer.
        with pytest.raises(DBAPIError):
            post(idempotency, view, signals=kind is ours)
    assert booked(engine) == 0
    for _ in range(2):
        assert post(idempotency, view, signals=kind is ours) == ("201 Created", b"paid")
    assert booked(engine) == 1


@pytest.mark.parametrize("kind", [plain, ours])
def test_a_step_that_was_rolled_back_without_a_word_is_not_finished(engine: Engine, alias: str, kind: Any) -> None:
    from django.db import connections
    from django.http import HttpResponse

    def view(request: Any) -> Any:
        with idempotency.key(request).step("book") as step:
            if step.first:
                step.connection()
                payment.create(amount="5")
                if not executions:
                    executions.append(1)
                    connections[alias].needs_rollback = True
        return HttpResponse("paid", status=201)

    executions: list[int] = []
    payment = model_on(alias)
    idempotency = Idempotency(kind(alias), scope=caller, steps=("/charges",))
    assert post(idempotency, view, "/charges")[0].startswith("500")
    assert booked(engine) == 0
    assert post(idempotency, view, "/charges") == ("201 Created", b"paid")
    assert booked(engine) == 1


def test_a_block_that_django_undoes_without_an_error_is_no_success(engine: Engine, alias: str) -> None:
    """As that of a view under ATOMIC_REQUESTS is undone, or under `@transaction.atomic`, which has caught an error."""
    from django.db import IntegrityError, connections, transaction
    from django.http import HttpResponse

    def view(_request: Any) -> Any:
        payment.create(amount="5")
        # A block of its own, and a savepoint that the view goes back to by itself, are what it means.
        with contextlib.suppress(IntegrityError), transaction.atomic(using=alias):
            payment.create(amount=None)
        savepoint = transaction.savepoint(using=alias)
        payment.create(amount="6")
        transaction.savepoint_rollback(savepoint, using=alias)
        if not executions:
            executions.append(1)
            with contextlib.suppress(IntegrityError), transaction.atomic(using=alias, savepoint=False):
                payment.create(amount=None)
        return HttpResponse("paid", status=201)

    executions: list[int] = []
    payment = model_on(alias)
    idempotency = Idempotency(ours(alias), scope=caller)
    connections.settings[alias]["ATOMIC_REQUESTS"] = True
    status, problem = post(idempotency, view)
    assert (status[:3], json.loads(problem)["type"]) == ("500", "urn:semel:problem:transaction-ended")
    assert booked(engine) == 0
    for _ in range(2):
        assert post(idempotency, view) == ("201 Created", b"paid")
    assert booked(engine) == 1


def test_a_function_that_rolls_back_instead_of_committing_is_found_out(engine: Engine, tmp_path: Any) -> None:
    """Whatever the framework."""
    if engine.dialect.name != "sqlite":
        pytest.skip("the function is the same")

    @contextlib.contextmanager
    def transactions() -> Iterator[Any]:
        with contextlib.closing(sqlite3.connect(engine.url.database or "", isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT" if is_mended else "ROLLBACK")

    def app(environ: Any, start_response: Any) -> list[bytes]:
        idempotency.connection(environ).execute("INSERT INTO payments (amount) VALUES ('5')")
        start_response("201 Created", [])
        return [b"paid"]

    def ask() -> bytes:
        environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "HTTP_IDEMPOTENCY_KEY": "k", "HTTP_X_CALLER": "anna"}
        return b"".join(WsgiIdempotency(app, idempotency)(environ, lambda *_: print))

    is_mended = False
    idempotency = Idempotency(transactions, scope=caller)
    assert b"POST /: the transaction of " in (problem := ask())
    assert b"rolled back without an error" in problem
    is_mended = True
    assert [ask(), ask(), booked(engine)] == [b"paid", b"paid", 1]


def test_a_transaction_of_another_thread_than_the_views_is_refused_under_asgi(engine: Engine, alias: str) -> None:
    """Django has a connection for each thread: the view's work would commit, whatever becomes of the key."""
    from django.core.asgi import get_asgi_application
    from django.http import HttpResponse

    def view(_request: Any) -> Any:
        payment.create(amount="5")
        return HttpResponse("refused", status=422)

    async def ask() -> None:
        app: Any = AsgiIdempotency(get_asgi_application(), Idempotency(ours(alias), scope=caller))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://shop") as client:
            await client.post("/payments", headers={"Idempotency-Key": "k-1", "X-Caller": "anna"})

    payment = model_on(alias)
    with routed(view), pytest.raises(TypeError, match="WsgiIdempotency"):
        asyncio.run(ask())
    assert booked(engine) == 0


def test_a_view_that_works_beside_the_transaction_of_its_key_is_told_of(
    engine: Engine, alias: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The ORM needs not be handed the connection: semel asks Django whether it has used it."""
    from django.http import HttpResponse

    def with_the_orm(_request: Any) -> Any:
        payment.create(amount="5")
        return HttpResponse("paid", status=201)

    def beside(_request: Any) -> Any:
        return HttpResponse("paid", status=201)

    payment = model_on(alias)
    for view, strict, status, told in (
        (with_the_orm, False, "201 Created", False),
        (with_the_orm, True, "201 Created", False),
        (beside, False, "201 Created", True),
        (beside, True, "500 Internal Server Error", True),
    ):
        caplog.clear()
        idempotency = Idempotency(ours(alias), scope=lambda _, whose=f"{view} {strict}": whose, strict=strict)
        assert post(idempotency, view)[0] == status
        assert bool([one for one in caplog.records if "POST /payments" in one.getMessage()]) is told


def test_a_view_that_is_a_coroutine_commits_with_its_key_under_wsgi(engine: Engine, alias: str) -> None:
    from django.http import HttpResponse

    async def view(_request: Any) -> Any:
        await payment.acreate(amount="5")
        return HttpResponse("refused" if refuses else "paid", status=422 if refuses else 201)

    payment = model_on(alias)
    for refuses, count in ((True, 0), (False, 1), (False, 1)):
        idempotency = Idempotency(ours(alias), scope=lambda _, whose=str(refuses): whose)
        assert post(idempotency, view)[1] == (b"refused" if refuses else b"paid")
        assert booked(engine) == count
