"""Sockets, timers and wiring: what turns the rules, the codecs and the log into a broker."""

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """`semel.broker` is this package, and, called, what `semel.embedded` offers under that name."""

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        from semel.embedded import broker

        return broker(*arguments, **settings)


sys.modules[__name__].__class__ = _Room
