"""Tasks of Celery in transactions of the ORM: a task is sent if the block of `atomic` commits, and its claim commits
with what it does by the ORM.

    with transaction.atomic():
        order.save()
        enqueue(bill, [order.pk])

    @shared_task(acks_late=True, reject_on_worker_lost=True)
    @once()
    def bill(order): ...

`manage.py semel_relay` sends it to the app that `SEMEL["CELERY"]` names. What a claim is, and which tasks are refused,
is in `semel.celery`; this room must have no rules of its own for that.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from semel import celery
from semel.celery.tasks import CONSUMER, claimed
from semel.django.aliases import Database, alias, check_sends
from semel.django.outbox import in_atomic

__all__ = ["enqueue", "once"]


def enqueue(
    task: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    not_before: datetime | None = None,
    using: str | None = None,
) -> str:
    """Send this task when the block of `atomic` around it has committed, and return its id. `using` is the alias, by
    default that of the settings."""
    check_sends()
    return celery.enqueue(in_atomic(using or alias()), task, args, kwargs, not_before=not_before)


def once(*, using: str | None = None, consumer: str = CONSUMER) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Below `@app.task` or `@shared_task`: what the function does by the ORM happens once for each task id. `using` is
    the alias, by default that of the settings. A task that was done before returns None. One that finds the database
    away comes again, and that takes none of its retries."""
    return claimed(lambda: Database(using or alias()).begin(), consumer, hands_over=False)
