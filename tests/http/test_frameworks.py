"""In each framework, on each database: one effect for one key, and the same answer to whoever repeats."""

import json

import pytest
from conftest_http import NewShop

FRAMEWORKS = [
    ("starlette", False),
    ("starlette", True),
    ("fastapi", False),
    ("fastapi", True),
    ("litestar", False),
    ("litestar", True),
    ("flask", False),
    ("django", False),
]
IN_EACH = pytest.mark.parametrize(("framework", "asynchronous"), FRAMEWORKS)


@IN_EACH
def test_a_repeated_request_is_executed_once_and_answered_alike(
    new_shop: NewShop, framework: str, asynchronous: bool
) -> None:
    shop = new_shop(framework, asynchronous=asynchronous)
    first = shop.post('"k-1"', amount=5)
    again = shop.post("k-1", amount=5)
    assert (first.status_code, first.json()) == (201, {"execution": 1})
    assert (again.status_code, again.content) == (201, first.content)
    assert shop.booked() == ["5"]
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert first.headers["set-cookie"]
    assert "set-cookie" not in again.headers
    for name in ("location", "x-execution", "content-type"):
        assert again.headers[name] == first.headers[name]

    other = shop.send(json.dumps({"amount": 6}))
    assert (other.status_code, other.json()["type"]) == (422, "urn:semel:problem:payload-differs")
    assert other.headers["content-type"] == "application/problem+json"
    assert shop.post(None).status_code == 400
    assert shop.post(caller="bert", amount=5).json() == {"execution": 2}

    assert shop.post("k-2", amount=7, fails=True).status_code == 500
    assert shop.post("k-3", amount=8, status=503).status_code == 503
    refused = shop.post("k-4", amount=9, status=402)
    assert shop.booked() == ["5", "5"]
    assert shop.post("k-4", amount=9, status=402).json() == refused.json()
    assert shop.gate.executions == 5
    assert shop.post("k-3", amount=8, status=503).headers.get("idempotency-replayed") is None
    assert shop.keys() == 3
