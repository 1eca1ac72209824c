"""The three functions for Celery: one adds a task to the outbox, one sends it, and one has its effect happen once."""

import functools
import inspect
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Final, NoReturn

from celery import Celery, current_task
from celery.exceptions import Reject, Retry
from sqlalchemy import Engine
from sqlalchemy.orm import sessionmaker

from semel import outbox
from semel.database import Handle, is_passing
from semel.database.kinds import check_callable, check_kind
from semel.inbox import once as claimed_once
from semel.outbox import Delivery, MessageRefused
from semel.outbox.messages import SEND_PREFIX

# Under which topic tasks stand in the outbox, and under which name their ids in the inbox.
TOPIC: Final = f"{SEND_PREFIX}celery"
CONSUMER: Final = "celery"
# How long a task waits for a database that is away before it comes again.
AWAY_SECONDS: Final = 10

_ACKS_LATE: Final = (
    "its worker acknowledges it before it has run, and if the worker dies the task is lost: declare it with "
    "@app.task(acks_late=True, reject_on_worker_lost=True), or set task_acks_late and task_reject_on_worker_lost"
)
_REJECTS: Final = (
    "Celery acknowledges a task whose process was killed, and the task is lost: declare it with "
    "reject_on_worker_lost=True as well, or set task_reject_on_worker_lost"
)
_CONFIRMS: Final = (
    "this broker does not confirm what it gets, so a task that is sent while it fails is lost: set "
    "app.conf.broker_transport_options = {'confirm_publish': True}"
)


class LosesTasks(RuntimeError):
    """With these settings a task may be lost, and `once` could not mend that."""


def enqueue(
    handle: Handle,
    task: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    not_before: datetime | None = None,
) -> str:
    """Send this task when the transaction has committed, and return its id. `task` is a task of Celery or its name;
    arguments are values that JSON can hold."""
    if not_before is not None and not_before.tzinfo is None:
        raise ValueError("not_before has no time zone, so its moment is unknown: take datetime.now(UTC), for instance")
    id = str(uuid.uuid4())
    sent = {
        "task": task if isinstance(task, str) else task.name,
        "args": list(args),
        "kwargs": dict(kwargs or {}),
        "eta": None if not_before is None else not_before.isoformat(),
    }
    # No task waits for another one.
    outbox.add(handle, TOPIC, key=id, value=json.dumps(sent))
    return id


def sender(app: Celery) -> Callable[[Delivery], None]:
    """For `Relay(engine, send=sender(app))`, or `Relay(engine, kafka, send={TOPIC: sender(app)})` if the outbox has
    messages for a log, too: sends what `enqueue` has added. A task has the same id each time."""
    options = app.conf.broker_transport_options or {}
    with app.connection_for_write() as connection:
        if connection.transport.driver_type == "amqp" and not options.get("confirm_publish"):
            raise LosesTasks(_CONFIRMS)

    def send(delivery: Delivery) -> None:
        if delivery.topic != TOPIC or delivery.key is None or delivery.value is None:
            raise MessageRefused(
                "no task: semel.celery.enqueue has not added it. If it is for a log, have one relay do both, "
                f"Relay(engine, kafka, send={{{TOPIC!r}: sender(app)}}), and retry it"
            )
        task = json.loads(delivery.value)
        eta = None if task["eta"] is None else datetime.fromisoformat(task["eta"])
        app.send_task(task["task"], task["args"], task["kwargs"], task_id=delivery.key.decode(), eta=eta)

    return send


def once(database: Any, *, consumer: str = CONSUMER) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Below `@app.task`: the function gets a connection or session as its first argument, and what it does there
    happens once for each task id: redelivered, retried, or run by two workers at once. `database` is an Engine or a
    sessionmaker. A task that was done before returns None. One that finds the database away comes again, and that takes
    none of its retries. For the ORM of Django there is `semel.django.celery.once`."""
    check_kind("the database of @once (in Django take semel.django.celery.once)", database, (Engine, sessionmaker))
    return claimed(database.begin, consumer)


def claimed(
    begin: Callable[[], AbstractContextManager[Any]], consumer: str, *, hands_over: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`once` in the transactions that `begin` makes. Unless it `hands_over` their handle, the function gets the
    arguments of the caller alone."""

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        check_callable("a function under @once", function)

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            id = _id(run)
            try:
                with begin() as handle, claimed_once(handle, consumer=consumer, message_id=id) as is_first:
                    given = (handle, *args) if hands_over else args
                    return function(*given, **kwargs) if is_first else None
            except Exception as error:
                if current_task.request.is_eager or not is_passing(error):
                    raise
                _come_again(error)

        # Celery shows the arguments that a caller passes, and there the connection is none.
        del run.__wrapped__
        return run

    return decorated


def _id(run: Callable[..., Any]) -> str:
    """The id of the task that runs here, if its message is not lost with its worker, and nothing else has taken it."""
    task = current_task
    if not task or task.request.id is None:
        raise RuntimeError("a function under @once runs as a task: call its delay, apply_async or apply")
    if not task.acks_late:
        raise LosesTasks(f"task {task.name!r} could be lost: {_ACKS_LATE}")
    if not task.reject_on_worker_lost:
        raise LosesTasks(f"task {task.name!r} could be lost: {_REJECTS}")
    body = inspect.unwrap(task.run)
    if getattr(body, "__func__", body) is not run or getattr(task.request, "semel_has_begun", False):
        raise RuntimeError(
            f"task {task.name!r} calls a function under @once, which would take the id of this task for its own: @once "
            "stands directly below @app.task, and that function is called once; have others in tasks of their own"
        )
    task.request.semel_has_begun = True
    return str(task.request.id)


def _come_again(error: Exception) -> NoReturn:
    """Celery acknowledges a task that fails; so its message is sent again before that."""
    try:
        again = current_task.signature_from_request(retries=current_task.request.retries, countdown=AWAY_SECONDS)
        again.apply_async()
    except Exception as also:
        raise Reject(also, requeue=True) from error
    raise Retry(exc=error, when=AWAY_SECONDS) from error
