"""A relay that ends because another one has taken a shard is counted once, wherever it finds that out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from relaying import Relays
from sqlalchemy import Engine

from eventually import eventually
from semel import outbox
from semel.metrics import Count, hook
from semel.outbox import Relay, RelayFenced
from semel.publish import Publisher

FENCED = "semel_outbox_fenced_total"


@pytest.fixture
def counts() -> Iterator[Counter[str]]:
    """How much each counter was raised by."""
    counted: Counter[str] = Counter()

    def note(count: Count) -> None:
        counted[count.name] += count.by

    take_off = hook(note)
    yield counted
    take_off()


@pytest.mark.parametrize("shards", [None, 2])
@pytest.mark.parametrize("work", [Relay.run, Relay.drain])
def test_a_relay_that_is_fenced_at_its_start_is_counted(
    relays: Relays, counts: Counter[str], work: Callable[[Relay], Any], shards: int | None
) -> None:
    """With another number of shards, it opens the old ones to settle them before it has any thread."""
    relays.drain()

    class Slow(Publisher):
        def last(self) -> int:
            relays.drain()
            return super().last()

    with pytest.raises(RelayFenced):
        work(relays.make(publisher=Slow, shards=shards))
    assert counts[FENCED] == 1


def test_a_relay_of_many_shards_is_counted_once(engine: Engine, relays: Relays, counts: Counter[str]) -> None:
    first = relays.run(shards=3)
    assert eventually(lambda: has_owners(engine, 3))
    relays.drain()
    first.end()
    assert isinstance(first.error, RelayFenced)
    assert counts[FENCED] == 1


def has_owners(engine: Engine, count: int) -> bool:
    with engine.connect() as connection:
        return [shard.owner is not None for shard in outbox.status(connection).shards] == [True] * count
