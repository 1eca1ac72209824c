"""One file for each API of the protocol, with its declaration and its handler, and the search for these files.

A handler gets the body of a request, uses the log, and answers through the exchange. It runs on the event loop, in
steps, and must not block.
"""

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from semel.log.broker.declaration import Api
from semel.log.broker.exchange import Exchange
from semel.log.broker.serving import Handler, Serving
from semel.wire.errors import ProtocolError
from semel.wire.steps import Steps

_MODULES: Final = [import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)]
# The declarations and the handlers by the keys of their APIs. A module without a declaration is a part of several APIs.
_DECLARED: Final = sorted((module.API.key, module) for module in _MODULES if hasattr(module, "API"))
APIS: Final[Mapping[int, Api]] = {key: module.API for key, module in _DECLARED}
HANDLERS: Final[Mapping[int, Handler]] = {key: module.handle for key, module in _DECLARED}


def served_by_its_handler(broker: Serving, exchange: Exchange, body: memoryview) -> Steps[None]:
    """The steps that serve a request. If there is no handler for its API or version, they end in a ProtocolError."""
    if exchange.api is None:
        return _refused(exchange)
    return HANDLERS[exchange.api_key](broker, exchange, body)


def _refused(exchange: Exchange) -> Steps[None]:
    version = f"version {exchange.version} of " if exchange.api_key in APIS else ""
    raise ProtocolError(f"{version}API {exchange.api_key} is not served")
    yield
