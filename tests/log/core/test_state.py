"""The one dispatch of entries: nothing that is written to the journal has nobody to take it in."""

from typing import get_args

from semel.log.core.entries import BatchAppended, Entry, TopicDeleted
from semel.log.core.groups.groups import Groups
from semel.log.core.shares import Shares
from semel.log.core.state import Holder, State
from semel.log.core.topics import Catalog


def test_every_entry_but_a_batch_has_its_machines_and_a_topic_goes_from_its_partitions_last() -> None:
    state: State[Holder] = State(Catalog(), Groups(), Shares(1), lambda *_: [])
    assert set(state._machines) == set(get_args(Entry)) - {BatchAppended}
    # Watchers of the partitions look into all the others.
    assert state._machines[TopicDeleted][-1] is state.partitions
