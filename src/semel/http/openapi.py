"""Adds to an OpenAPI document what the middleware requires and answers: the header, and the problems.

Pure: it completes a document, and completing it twice changes nothing more. FastAPI makes its document from routes and
cannot know about a middleware.
"""

from typing import Any, Final, Protocol

from semel.http.answers import CONNECTION_UNUSED, PROBLEM_TYPE, PROBLEMS
from semel.http.idempotency import Idempotency
from semel.http.requests import KEY_CHARACTERS_MAX

_MEMBERS: Final = {"title": {"type": "string"}, "status": {"type": "integer"}, "detail": {"type": "string"}}
_RETRY_AFTER: Final = {"description": "Seconds to wait, where waiting helps.", "schema": {"type": "integer"}}


class HasOpenApi(Protocol):
    """A FastAPI application."""

    def openapi(self) -> dict[str, Any]: ...


def document(app: HasOpenApi, idempotency: Idempotency) -> None:
    """Describe what the middleware does in the application's OpenAPI document."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        return documented(plain(), idempotency)

    # To change its document, FastAPI recommends replacing this method on the application.
    app.openapi = openapi  # type: ignore[method-assign]


def documented(schema: dict[str, Any], idempotency: Idempotency) -> dict[str, Any]:
    for path, operations in schema.get("paths", {}).items():
        for method, operation in operations.items():
            if idempotency.concerns(method.upper(), path):
                _add_header(operation, is_required=idempotency.requires(path))
                _add_problems(operation, idempotency.strict)
                _add_times(operation, idempotency.result_ttl_ms // 1000)
    return schema


def _add_header(operation: dict[str, Any], *, is_required: bool) -> None:
    parameters = operation.setdefault("parameters", [])
    if all(parameter.get("name") != "Idempotency-Key" for parameter in parameters):
        parameters.append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": is_required,
                "description": "Names this request: repeated under its name it is executed once and answered alike.",
                "schema": {"type": "string", "minLength": 1, "maxLength": KEY_CHARACTERS_MAX},
            }
        )


def _add_times(operation: dict[str, Any], ttl_seconds: int) -> None:
    """Adds the header Idempotency-TTL to each successful answer."""
    shown = {
        "description": "Seconds from now in which a repetition gets this answer and is not executed. It begins at "
        f"{ttl_seconds}.",
        "schema": {"type": "integer", "maximum": ttl_seconds},
    }
    for status, response in operation["responses"].items():
        if status.startswith("2"):
            response.setdefault("headers", {})["Idempotency-TTL"] = shown


def _add_problems(operation: dict[str, Any], strict: bool) -> None:
    responses = operation.setdefault("responses", {})
    problems = [one for one in PROBLEMS if strict or one is not CONNECTION_UNUSED]
    for problem in problems:
        titles = [one.title for one in problems if one.status == problem.status]
        response = responses.setdefault(str(problem.status), {"description": "; or ".join(titles)})
        # Added to what the application itself answers with this status.
        uris = [one.uri for one in problems if one.status == problem.status]
        members = {"type": {"type": "string", "enum": uris}, **_MEMBERS}
        problem_schema = {"type": "object", "required": list(members), "properties": members}
        response.setdefault("content", {})[PROBLEM_TYPE] = {"schema": problem_schema}
        if problem.status in (409, 503):
            response.setdefault("headers", {})["Retry-After"] = _RETRY_AFTER
