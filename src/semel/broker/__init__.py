"""The broker: sockets and timers, and the code that connects them with the rules, the codecs and the log."""

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """`semel.broker` is this package; calling it calls `semel.embedded.broker`."""

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        from semel.embedded import broker

        return broker(*arguments, **settings)


sys.modules[__name__].__class__ = _Room
