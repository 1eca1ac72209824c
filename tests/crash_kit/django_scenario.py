"""A Django project, killed: an order by HTTP with a key, its message, and the consumer that bills it, by the ORM.

Request, relay and consumer run one after the other in one life, each on Django's own connection but the relay. A client
repeats its request until it has the answer.
"""

from __future__ import annotations

import contextlib
import json
from functools import partial
from typing import Any, Final

from sqlalchemy import Column, Integer, MetaData, String, Table, delete, select

from committed_records import make_topic
from crash_kit.crashing import counted, points
from crash_kit.survey import Place
from djangos import alias_of, configure, model_on
from semel import outbox, schema
from semel.database import engine_of

NAME = "django"
_TABLES = MetaData()
_EFFECTS: Final = [
    Table(name, _TABLES, Column("id", Integer, primary_key=True), Column("label", String, nullable=False))
    for name in ("django_orders", "django_invoices")
]
_CLIENT: Final = {"reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 20, "linger.ms": 0, "log_level": 0}
# Looks for a record after which a consumer that gets none is taken to have come too late: its rival has done all.
_LOOKS_MAX: Final = 100

configure()


def prepare(place: Place) -> None:
    engine = engine_of(place.url)
    schema.make(engine)
    _TABLES.create_all(engine)
    with engine.begin() as connection:
        for table in outbox.metadata.sorted_tables:
            connection.execute(delete(table))
    engine.dispose()
    make_topic(place.bootstrap, place.label)


def work(place: Place) -> None:
    from django.db import connections

    _count_calls_of_django()
    engine = engine_of(place.url)
    with alias_of(engine) as alias:
        connections[alias].execute_wrappers.append(_counted_statement)
        answers = [_ordered(place, alias) for _ in range(2)]
        assert answers[0] == answers[1], f"the client got {answers}"
        relay = outbox.Relay(engine, {"bootstrap.servers": place.bootstrap, **_CLIENT})
        with contextlib.suppress(outbox.RelayFenced):
            relay.drain()
        _bill(place, alias)
    engine.dispose()


def audit(place: Place) -> None:
    engine = engine_of(place.url)
    with engine.connect() as connection:
        for table in _EFFECTS:
            found = list(connection.scalars(select(table.c.label).where(table.c.label == place.label)))
            assert found == [place.label], f"{table.name} has {found}"
    engine.dispose()


def _ordered(place: Place, alias: str) -> Any:
    from django.http import JsonResponse
    from django.test import RequestFactory, override_settings

    from semel.django import outbox as of_django
    from semel.http import Idempotency
    from semel.http.django import transactions
    from semel.http.django.middleware import IdempotencyMiddleware

    def view(_request: Any) -> Any:
        order = orders.create(label=place.label)
        of_django.add(place.label, key=place.label, value=place.label, using=alias)
        return JsonResponse({"order": order.pk}, status=201)

    orders = model_on(alias, "django_orders", "label")
    global IDEMPOTENCY
    IDEMPOTENCY = Idempotency(partial(transactions, alias), scope=lambda _: place.label)
    with override_settings(SEMEL={"IDEMPOTENCY": f"{__name__}.IDEMPOTENCY"}):
        middleware = IdempotencyMiddleware(view)
    response = middleware(RequestFactory().post("/orders", headers={"Idempotency-Key": "k-1"}))
    return json.loads(response.content) if response.status_code == 201 else response.content


def _bill(place: Place, alias: str) -> None:
    from semel.django.inbox import Handler, Message
    from semel.inbox import LoopFailed

    looks = 0

    def identity(message: Message) -> str:
        handler.inbox.stop()
        return str(message.value, "utf-8")

    def clock() -> int:
        nonlocal looks
        looks += 1
        if looks > _LOOKS_MAX:
            handler.inbox.stop()
        return 1_770_000_000_000

    invoices = model_on(alias, "django_invoices", "label")
    options = {"consumer": place.label, "identity": identity, "clock": clock}
    handler = Handler(lambda _: invoices.create(label=place.label), [place.label], alias, options)
    with contextlib.suppress(LoopFailed):
        handler.run({"bootstrap.servers": place.bootstrap, "group.instance.id": "consumer", "log_level": 0})


IDEMPOTENCY: Any = None


def _counted_statement(execute: Any, statement: Any, parameters: Any, many: bool, context: Any) -> Any:
    words = " ".join(str(statement).split()[:3])
    return points.around(f"Django: {words}", lambda: execute(statement, parameters, many, context))


def _count_calls_of_django() -> None:
    from django.db.backends.base.base import BaseDatabaseWrapper

    for name in ("_commit", "_rollback"):
        setattr(BaseDatabaseWrapper, name, counted(f"Django: {name}", getattr(BaseDatabaseWrapper, name)))
