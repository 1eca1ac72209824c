"""Signals held back while a process is started, so that whoever is ended by one knows of all that he has to end.

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
    """A signal that comes meanwhile strikes afterwards: where a process is being started, its exception would leave one
    behind of which nobody knows. In the block the process has to become known, too. For moments."""
    if threading.current_thread() is not threading.main_thread():
        # No signal strikes here.
        yield
        return
    came: list[int] = []
    # Nothing but a handler raises anything, and what is ignored has to stay so: who is started is to ignore it, too.
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
