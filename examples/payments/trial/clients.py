"""The clients: each asks until it has an answer, always under the same key, and remembers every answer it got.

They trust nobody: an answer that differs from an earlier one to the same request is on record, and so is a request
that never got any.
"""

import asyncio
import contextlib
import random
import time
from dataclasses import dataclass
from typing import Final

import httpx

from payments.trial.plan import Manner, Request

PATIENCE_SECONDS: Final = 60.0
ATTEMPT_SECONDS: Final = 10.0
WAIT_SECONDS: Final = (0.05, 1.0)
AT_ONCE: Final = 3
RUNNING: Final = 409

Answer = tuple[int, bytes]


@dataclass(slots=True)
class Counts:
    attempts: int = 0
    # After no answer, or one that says to ask again.
    retries: int = 0
    # Sent beside another one, at the same moment.
    duplicates: int = 0
    lost_answers: int = 0
    replays: int = 0
    # The service said that something failed on its side.
    failures: int = 0


class Clients:
    """All of them; `answers` holds for each request the different answers that it got: one, if all is well."""

    def __init__(self, address: str, seed: int) -> None:
        self.answers: dict[Request, set[Answer]] = {}
        self.counts = Counts()
        self._chance = random.Random(seed)
        self._http = httpx.AsyncClient(base_url=address, timeout=ATTEMPT_SECONDS)

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, request: Request) -> None:
        """Send it in its manner, until it is answered."""
        self.answers.setdefault(request, set())
        if request.manner is Manner.AT_ONCE:
            self.counts.duplicates += AT_ONCE - 1
            await asyncio.gather(*(self._ask(request) for _ in range(AT_ONCE)))
        else:
            if request.manner is Manner.LOST:
                await self._lose(request)
            await self._ask(request)

    async def _lose(self, request: Request) -> None:
        """Send it, and cut the connection before there is an answer."""
        try:
            self._note(request, await self._post(request, read_seconds=request.lost_after_seconds))
        except httpx.ReadTimeout:
            self.counts.lost_answers += 1
        except httpx.TransportError:
            # Nobody was there to send it to.
            pass

    async def _ask(self, request: Request) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        wait_seconds, wait_seconds_max = WAIT_SECONDS
        while True:
            told_to_wait_seconds = 0.0
            with contextlib.suppress(httpx.TransportError):
                answered = await self._post(request)
                if self._note(request, answered):
                    return
                told_to_wait_seconds = float(answered.headers.get("retry-after", 0))
            if time.monotonic() > deadline:
                return
            self.counts.retries += 1
            await asyncio.sleep(max(told_to_wait_seconds, wait_seconds * self._chance.uniform(0.5, 1)))
            wait_seconds = min(wait_seconds * 2, wait_seconds_max)

    async def _post(self, request: Request, read_seconds: float = ATTEMPT_SECONDS) -> httpx.Response:
        self.counts.attempts += 1
        return await self._http.post(
            "/payments",
            json={"payer": request.payer, "payee": request.payee, "amount_cents": request.amount_cents},
            headers={"X-API-Key": request.caller, "Idempotency-Key": f'"{request.key}"'},
            timeout=httpx.Timeout(ATTEMPT_SECONDS, read=read_seconds),
        )

    def _note(self, request: Request, answered: httpx.Response) -> bool:
        """False where it says to ask again: it still runs, or something failed."""
        status = answered.status_code
        self.counts.failures += status >= 500
        if status == RUNNING or status >= 500:
            return False
        self.counts.replays += answered.headers.get("idempotency-replayed") == "true"
        self.answers[request].add((status, answered.content))
        return True
