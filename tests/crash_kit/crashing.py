"""The points of a process where it does IO, each before and after the call, and its death at one of them.

Calls to the broker are those of confluent-kafka's producer, consumer and administrator; calls to the database are the
statements, begins, commits and rollbacks of SQLAlchemy. `install` has to come before whatever is to be killed imports
them. A call that only waits (a poll after a poll) is one point with the one before it, or their number would hang on
the time of day. This must never change what a call does, but for an administrator's, which it waits for: else there
would be nothing to be behind.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import wraps
from typing import Any

import confluent_kafka
import confluent_kafka.admin

WAITING = frozenset({"Consumer.poll", "Consumer.consume", "Producer.poll"})


class Points:
    """Counts the points that the process passes, and dies at the one it was armed for."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self._deadly: int | None = None
        self._is_counting = False
        self._waiting = ""
        self._mutex = threading.Lock()

    def arm(self, deadly: int | None) -> None:
        """Count from here on; die at the point of this number, of which the first is 0."""
        self._deadly, self._is_counting = deadly, True

    def around(self, label: str, call: Callable[[], Any]) -> Any:
        """Do a call between two points."""
        if not self._enter(label):
            return call()
        self.pass_by(f"before {label}")
        try:
            return call()
        finally:
            self.pass_by(f"after {label}")

    def pass_by(self, point: str) -> None:
        with self._mutex:
            if not self._is_counting:
                return
            if len(self.passed) == self._deadly:
                os.kill(os.getpid(), signal.SIGKILL)
            self.passed.append(point)

    def _enter(self, label: str) -> bool:
        """Whether the call is more than a wait that goes on."""
        goes_on = label in WAITING and label == self._waiting
        self._waiting = label
        return not goes_on


points = Points()


def install() -> None:
    """Put the points around all calls of this process."""
    for client in (confluent_kafka.Producer, confluent_kafka.Consumer):
        setattr(confluent_kafka, client.__name__, _counted_subclass(client))
    for name, method in _methods(confluent_kafka.admin.AdminClient):
        setattr(confluent_kafka.admin.AdminClient, name, counted(f"AdminClient.{name}", method))
    _install_in_sqlalchemy()


def _install_in_sqlalchemy() -> None:
    from sqlalchemy import Connection, Engine, event

    @event.listens_for(Engine, "before_cursor_execute")
    def before(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        points.pass_by(f"before {_first_words(statement)}")

    @event.listens_for(Engine, "after_cursor_execute")
    def after(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        points.pass_by(f"after {_first_words(statement)}")

    # There are events before these, and none behind them.
    for name in ("_begin_impl", "_commit_impl", "_rollback_impl"):
        setattr(Connection, name, counted(name.strip("_").removesuffix("_impl"), getattr(Connection, name)))


def _counted_subclass(client: type) -> type:
    kind = client.__name__
    return type(kind, (client,), {name: counted(f"{kind}.{name}", method) for name, method in _methods(client)})


def _methods(client: type) -> list[tuple[str, Any]]:
    return [(name, getattr(client, name)) for name in dir(client) if not name.startswith("_")]


def counted(label: str, method: Any) -> Any:
    @wraps(method)
    def counted(self: Any, *arguments: Any, **named: Any) -> Any:
        return points.around(label, lambda: _done(method(self, *arguments, **named)))

    return counted


def _done(answer: Any) -> Any:
    """What an administrator promised has happened, or has failed, which is for the caller to see."""
    if isinstance(answer, dict):
        for promised in answer.values():
            if isinstance(promised, Future):
                promised.exception()
    return answer


def _first_words(statement: str) -> str:
    return " ".join(statement.split()[:3])
