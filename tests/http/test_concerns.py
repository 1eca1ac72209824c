"""Which requests the middleware looks at, however their methods are written, and of two at once which one goes on."""

import pytest
from sqlalchemy import Engine, create_engine

from semel.database.procedures import drive
from semel.http import Idempotency, Request
from semel.http.answers import Fate, RequestRefused
from semel.http.claims import Accepted, name_of
from semel.http.holders import InTransaction


@pytest.mark.parametrize("method", ["put", "PUT", "Put"])
def test_a_method_is_meant_however_it_is_written(method: str) -> None:
    """Or its requests would be executed again, and nobody would hear that their keys mean nothing."""
    idempotency = Idempotency(
        create_engine("sqlite://"), scope=lambda request: "caller", methods=(method,), paths=("/payments",)
    )
    asked = [("PUT", "/payments"), ("POST", "/payments"), ("PUT", "/refunds")]
    assert [idempotency.concerns(*one) for one in asked] == [True, False, False]


def test_who_is_refused_because_another_one_runs_does_not_end_the_other_one() -> None:
    idempotency = Idempotency(create_engine("sqlite://"), scope=lambda request: "caller")
    name, running, refused = name_of("anna", "k-1"), object(), object()
    idempotency.enter(name, running)
    for _ in range(2):
        with pytest.raises(RequestRefused):
            idempotency.enter(name, refused)
        idempotency.leave(name, refused)
    idempotency.leave(name, running)
    idempotency.enter(name, refused)


def test_an_answer_that_is_kept_is_there_for_others_though_its_handler_works_on(engine: Engine) -> None:
    """As in the background, behind its answer: who asks again need not wait for that."""
    idempotency = Idempotency(engine, scope=lambda request: "caller")
    name = name_of("anna", "k-1")
    holder = InTransaction(idempotency, Request("POST", "/payments", {}, {}), name, "f", idempotency.transaction)
    assert isinstance(drive(holder.claim()), Accepted)
    assert drive(holder.settle(Fate.KEPT, 201, None)) is None
    idempotency.enter(name, object())
