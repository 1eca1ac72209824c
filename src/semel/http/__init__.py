"""`Idempotency-Key` for HTTP: a request that is repeated is executed once, and answered as the first time.

Claim, effect and stored answer commit in one transaction, on the connection that the handler gets. Nothing here knows a
web framework: it is a middleware for ASGI and one for WSGI.
"""

import importlib.util

if importlib.util.find_spec("sqlalchemy") is None:
    raise ImportError("semel.http needs SQLAlchemy, which is missing: pip install 'semel[app]'")

from semel.http.answers import PROBLEMS, Fate, Problem
from semel.http.asgi import AsgiIdempotency
from semel.http.claims import Fenced, reap, reap_async
from semel.http.idempotency import Idempotency, NoKey, Request
from semel.http.openapi import document
from semel.http.tables import metadata
from semel.http.wsgi import WsgiIdempotency

__all__ = [
    "PROBLEMS",
    "AsgiIdempotency",
    "Fate",
    "Fenced",
    "Idempotency",
    "NoKey",
    "Problem",
    "Request",
    "WsgiIdempotency",
    "document",
    "metadata",
    "reap",
    "reap_async",
]
