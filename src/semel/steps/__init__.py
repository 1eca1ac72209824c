"""Workflows of named, recorded steps: what a finished step has done is not done again, in whatever process it goes on.

    start(connection, order, "order-7")          # in your transaction
    Worker(engine, [order]).run()                # any number of them, or `semel steps run`

Code outside of a step runs again in each attempt. A recorded step does not, because its result commits in one
transaction with what was done on its connection. HTTP keys stand on this room with the requests that have steps.
"""

import importlib.util

if importlib.util.find_spec("sqlalchemy") is None:
    raise ImportError("semel.steps needs SQLAlchemy, which is missing: pip install 'semel[app]'")

from semel.steps.ledger import Cancelled, DeadlineOver, Found, WorkflowRefused, reap
from semel.steps.records import Fenced
from semel.steps.rules import State
from semel.steps.tables import metadata
from semel.steps.worker import Worker
from semel.steps.workflows import AsyncRun, Run, Workflow, cancel, look_up, resume, start, start_async, workflow

__all__ = [
    "AsyncRun",
    "Cancelled",
    "DeadlineOver",
    "Fenced",
    "Found",
    "Run",
    "State",
    "Worker",
    "Workflow",
    "WorkflowRefused",
    "cancel",
    "look_up",
    "metadata",
    "reap",
    "resume",
    "start",
    "start_async",
    "workflow",
]
