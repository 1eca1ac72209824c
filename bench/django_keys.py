"""What a key costs in Django: its middleware beside a middleware written by hand that does the same, in one process.

Run as `python bench/django_keys.py [--postgresql] [--profile]`; by default it is a file of SQLite. Both keep key,
fingerprint and answer in the transaction of the view; the one by hand has no other case than a first request and its
replay. Time of the CPU is that of this process alone. It must never count an answer that is not the one asked for.
"""

# ruff: noqa: E402

import argparse
import contextlib
import cProfile
import hashlib
import json
import pstats
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from django.core.handlers.base import BaseHandler

from djangos import alias_of, configure

configure()

from django.db import connections, transaction
from django.http import HttpResponse, JsonResponse
from django.test import RequestFactory, override_settings
from django.urls import path

from semel import schema
from semel.database import engine_of
from semel.http import Idempotency
from semel.http.django import transactions

TURNS: Final = 12
REQUESTS: Final = 150
KEYED: Final = "semel.http.django.middleware.IdempotencyMiddleware"
BY_HAND: Final = f"{__name__}.by_hand"
OURS: Any = None
ALIAS = ""
TABLE: Final = "CREATE TABLE payments (number {} PRIMARY KEY, amount INTEGER)"
INSERT: Final = (
    "INSERT INTO semel_http_keys (scope, key, fingerprint, token, lease_until_ms, expires_ms) "
    "VALUES (%s, %s, %s, %s, 9223372036854775807, %s) ON CONFLICT DO NOTHING"
)
KEEP: Final = (
    "UPDATE semel_http_keys SET status = %s, headers = %s, body = %s WHERE scope = %s AND key = %s AND token = %s"
)
FIND: Final = "SELECT fingerprint, status, headers, body FROM semel_http_keys WHERE scope = %s AND key = %s"


def pay(request: Any) -> Any:
    with connections[ALIAS].cursor() as cursor:
        cursor.execute("INSERT INTO payments (amount) VALUES (%s)", [json.loads(request.body)["amount"]])
    return JsonResponse({"payment": "made"}, status=201)


urlpatterns = [path("payments", pay)]


def by_hand(get_response: Any) -> Any:
    def middleware(request: Any) -> Any:
        scope, key = request.headers["X-Api-Key"], request.headers["Idempotency-Key"]
        what = (request.method, request.path, request.META["QUERY_STRING"], json.loads(request.body))
        fingerprint = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()
        token = time.time_ns() // 1_000_000
        with transaction.atomic(using=ALIAS, durable=True), connections[ALIAS].cursor() as cursor:
            cursor.execute(INSERT, [scope, key, fingerprint, token, token + 86_400_000])
            if not cursor.rowcount:
                cursor.execute(FIND, [scope, key])
                found, status, headers, body = cursor.fetchone()
                assert found == fingerprint
                response = HttpResponse(bytes(body), status=status, headers=dict(json.loads(headers)))
                response.headers["Idempotency-Replayed"] = "true"
                return response
            response = get_response(request)
            kept = json.dumps(list(response.items()))
            cursor.execute(KEEP, [response.status_code, kept, response.content, scope, key, token])
        return response

    return middleware


def handler_with(*middlewares: str) -> Any:
    with override_settings(MIDDLEWARE=list(middlewares), SEMEL={"IDEMPOTENCY": f"{__name__}.OURS"}):
        handler = BaseHandler()
        handler.load_middleware()
    return handler.get_response


def asked(handler: Any, key: str, *, replayed: bool) -> tuple[float, float]:
    """The microseconds that it took, and those of the CPU."""
    headers = {"Idempotency-Key": key, "X-Api-Key": "anna"}
    request = RequestFactory().post("/payments", b'{"amount": 5}', "application/json", headers=headers)
    began, cpu = time.perf_counter(), time.process_time()
    response = handler(request)
    took = (time.perf_counter() - began) * 1e6, (time.process_time() - cpu) * 1e6
    if response.status_code != 201 or ("Idempotency-Replayed" in response.headers) is not replayed:
        raise AssertionError(f"{response.status_code}: {response.content!r}")
    return took


@contextlib.contextmanager
def database(*, is_postgresql: bool) -> Iterator[Any]:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        url = f"sqlite:///{folder}/keys.db"
        if is_postgresql:
            from semel.testing.postgres import PostgresServer

            server = PostgresServer()
            stack.callback(server.stop)
            url = server.new_database()
        engine = engine_of(url)
        stack.callback(engine.dispose)
        schema.make(engine, "http")
        with engine.begin() as connection:
            connection.exec_driver_sql(TABLE.format("SERIAL" if is_postgresql else "INTEGER"))
        yield engine


def main() -> None:
    global OURS, ALIAS
    parser = argparse.ArgumentParser()
    parser.add_argument("--postgresql", action="store_true", help="a server of its own, in place of a file of SQLite")
    parser.add_argument("--profile", action="store_true", help="show where the middleware spends its time")
    options = parser.parse_args()
    with (
        database(is_postgresql=options.postgresql) as engine,
        alias_of(engine) as ALIAS,
        override_settings(ROOT_URLCONF=__name__),
    ):
        OURS = Idempotency(partial(transactions, ALIAS), scope=lambda request: request.headers["x-api-key"])
        sides = {"by hand": handler_with(BY_HAND), "semel": handler_with(KEYED)}
        if options.profile:
            profile(sides["semel"])
        took_us: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for turn in range(TURNS + 1):
            for side in sorted(sides, reverse=bool(turn % 2)):
                keys = [str(uuid.uuid4()) for _ in range(REQUESTS)]
                for what in ("first", "replay"):
                    times = [asked(sides[side], key, replayed=what == "replay") for key in keys]
                    # The first turn is for both to become warm.
                    took_us[side, what] += times if turn else []
        for what in ("first", "replay"):
            for number, clock in enumerate(("clock", "CPU")):
                hand, ours = (median(one[number] for one in took_us[side, what]) for side in ("by hand", "semel"))
                name = f"{engine.dialect.name}, {what}, {clock}"
                print(f"{name}: by hand {hand:.0f} us, semel {ours:.0f} us, {ours / hand:.2f} x")


def profile(handler: Any) -> None:
    with cProfile.Profile() as profiled:
        for _ in range(500):
            asked(handler, str(uuid.uuid4()), replayed=False)
    pstats.Stats(profiled).sort_stats("cumulative").print_stats(70)


if __name__ == "__main__":
    sys.modules.setdefault("django_keys", sys.modules[__name__])
    main()
