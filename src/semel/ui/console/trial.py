"""A trial: the console's own broker behind a faulty network, with switches for the faults.

    clients -> the faulty network (semel.chaos) -> `semel serve` in its own process

The faults strike producers that connect through the network, and the page shows the broker's decisions beside the
switches. A switch kills the broker, and starts it again on its data. This must never touch another broker.
"""

import threading
from collections.abc import Mapping
from typing import Any, Final, Self

from semel.chaos.plan import Fault, FaultPlan
from semel.chaos.proxy import ChaosProxy
from semel.testing.ports import free_port
from semel.testing.served import ServedBroker, ServeFailed
from semel.ui.console.http import PageRefused
from semel.ui.console.plans import Plan
from semel.ui.console.query import Query

# The faults with a switch: the words of the switch, and those about its effect.
FAULTS: Final[Mapping[Fault, tuple[str, str]]] = {
    Fault.DROP_ACK: ("Lose the next ACK", "The next acknowledgement of a batch is lost."),
    Fault.CUT: ("Cut the next request", "The next request is cut off somewhere, and its connection with it."),
    Fault.RESET: ("Reset a connection", "The connection of the next request is reset."),
    Fault.TRUNCATE: ("Break off the next answer", "The next answer ends in its middle."),
    Fault.HANG: ("Hang", "From the next request on nothing passes for a while."),
}
TIMES_MAX: Final = 1_000
# The maximum of the lasting switch: the share of lost acknowledgements, in percent.
PERCENT_MAX: Final = 50

Answer = dict[str, Any]


class Trial:
    """The broker and the network in front of it, from `start` to `stop`."""

    def __init__(self, data: str) -> None:
        # The same port after each kill, because the console reads the broker's decisions there.
        self._broker = ServedBroker(data, f"--metrics=127.0.0.1:{free_port()}")
        self._proxy: ChaosProxy
        self._plan = FaultPlan()
        self._percent = 0
        self._kills = 0
        self._state = "running"
        self._changing = threading.Lock()

    def start(self) -> Self:
        """Start both. Raises ServeFailed if the broker does not start."""
        self._broker.start()
        self._proxy = ChaosProxy(self._broker.bootstrap, self._plan).start()
        return self

    def stop(self) -> None:
        self._proxy.stop()
        self._broker.stop()

    @property
    def bootstrap(self) -> str:
        """The address of the broker itself, without faults, for the console."""
        return self._broker.bootstrap

    @property
    def clients_bootstrap(self) -> str:
        """The address for clients' `bootstrap.servers`."""
        return self._proxy.bootstrap

    @property
    def metrics_address(self) -> tuple[str, int]:
        host, _, port = self._broker.metrics_address.rpartition(":")
        return host, int(port)

    def status(self) -> Answer:
        """The state of the switches, and what has happened so far."""
        return {
            "trial": {
                "clients": self.clients_bootstrap,
                "broker": self.bootstrap,
                "state": self._state,
                "kills": self._kills,
                "percent": self._percent,
                "connections": self._proxy.connections,
                "requests": self._plan.requests,
                "hang_ms": self._plan.hang_ms,
                "faults": [
                    {"fault": fault.value, "switch": switch, "struck": self._plan.fired[fault]}
                    for fault, (switch, _) in FAULTS.items()
                ],
            }
        }

    def strike(self, query: Query) -> Plan:
        """Let a fault strike the next messages that it can strike."""
        try:
            fault = Fault(query.text("fault"))
            said = FAULTS[fault][1]
        except (ValueError, KeyError):
            raise PageRefused(400, f"fault is one of {', '.join(one.value for one in FAULTS)}") from None
        times = query.number("times", 1, least=1, most=TIMES_MAX)

        def do() -> str:
            self._plan.arm(fault, times)
            return said

        return Plan(do)

    def lose(self, query: Query) -> Plan:
        """Lose a share of all acknowledgements from now on."""
        percent = query.number("percent", most=PERCENT_MAX)

        def do() -> str:
            self._percent = percent
            self._plan.odds = {Fault.DROP_ACK: percent / 100} if percent else {}
            return f"{percent} % of all acknowledgements are lost." if percent else "No acknowledgement is lost."

        return Plan(do)

    def calm(self, query: Query) -> Plan:
        """End all faults."""

        def do() -> str:
            self._percent = 0
            self._plan.calm()
            return "Nothing more goes wrong."

        return Plan(do)

    def kill(self, query: Query) -> Plan:
        """Kill the broker with `kill -9`, and start it again on the same data."""
        said = "The process of the broker gets a kill -9, and is started again on its data. Clients lose connections."
        return Plan(self._kill, title="Kill the broker?", button="Kill it", says=(said,))

    def _kill(self) -> str:
        if not self._changing.acquire(blocking=False):
            raise PageRefused(400, "the broker is being started already")
        try:
            self._state = "killed, and being started again"
            self._broker.kill()
            self._kills += 1
            self._broker.start()
            self._state = "running"
            return f"The broker was killed (kill -9), and is back after {self._broker.ready_seconds:.2f} s."
        except ServeFailed as failed:
            self._state = "away"
            raise PageRefused(502, str(failed)) from None
        finally:
            self._changing.release()
