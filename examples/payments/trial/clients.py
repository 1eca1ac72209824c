"""The clients: each repeats its request under the same key until it has an answer, and remembers every answer.

They trust nothing: they record an answer that differs from an earlier one to the same request, and a request that never
got an answer.
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import httpx2

from payments.trial.plan import Manner, Request
from semel.http.client import AsyncCaller, GaveUp, KeyMisused, is_replay
from semel.retries import Retries, RetryBudget

PATIENCE_SECONDS: Final = 60.0
ATTEMPT_SECONDS: Final = 10.0
RETRIES: Final = Retries(attempts=8, first_wait_ms=50, wait_ms_max=1_000)
AT_ONCE: Final = 3
RUNNING: Final = 409

Answer = tuple[int, bytes]


@dataclass(slots=True)
class Counts:
    attempts: int = 0
    # After no answer, or an answer that says to try again.
    retries: int = 0
    # Sent at the same moment as another one.
    duplicates: int = 0
    lost_answers: int = 0
    replays: int = 0
    # Answers with a status of 500 or more.
    failures: int = 0
    # Calls that ended without an answer, by the number of their attempts or because the retry budget was used up.
    given_up: int = 0


class Clients:
    """All clients; `answers` has for each request the different answers that it got: one, if all is well."""

    def __init__(self, address: str, seed: int) -> None:
        self.answers: dict[Request, set[Answer]] = {}
        self.counts = Counts()
        hooks: dict[str, list[Callable[..., Any]]] = {"request": [self._sent], "response": [self._seen]}
        self._http = httpx2.AsyncClient(base_url=address, timeout=ATTEMPT_SECONDS, event_hooks=hooks)
        self._caller = AsyncCaller(
            self._http, retries=RETRIES, budget=RetryBudget(), pause=self._pause, chance=random.Random(seed).random
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, request: Request) -> None:
        """Send the request in its manner, until it is answered."""
        self.answers.setdefault(request, set())
        if request.manner is Manner.AT_ONCE:
            self.counts.duplicates += AT_ONCE - 1
            await asyncio.gather(*(self._ask(request) for _ in range(AT_ONCE)))
        else:
            if request.manner is Manner.LOST:
                await self._lose(request)
            await self._ask(request)

    async def _lose(self, request: Request) -> None:
        """Send the request, and cut the connection before there is an answer."""
        try:
            self._note(request, await self._post(request, read_seconds=request.lost_after_seconds))
        except httpx2.ReadTimeout:
            self.counts.lost_answers += 1
        except httpx2.TransportError:
            # The service was down.
            pass

    async def _ask(self, request: Request) -> None:
        """The caller retries by itself, as long as the budget of all clients allows; after that, this calls it again
        later."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                self._note(
                    request,
                    await self._caller.post(
                        "/payments",
                        key=request.key,
                        json=_body(request),
                        headers={"X-API-Key": request.caller},
                    ),
                )
                return
            except KeyMisused as misused:
                # No client of a trial misuses a key, so the answer is recorded.
                self._note(request, misused.answer)
                return
            except GaveUp:
                self.counts.given_up += 1
                await self._pause(RETRIES.wait_ms_max / 1000)

    async def _pause(self, seconds: float) -> None:
        self.counts.retries += 1
        await asyncio.sleep(seconds)

    async def _seen(self, answered: httpx2.Response) -> None:
        self.counts.failures += answered.status_code >= 500

    async def _sent(self, _: httpx2.Request) -> None:
        self.counts.attempts += 1

    async def figures(self) -> dict[str, float]:
        """The metrics that the API exposes to Prometheus, by their name and labels."""
        shown = await self._http.get("/metrics/")
        lines = (line.rpartition(" ") for line in shown.text.splitlines() if line.startswith("semel_"))
        return {name: float(value) for name, _, value in lines}

    async def _post(self, request: Request, read_seconds: float = ATTEMPT_SECONDS) -> httpx2.Response:
        return await self._http.post(
            "/payments",
            json=_body(request),
            headers={"X-API-Key": request.caller, "Idempotency-Key": f'"{request.key}"'},
            timeout=httpx2.Timeout(ATTEMPT_SECONDS, read=read_seconds),
        )

    def _note(self, request: Request, answered: httpx2.Response) -> None:
        """Record a final answer: not one that says that the request is still running, or that something failed."""
        if answered.status_code != RUNNING and answered.status_code < 500:
            self.counts.replays += is_replay(answered)
            self.answers[request].add((answered.status_code, answered.content))


def _body(request: Request) -> dict[str, str | int]:
    return {"payer": request.payer, "payee": request.payee, "amount_cents": request.amount_cents}
