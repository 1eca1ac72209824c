"""How far a partition is held back by transactions is told truly while it grows."""

from collections.abc import Iterable
from typing import cast

import pytest

from semel.client.cluster import Cluster
from semel.client.places import Isolation, Position, TopicPartition
from semel.client.topics import stable_and_ends

WHERE = TopicPartition("orders", 0)


class Growing:
    """A cluster whose partition has ten records more at each question; a transaction may have begun at an offset."""

    def __init__(self, begun: int | None) -> None:
        self._end, self._begun = 100, begun

    def offsets(
        self, partitions: Iterable[TopicPartition], at: Position, isolation: Isolation
    ) -> list[tuple[TopicPartition, int]]:
        self._end += 10
        begun = self._begun if isolation == Isolation.READ_COMMITTED else None
        return [(where, self._end if begun is None else begun) for where in partitions]


@pytest.mark.parametrize(("begun", "held"), [(None, 0), (30, 80)])
def test_only_transactions_hold_offsets_back(begun: int | None, held: int) -> None:
    stable, ends = stable_and_ends(cast(Cluster, Growing(begun)), [WHERE])
    assert ends[WHERE] - stable[WHERE] == held
