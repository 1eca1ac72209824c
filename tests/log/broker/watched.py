"""A broker in a thread of its own, with limits, and a look into it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import semel
from asking import Asker
from semel.log.broker.broker import Broker
from semel.log.broker.chores import keep_house
from semel.log.broker.limits import Limits
from semel.wire.steps import finish


class Watched:
    """A broker in its thread, and a look into it."""

    def __init__(self, embedded: semel.EmbeddedBroker) -> None:
        self.bootstrap = embedded.bootstrap
        self._embedded = embedded
        self._askers: list[Asker] = []

    def connect(self, *, source: str = "") -> Asker:
        asker = Asker(self.bootstrap, source=source)
        self._askers.append(asker)
        return asker

    def look(self, question: Callable[[Broker], Any]) -> Any:
        """The answer to a question that is asked on the broker's own event loop."""

        async def ask() -> Any:
            return question(self._embedded._broker)

        return self._embedded._call(ask())

    def wait(self, condition: Callable[[Broker], bool]) -> None:
        """Return when something holds; the test's own deadline ends what never does."""
        while not self.look(condition):
            pass

    def keep_house(self) -> None:
        """What the broker does every few seconds."""
        self.look(lambda broker: finish(broker._chores._look_at_connections()))
        self.look(lambda broker: finish(keep_house(broker.runtime)))

    def pass_a_millisecond(self) -> None:
        """What comes next has another time."""
        before = self.look(lambda broker: broker.runtime.clock.steady_ms())
        self.wait(lambda broker: broker.runtime.clock.steady_ms() > before)

    def close(self) -> None:
        for asker in self._askers:
            asker.close()


@contextmanager
def serving(**limits: int) -> Iterator[Watched]:
    with semel.broker(limits=Limits(**limits)) as broker:
        watched = Watched(broker)
        yield watched
        watched.close()
