"""Celery in an application's own transaction: a task exists exactly if the transaction commits, and its effect happens
once, however often it is delivered.

    enqueue(connection, book, [7])               # in your transaction
    Relay(engine, send=sender(app)).run()        # in a process of its own

    @app.task(acks_late=True, reject_on_worker_lost=True)
    @once(engine)
    def book(connection, number): ...

This room has no claims of its own: a task goes through the outbox, and its effect through the inbox, by the task's id.
It must never let a task run whose message is lost if its worker dies.
"""

import importlib.util

if importlib.util.find_spec("celery") is None or importlib.util.find_spec("sqlalchemy") is None:
    raise ImportError("semel.celery needs Celery and SQLAlchemy, and one is missing: pip install 'semel[app]' celery")

from semel.celery.tasks import CONSUMER, TOPIC, LosesTasks, enqueue, once, sender

__all__ = ["CONSUMER", "TOPIC", "LosesTasks", "enqueue", "once", "sender"]
