"""How often to retry and how long to wait in between, and the retry budget that a whole process shares.

    budget = RetryBudget(share=0.1)
    caller = semel.http.client.Caller(requests.Session(), budget=budget)

Retries make an outage worse: with three attempts each, a service that is too slow gets three times the requests. The
budget prevents that, but only if the HTTP client, the inbox and the relay share one. This room must never wait.
"""

import importlib.util

if importlib.util.find_spec("sqlalchemy") is None:
    raise ImportError("semel.retries needs SQLAlchemy, which is missing: pip install 'semel[app]'")

from semel.retries.backoff import Retries
from semel.retries.budget import RetryBudget

__all__ = ["Retries", "RetryBudget"]
