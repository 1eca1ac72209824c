"""Runs a program beside an application from its first line to its end by a signal.

The first SIGTERM, Ctrl-C or SIGHUP lets it finish what it holds, and it ends with 0. If that takes longer than its
grace time, the process ends at once: what it held is rolled back, and done by the next one. A second signal is as
without this. The signals must be left as they were.
"""

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final, Protocol, TextIO

from sqlalchemy import Engine

from semel.service.door import Door
from semel.service.json_lines import JsonLines
from semel.service.options import Options
from semel.service.supervisor import notify

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# What the client below says on each try.
_CHATTER: Final = "librdkafka"


class Service(Protocol):
    """A relay, a consumer, a worker or a reaper."""

    @property
    def role(self) -> str:
        """What a probe is told while it is ready: `active` or `standby`."""

    def why_not_ready(self, behind_seconds: float) -> str:
        """Why it does not do its work as it should, in a line; empty if it does. Called in a thread of its own."""

    def stop(self) -> None: ...


@contextlib.contextmanager
def serving(
    service: Service,
    name: str,
    what: str,
    options: Options,
    *,
    engine: Engine | None = None,
    stream: TextIO = sys.stderr,
    formatter: logging.Formatter | None = None,
) -> Iterator[None]:
    """The block runs the service. The first line says `what` it talks to, which must not contain a secret; `engine` is
    the database whose waiting rows are among the figures."""
    door = None
    if options.metrics is not None:
        door = Door(name, options.metrics, lambda: service.role, lambda: service.why_not_ready(options.behind_seconds))
        door.start(engine)
    try:
        with telling(name, stream, is_json=options.is_json, formatter=formatter):
            logger = logging.getLogger(f"semel.{name}")
            with _ended_by(service.stop, options.grace_seconds, logger):
                logger.info("%s%s", what, "" if door is None else f"; metrics on {door.shown}")
                notify("READY=1", f"STATUS={what}")
                yield
    finally:
        if door is not None:
            door.stop()


@contextlib.contextmanager
def telling(
    name: str,
    stream: TextIO,
    *,
    is_json: bool = False,
    formatter: logging.Formatter | None = None,
    level: int = logging.INFO,
) -> Iterator[None]:
    """Logs to `stream` what the room of this name tells from this level on, and warnings of others; in the log of the
    project, if it has set one up for them, unless it asks for JSON."""
    own, others = logging.getLogger(f"semel.{name}"), logging.getLogger()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if is_json else formatter or logging.Formatter("semel: %(message)s"))
    handler.addFilter(lambda record: not record.name.endswith(_CHATTER))
    usual, propagates, is_told = own.level, own.propagate, own.hasHandlers()
    holder = None if is_told and not is_json else own if is_told else others
    if holder is not None:
        holder.addHandler(handler)
        own.propagate = holder is others
    if not own.isEnabledFor(level):
        own.setLevel(level)
    try:
        yield
    finally:
        own.setLevel(usual)
        own.propagate = propagates
        if holder is not None:
            holder.removeHandler(handler)


@contextlib.contextmanager
def _ended_by(stop: Callable[[], None], grace_seconds: float, logger: logging.Logger) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        # As a test may call it; nobody sends this thread a signal.
        yield
        return
    usual = {number: signal.getsignal(number) for number in _SIGNALS}
    has_ended, told = threading.Event(), list[int]()

    def restore() -> None:
        for number, handler in usual.items():
            signal.signal(number, handler)

    def end(number: int, _frame: FrameType | None) -> None:
        if told:
            restore()
            signal.raise_signal(number)
            return
        told.append(number)
        # In a thread, because the signal may have come while this one holds a lock that `stop` needs.
        threading.Thread(target=finish, name="semel-end", daemon=True).start()

    def finish() -> None:
        notify("STOPPING=1")
        stop()
        if not has_ended.wait(grace_seconds):
            logger.error(
                "it did not finish within %g s and ends now: what it held is rolled back, and the next one does it",
                grace_seconds,
            )
            logging.shutdown()
            os._exit(1)

    for number, handler in usual.items():
        # For a command in the background, or under nohup, the signal is ignored, and has to stay ignored.
        if handler != signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield
    finally:
        has_ended.set()
        # The process that was told to end goes on with that; `semel` would send itself the signal again.
        if not told:
            restore()
