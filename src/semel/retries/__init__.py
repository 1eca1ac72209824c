"""How often something is tried again and how long to wait in between, and the budget that a whole process shares.

    budget = RetryBudget(share=0.1)
    caller = semel.http.client.Caller(requests.Session(), budget=budget)

Retries make an outage worse: with three attempts each, a service that is too slow gets three times the requests. The
budget is what prevents that, and it only can if the caller of services, the inbox and the relay draw on the same one.
This room must never wait itself.
"""

import importlib.util

if importlib.util.find_spec("sqlalchemy") is None:
    raise ImportError("semel.retries needs SQLAlchemy, which is missing: pip install 'semel[app]'")

from semel.retries.backoff import Retries
from semel.retries.budget import RetryBudget

__all__ = ["Retries", "RetryBudget"]
