"""semel: exactly once, from the first request to the last row.

What a program gets from `import semel` is a broker:

    with semel.broker() as broker: ...            a broker in a thread of its own
    async with semel.Broker() as broker: ...      a broker in the running event loop
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semel.log.brokers import Broker
    from semel.log.embedded import EmbeddedBroker, broker

__all__ = ["Broker", "EmbeddedBroker", "__version__", "broker"]

__version__ = "0.1.0"

# Where each public name lives. They are imported on first use: the application pieces need no broker.
_HOMES = {
    "Broker": "semel.log.brokers",
    "EmbeddedBroker": "semel.log.embedded",
    "broker": "semel.log.embedded",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'semel' has no attribute '{name}'")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
