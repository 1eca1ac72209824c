"""A request as the configured functions see it, and where it went: its route and its handler, as far as the framework
says them, for whatever is said of the request. This must never fail because of a framework."""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

# Under which name `request.native`, for `scope`, has Django's own request with its user.
NATIVE: Final = "django.request"
_OF_FLASK: Final = "semel.http.flask"


@dataclass(frozen=True)
class Request:
    """The request as the configured functions see it. Names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    native: Mapping[str, Any]
    """The scope of ASGI, or the environment of WSGI."""


def place_of(request: Request) -> str:
    """Such as `POST /orders/{number} (shop.orders.pay)`."""
    native = request.native
    match = getattr(native.get(NATIVE), "resolver_match", None)
    rule, of_flask = native.get(_OF_FLASK, (None, None))
    route = getattr(native.get("route"), "path", None) or native.get("path_template") or rule or request.path
    # Starlette and FastAPI have the function; Litestar's own object is named like it.
    endpoint, litestars = native.get("endpoint"), native.get("route_handler")
    name = getattr(endpoint, "__qualname__", None)
    handler = f"{endpoint.__module__}.{name}" if name else litestars or of_flask or getattr(match, "view_name", None)
    return f"{request.method} {route}{f' ({handler})' if handler else ''}"


def keep_route(environ: MutableMapping[str, Any]) -> None:
    """Flask takes its request out of the environment when it has answered."""
    flasks = environ.get("werkzeug.request")
    if flasks is not None:
        environ[_OF_FLASK] = getattr(getattr(flasks, "url_rule", None), "rule", None), getattr(flasks, "endpoint", None)


def note_place(error: BaseException, request: Request) -> None:
    """A server's log has the error with its traceback, which need not say which request it was."""
    if isinstance(error, Exception):
        error.add_note(f"semel: this was {place_of(request)}")
