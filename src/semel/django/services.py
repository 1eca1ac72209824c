"""What the commands that run until they are told to end have in common: signals, and what they tell.

The first SIGTERM, Ctrl-C or SIGHUP lets the command finish what it holds, and it ends with 0; a second one is as
without this. It must leave the signals as they were.
"""

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def ended_by(stop: Callable[[], None]) -> Iterator[None]:
    usual = {number: signal.getsignal(number) for number in _SIGNALS}

    def restore() -> None:
        for number, handler in usual.items():
            signal.signal(number, handler)

    def end(_number: int, _frame: FrameType | None) -> None:
        restore()
        stop()

    if threading.current_thread() is not threading.main_thread():
        # As a test may call it; nobody sends this thread a signal.
        yield
        return
    for number, handler in usual.items():
        # For a command in the background, or under nohup, the signal is ignored, and has to stay ignored.
        if handler != signal.SIG_IGN:
            signal.signal(number, end)
    try:
        yield
    finally:
        restore()


@contextlib.contextmanager
def telling(name: str, stream: Any, first: str) -> Iterator[None]:
    """Logs what the room tells, from `first` on: by the logging of the project, or to `stream` if that has nothing for
    it."""
    logger = logging.getLogger(name)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("semel: %(message)s"))
    # And not what the client below it says on each try.
    handler.addFilter(lambda record: record.name == name)
    level, is_told = logger.level, logger.hasHandlers()
    if not is_told:
        logger.addHandler(handler)
    if not logger.isEnabledFor(logging.INFO):
        logger.setLevel(logging.INFO)
    try:
        logger.info("%s", first)
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)
