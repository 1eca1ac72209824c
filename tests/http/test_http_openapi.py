"""The document of a FastAPI application says what its middleware asks for and answers."""

from typing import Any

from conftest_http import caller
from fastapi import FastAPI
from sqlalchemy import create_engine

from semel.http import Idempotency, document


def test_the_header_and_each_problem_are_documented() -> None:
    app = FastAPI()

    @app.post("/payments/{number}")
    async def pay(number: int) -> dict[str, Any]:
        return {}

    @app.post("/search")
    async def search() -> dict[str, Any]:
        return {}

    @app.get("/payments/{number}")
    async def show(number: int) -> dict[str, Any]:
        return {}

    idempotency = Idempotency(create_engine("sqlite://"), scope=caller, paths=("/payments/*",))
    document(app, idempotency)
    for _ in range(2):
        paths = app.openapi()["paths"]
        [header] = [one for one in paths["/payments/{number}"]["post"]["parameters"] if one["in"] == "header"]
        assert (header["name"], header["required"], header["schema"]["maxLength"]) == ("Idempotency-Key", True, 255)
    responses = paths["/payments/{number}"]["post"]["responses"]
    assert {"200", "400", "409", "413", "422", "500", "503"} == set(responses)
    assert set(responses["422"]["content"]) == {"application/json", "application/problem+json"}
    assert "Retry-After" in responses["409"]["headers"]
    told = responses["409"]["content"]["application/problem+json"]["schema"]["properties"]["type"]["enum"]
    assert told == ["urn:semel:problem:still-running", "urn:semel:problem:answer-not-kept"]
    for path, method in (("/payments/{number}", "get"), ("/search", "post")):
        assert "400" not in paths[path][method]["responses"]
