"""The measure of HTTP keys: one application with the middleware beside itself without it, over real HTTP. Both do the
same effect in the same kind of transaction; it must never count an answer that is not the one asked for."""

from __future__ import annotations

import socket
import sys
import time
import uuid
from collections import defaultdict
from itertools import product
from pathlib import Path
from statistics import median
from typing import ClassVar, Final

from sqlalchemy import func, insert, select

from bench import shop
from bench.clients import LoadFailed
from bench.databases import TITLES, Databases
from bench.measures.measure import Contenders, Figures, Kind, Measure, Row, Scale, Target
from bench.peers.process import Broker
from bench.peers.semel import Semel
from bench.sides import Program, take_turns
from semel import http
from semel.database import engine_of
from semel.testing.ports import free_port

APPLICATIONS: Final = {
    "fastapi_threads": "FastAPI, Engine",
    "fastapi_async": "FastAPI, AsyncEngine",
    "flask": "Flask",
}
ACCOUNT: Final = 1
AMOUNT: Final = 950
ANSWER_BYTES_MAX: Final = 65536
ANSWER_SECONDS_MAX: Final = 30.0
TWO_STATEMENTS: Final = (
    "the payment alone is two statements and a commit. With a key there are two more statements in that transaction, "
    "one that claims the key and one that keeps the answer, and the more one statement costs, the higher is the ratio."
)
# With PostgreSQL the ratio was 1.35 x when these statements did nothing, and 1.20 x when they also stayed in the loop.
TWO_THREADS: Final = " And as the event loop may not wait for a database, each of the two goes to a thread and back."


class Http(Measure):
    """What a request takes, p50, of one client that sends one after another to an application that books a payment: a
    balance goes down and a row is added, in one transaction with fsync. First requests have a key of their own each:
    their answer is kept in that transaction, and replays get it again. The peer is the same application without the
    middleware. FastAPI under uvicorn, where the connection stays, with a handler in a thread on a synchronous engine
    (psycopg, sqlite3) and with a coroutine on an asynchronous one (asyncpg, aiosqlite); Flask under the server of
    `flask run`, where each request has a connection of its own, that is made before the clock runs. Each application is
    a process, and both sides take turns in one database."""

    name = "http"
    contenders: ClassVar[Contenders] = {"semel": Semel}
    rows = tuple(
        Row.beside(
            f"HTTP, {application}, {title}: {what}; without keys, p50 us",
            f"{kind}_{database}_{metric}",
            f"{kind}_{database}_bare",
            target,
            reason=TWO_STATEMENTS + (TWO_THREADS if kind == "fastapi_threads" else ""),
        )
        for kind, application in APPLICATIONS.items()
        for database, title in TITLES.items()
        for what, metric, target in (
            ("a first request", "first", Target(Kind.RATIO_AT_MOST, 1.4)),
            ("a replay", "replay", Target(Kind.EXCESS_AT_MOST, 1000)),
        )
    )

    def run(self, broker: Broker, scale: Scale) -> Figures:
        """The broker stays where it is: keys need none."""
        figures = {}
        with Databases() as databases:
            for kind, database in product(APPLICATIONS, TITLES):
                found = requests_took_us(kind, databases.new(database), scale.http_turns, scale.http_requests)
                figures |= {f"{kind}_{database}_{what}": took_us for what, took_us in found.items()}
        return figures


def requests_took_us(kind: str, url: str, turns: int, requests: int) -> dict[str, float]:
    """The median of microseconds by what was asked: without keys, first requests, replays."""
    engine = engine_of(url)
    shop.tables.create_all(engine)
    http.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(shop.accounts), {"id": ACCOUNT, "balance": 0})
    took_us: dict[str, list[float]] = defaultdict(list)
    with shop_process(kind, url) as bare, shop_process(kind, url, "keys") as keyed:
        client_of_bare, client = Client(bare.port), Client(keyed.port)
        # The first turn is for both to become warm.
        for turn, side in take_turns(["bare", "keyed"], turns + 1):
            keys = [str(uuid.uuid4()) for _ in range(requests)]
            if side == "bare":
                found = {"bare": [client_of_bare.pay(key) for key in keys]}
            else:
                found = {"first": [client.pay(key) for key in keys]}
                found["replay"] = [client.pay(key, replayed=True) for key in keys]
            if turn:
                for what, times in found.items():
                    took_us[what] += times
        client_of_bare.close()
        client.close()
    with engine.connect() as connection:
        booked = connection.scalar(select(func.count()).select_from(shop.payments))
        balance = connection.scalar(select(shop.accounts.c.balance))
    engine.dispose()
    asked = 2 * (turns + 1) * requests
    if (booked, balance) != (asked, -AMOUNT * asked):
        raise LoadFailed(f"{kind}: of {asked} payments {booked} were booked, and the balance is {balance}")
    return {what: median(times) for what, times in took_us.items()}


def shop_process(kind: str, url: str, *options: str) -> Program:
    """The application as a process of its own."""
    port = free_port()
    return Program("shop", [sys.executable, str(Path(shop.__file__)), kind, url, str(port), *options], port=port)


class Client:
    """As cheap as a client can be, so that its own time weighs little: one socket, and no library."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connect()

    def _connect(self) -> None:
        self._socket = socket.create_connection((shop.HOST, self._port), ANSWER_SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def pay(self, key: str, *, replayed: bool = False) -> float:
        """How many microseconds it took until the answer was there."""
        body = b'{"account": %d, "amount": %d}' % (ACCOUNT, AMOUNT)
        head = (
            f"POST {shop.PATH} HTTP/1.1\r\nHost: shop\r\n{shop.CALLER_HEADER}: anna\r\nIdempotency-Key: {key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        request = head.encode() + body
        began = time.perf_counter()
        self._socket.sendall(request)
        head, answer = self._answer()
        took_us = (time.perf_counter() - began) * 1e6
        if not head.startswith(b"http/1.1 201 ") or (b"idempotency-replayed" in head) is not replayed:
            raise LoadFailed(f"a payment was answered with {head.decode()!r} {answer.decode()!r}")
        if b"connection: close" in head:
            self.close()
            self._connect()
        return took_us

    def _answer(self) -> tuple[bytes, bytes]:
        """Its head, in small letters, and its body."""
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._receive()
        head, _, body = received.partition(b"\r\n\r\n")
        head = head.lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        while len(body) < length:
            body += self._receive()
        return head, body

    def _receive(self) -> bytes:
        piece = self._socket.recv(ANSWER_BYTES_MAX)
        if not piece:
            raise LoadFailed("the application closed the connection")
        return piece

    def close(self) -> None:
        self._socket.close()
