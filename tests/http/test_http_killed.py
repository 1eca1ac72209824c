"""A real server is killed in the middle of requests and started again: each effect is there once."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx
from applications import payments
from sqlalchemy import Engine, select

HERE = Path(__file__).parent


@dataclass
class Server:
    process: subprocess.Popen[str]
    address: str

    def place(self) -> str:
        """Where a handler says that it is."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def post(self, path: str) -> httpx.Response | None:
        """None where the server dies over it."""
        try:
            headers = {"Idempotency-Key": path, "X-Caller": "anna"}
            return httpx.post(f"{self.address}{path}", headers=headers, timeout=60)
        except httpx.TransportError:
            return None


@contextlib.contextmanager
def serving(url: str, **environment: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "uvicorn", "killable_shop:app", "--port", "0", "--no-access-log"]
    process = subprocess.Popen(
        command,
        cwd=HERE,
        env={**os.environ, "PYTHONPATH": str(HERE.parent), "SHOP_DATABASE": url, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        said = ""
        while (found := re.search(r"running on (http://[\d.:]+)", said)) is None:
            line = process.stderr.readline()
            assert line, said
            said += line
        yield Server(process, found[1])
    finally:
        process.kill()
        process.communicate()


def test_a_server_that_is_killed_in_mid_request_executes_it_once_in_all(url: str, engine: Engine) -> None:
    with serving(url, SHOP_HOLDS="yes") as server, ThreadPoolExecutor(2) as threads:
        charging = threads.submit(server.post, "/charges")
        assert server.place() == "charged"
        paying = threads.submit(server.post, "/payments")
        assert server.place() == "paid"
        server.process.kill()
        assert charging.result(30) is None
        assert paying.result(30) is None
    with engine.connect() as connection:
        assert connection.scalars(select(payments.c.amount)).all() == ['"charged"']
    with serving(url) as server:
        for path, body in (("/payments", {"paid": True}), ("/charges", {"charged": "ch_1"})):
            answer = server.post(path)
            # As long as the lease of the dead runs, or his connection is not missed.
            while answer is not None and answer.status_code == 409:
                answer = server.post(path)
            again = server.post(path)
            assert answer is not None
            assert again is not None
            assert answer.json() == again.json() == body
            assert again.headers["idempotency-replayed"] == "true"
    with engine.connect() as connection:
        assert sorted(connection.scalars(select(payments.c.amount))) == ['"charged"', '"paid"']
