"""Signals held back while a process is started, so that a run which a signal ends can end every process it started.

It must never know what is started.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Final

_ENDINGS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Deliver a signal that comes meanwhile afterwards. Its exception in the middle of starting a process would leave
    behind a process that no code knows. Inside the block the caller also has to note the process. For moments only."""
    if threading.current_thread() is not threading.main_thread():
        # No signal strikes here.
        yield
        return
    came: list[int] = []
    # Only a handler can raise. A signal that is ignored has to stay so, because the new process is to ignore it too.
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
