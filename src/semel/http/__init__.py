"""`Idempotency-Key` for HTTP: a repeated request is executed once, and gets the first answer again.

Claim, effect and stored answer commit in one transaction, on the connection that the handler gets; a request with steps
commits each step in its own. There is a middleware for ASGI and one for WSGI, for any web framework, and an application
for Django.
"""

import importlib.util

if importlib.util.find_spec("sqlalchemy") is None:
    raise ImportError("semel.http needs SQLAlchemy, which is missing: pip install 'semel[app]'")

from semel.http.answers import PROBLEMS, Fate, Problem
from semel.http.asgi import AsgiIdempotency
from semel.http.callers import UnusableScope
from semel.http.claims import reap, reap_async
from semel.http.idempotency import Idempotency, NoKey, NoMiddleware
from semel.http.openapi import document
from semel.http.places import Request
from semel.http.tables import metadata
from semel.http.unkeyed import OnlyReads
from semel.http.wsgi import WsgiIdempotency
from semel.steps.records import Fenced

__all__ = [
    "PROBLEMS",
    "AsgiIdempotency",
    "Fate",
    "Fenced",
    "Idempotency",
    "NoKey",
    "NoMiddleware",
    "OnlyReads",
    "Problem",
    "Request",
    "UnusableScope",
    "WsgiIdempotency",
    "document",
    "metadata",
    "reap",
    "reap_async",
]
