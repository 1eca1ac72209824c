"""Holds signals back while a process is started, so that a run which a signal ends can end all its processes.

It must never depend on what is started.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Final

_ENDINGS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Deliver signals only after the block: an exception while a process is being started would leave behind a process
    that no code knows. The caller has to remember the process inside the block, and must leave it soon.
    """
    if threading.current_thread() is not threading.main_thread():
        # Python handles signals only in the main thread.
        yield
        return
    came: list[int] = []
    # Only a handler can raise. An ignored signal has to stay ignored, because the new process is to ignore it, too.
    usual = {number: handler for number in _ENDINGS if callable(handler := signal.getsignal(number))}
    try:
        for number in usual:
            signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
        for ending in came:
            signal.raise_signal(ending)
