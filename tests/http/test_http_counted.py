"""Each request with a key is counted once, by its outcome, and a step that may have been done twice is told."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from conftest_http import NewShop, caller
from sqlalchemy import Engine, select, update
from test_http_steps import Service

from eventually import eventually
from semel.database.clock import database_now_ms
from semel.http import AsgiIdempotency, Fenced, Idempotency, reap
from semel.http.attempts import Meaning, meaning_of
from semel.http.claims import name_of
from semel.http.tables import keys
from semel.metrics import Count, hook
from semel.steps.records import begin_step, finish_step, noted_step
from semel.testing.clock import Clock

IN_BOTH = pytest.mark.parametrize("framework", ["starlette", "flask"])


@pytest.fixture
def counts() -> Iterator[Counter[str]]:
    """How often each outcome was counted, or each counter without outcomes."""
    counted: Counter[str] = Counter()

    def note(count: Count) -> None:
        counted[count.labels.get("outcome") or count.name] += count.by

    take_off = hook(note)
    yield counted
    take_off()


@IN_BOTH
def test_each_request_is_counted_once_by_its_outcome(new_shop: NewShop, framework: str, counts: Counter[str]) -> None:
    shop = new_shop(framework)
    shop.post("k-1", amount=5)
    shop.post("k-1", amount=5)
    shop.post("k-1", amount=6)
    shop.post("k-2", amount=5, status=402)
    shop.post("k-3", amount=5, status=503)
    shop.post("k-4", amount=5, status=429)
    assert counts == {"accepted": 2, "replayed": 1, "mismatch": 1, "forgotten": 2}


@IN_BOTH
def test_a_request_that_is_still_running_is_counted_as_a_conflict(
    new_shop: NewShop, framework: str, counts: Counter[str]
) -> None:
    shop = new_shop("flask")
    shop.gate.inside = lambda: asked.append(shop.post("k-1", amount=5).status_code)
    asked: list[int] = []
    shop.post("k-1", amount=5)
    assert (asked, counts) == ([409], {"conflict": 1, "accepted": 1})


def test_reaped_keys_are_counted(new_shop: NewShop, engine: Engine, counts: Counter[str]) -> None:
    new_shop("flask").post("k-1", amount=5)
    reap(engine, now_ms=2**60)
    reap(engine, now_ms=2**60)
    assert counts["semel_http_keys_reaped_total"] == 1


# -- how long, and which -----------------------------------------------------------------------------------------------


@IN_BOTH
def test_an_answer_says_for_how_long_it_is_kept(new_shop: NewShop, framework: str) -> None:
    clock = Clock()
    shop = new_shop(framework, clock=clock, result_ttl_ms=60_000)
    assert shop.post("k-1", amount=5).headers["idempotency-ttl"] == "60"
    clock.ms += 20_500
    again = shop.post("k-1", amount=5)
    assert (again.headers["idempotency-ttl"], again.headers["idempotency-replayed"]) == ("39", "true")
    assert "idempotency-ttl" not in shop.post("k-2", amount=5, status=503).headers


@IN_BOTH
def test_an_answer_is_kept_for_as_long_as_it_says_however_long_its_request_ran(
    new_shop: NewShop, framework: str
) -> None:
    clock = Clock()
    shop = new_shop(framework, clock=clock, result_ttl_ms=60_000)

    def run_long() -> None:
        clock.ms += 100_000

    shop.gate.inside = run_long
    assert shop.post("k-1", amount=5).headers["idempotency-ttl"] == "60"
    clock.ms += 59_000
    again = shop.post("k-1", amount=5)
    assert (again.headers["idempotency-ttl"], again.headers["idempotency-replayed"]) == ("1", "true")
    assert shop.gate.executions == 1


@IN_BOTH
def test_an_answer_is_kept_from_its_own_time_by_the_clock_of_the_database(
    new_shop: NewShop, engine: Engine, framework: str
) -> None:
    shop, at_ms = new_shop(framework, result_ttl_ms=60_000), [0]

    def run() -> None:
        with engine.connect() as connection:
            began_ms = database_now_ms(connection)
            while at_ms[0] <= began_ms:
                at_ms[0] = database_now_ms(connection)

    shop.gate.inside = run
    assert shop.post("k-1", amount=5).status_code == 201
    with engine.connect() as connection:
        expires_ms = connection.scalar(select(keys.c.expires_ms)) or 0
    assert at_ms[0] + 60_000 <= expires_ms


@IN_BOTH
def test_the_application_says_which_failures_are_replayed(new_shop: NewShop, framework: str) -> None:
    """A 503 that is kept is final to a caller: it is a replay, and coming again changes nothing."""
    shop = new_shop(framework, keeps=lambda status: status in (402, 503))
    for status, executions in ((402, 1), (503, 1), (500, 2), (404, 2)):
        before = shop.gate.executions
        answers = [shop.post(f"k-{status}", amount=5, status=status) for _ in (1, 2)]
        assert [answer.status_code for answer in answers] == [status, status]
        assert shop.gate.executions - before == executions
    assert shop.booked() == [], "a refusal and a failure have no effect"
    replayed = shop.post("k-503", amount=5, status=503)
    assert meaning_of(503, replayed.headers, replayed.content) is Meaning.FINAL


def test_what_is_kept_may_commit_its_effect(new_shop: NewShop) -> None:
    shop = new_shop("flask", keeps=lambda status: status == 503, commits=lambda status: True)
    for _ in (1, 2):
        assert shop.post("k-1", amount=5, status=503).status_code == 503
    assert (shop.booked(), shop.gate.executions) == (["5"], 1)


# -- calls that take no key --------------------------------------------------------------------------------------------


def test_a_step_without_a_key_that_may_have_been_done_is_told(
    engine: Engine, counts: Counter[str], caplog: pytest.LogCaptureFixture
) -> None:
    """What dies before the call and what dies behind it looks the same from here, so both are told; a step that was
    finished is not done again, with or without a key."""
    doubts: list[tuple[bool, bool]] = []
    dies_in = ["mail", "book"]

    def handler(key: Any) -> bytes:
        with key.step("mail", unkeyed=True) as step:
            doubts.append((step.first, step.is_in_doubt))
            if step.first:
                step.result = "sent"
                if "mail" in dies_in:
                    dies_in.remove("mail")
                    raise ConnectionError
        with key.step("book") as booking:
            if "book" in dies_in:
                dies_in.remove("book")
                raise ConnectionError
            assert not booking.is_in_doubt
        return str(step.result).encode()

    service = Service(engine, handler)
    with caplog.at_level(logging.WARNING, "semel.steps"):
        assert [service.post().status_code for _ in range(4)] == [500, 500, 201, 201]
    assert service.post().content == b"sent"
    assert doubts == [(True, False), (True, True), (False, False)]
    # As a set: Litestar, once it is loaded, has each record shown by handlers of its own too.
    [warning] = {record.getMessage() for record in caplog.records if record.name == "semel.steps"}
    assert warning.startswith("step 'mail' of idempotency key 'k-1' began before, and its call took no key")
    assert counts["semel_http_steps_in_doubt_total"] == 1


@pytest.mark.parametrize("was_unkeyed", [True, False])
def test_a_step_that_has_a_key_in_the_next_version_is_finished_by_it(
    engine: Engine, counts: Counter[str], was_unkeyed: bool
) -> None:
    """And the other way round. Who calls by a key now may still repeat a call that was made without one."""
    doubts: list[bool] = []

    def handler(key: Any) -> bytes:
        with key.step("mail", unkeyed=was_unkeyed != bool(doubts)) as step:
            doubts.append(step.is_in_doubt)
            if len(doubts) == 1:
                raise ConnectionError
            step.result = "sent"
        return str(step.result).encode()

    service = Service(engine, handler)
    assert [service.post().status_code for _ in range(3)] == [500, 201, 201]
    assert doubts == [False, was_unkeyed]
    assert counts["semel_http_steps_in_doubt_total"] == was_unkeyed


def test_a_step_that_is_finished_is_not_finished_again(engine: Engine) -> None:
    """As two threads of one handler could try: the second one's changes must not commit."""
    name = name_of("anna", "k")
    with engine.begin() as connection:
        begin_step(connection, name, "mail")
        finish_step(connection, name, "mail", "1")
    with pytest.raises(RuntimeError, match="finished meanwhile"), engine.begin() as connection:
        finish_step(connection, name, "mail", "2")
    with engine.begin() as connection:
        assert noted_step(connection, name, "mail") == "1"


def test_a_late_holder_is_counted_as_fenced(engine: Engine, counts: Counter[str]) -> None:
    clock = Clock()
    answers: list[int] = []

    def handler(key: Any) -> bytes:
        if not answers:
            answers.append(0)
            clock.ms += 60_000
            answers.append(service.post().status_code)
            with key.step("charge"):
                pass
        return b"done"

    service = Service(engine, handler, clock=clock, lease_ms=30_000)
    assert service.post().status_code == 500
    assert answers == [0, 201]
    assert counts == {"accepted": 1, "fenced": 1}


def test_a_late_holder_is_counted_as_fenced_though_its_framework_answers(engine: Engine, counts: Counter[str]) -> None:
    """Flask and Django make a 500 of the error, and the middleware sees only that."""
    clock = Clock()
    executions: list[int] = []

    def handler(key: Any) -> bytes:
        executions.append(len(executions))
        if len(executions) == 1:
            clock.ms += 60_000
            service.post()
            with key.step("charge"):
                pass
        return b"done"

    class Answering(Service):
        def _app(self, environ: Any, start_response: Any) -> list[bytes]:
            try:
                return super()._app(environ, start_response)
            except Fenced:
                start_response("500 Internal Server Error", [])
                return [b""]

    service = Answering(engine, handler, clock=clock, lease_ms=30_000)
    assert service.post().status_code == 500
    assert counts == {"accepted": 1, "fenced": 1}


def test_a_late_holder_whose_heart_finds_out_is_counted_as_fenced(engine: Engine, counts: Counter[str]) -> None:
    """It has no step left, and answers with a failure, which is not kept anyway."""

    class Failing(Service):
        def _app(self, environ: Any, start_response: Any) -> list[bytes]:
            # As if another request had taken the key over.
            with engine.begin() as connection:
                connection.execute(update(keys).values(token=keys.c.token + 1))
            assert eventually(lambda: counts["fenced"])
            start_response("503 Service Unavailable", [])
            return [b""]

    assert Failing(engine, lambda key: b"", lease_ms=300).post().status_code == 503
    assert counts == {"fenced": 1}


def test_a_request_that_is_executed_and_never_answered_is_counted_as_forgotten(
    engine: Engine, counts: Counter[str]
) -> None:
    """As when its client has gone, and the handler ends because of that."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        raise AssertionError(message)

    idempotency = Idempotency(engine, scope=caller)
    headers = [(b"idempotency-key", b"k-1"), (b"x-caller", b"anna")]
    scope = {"type": "http", "method": "POST", "path": "/payments", "query_string": b"", "headers": headers}
    asyncio.run(AsgiIdempotency(app, idempotency)(scope, receive, send))
    assert counts == {"forgotten": 1}
