"""A broker that dies between any two steps of administration comes back with all that was acknowledged, and no change
to users, access rules or quotas is half made."""

from itertools import pairwise

import pytest

from administration import CHANGES, told
from semel.log.storage.log import Log
from semel.log.storage.log_settings import LogSettings
from semel.testing.faulty import Crashed, Fault, FaultKind, FaultyFiles, lose_all

# Small, so that there is a new file of the journal within the few changes.
SETTINGS = LogSettings(journal_file_bytes=4096)
# A checkpoint after every fourth change.
CHECKPOINT_EVERY = 4

States = list[tuple[object, ...]]


def opened(files: FaultyFiles) -> Log:
    return Log.open(files, new_cluster_id="cluster", settings=SETTINGS)


def administrate(files: FaultyFiles, acknowledged: States) -> None:
    """Make each change, wait until it is durable, and note what others see then."""
    log = opened(files)
    acknowledged.append(told(log))
    for number, change in enumerate(CHANGES, 1):
        log.commit(change)
        log.sync_now()
        acknowledged.append(told(log))
        if number % CHECKPOINT_EVERY == 0:
            log.checkpoint_now()


@pytest.mark.parametrize("kind", ["crash after", "torn"])
def test_whenever_the_broker_dies_each_change_is_whole_and_none_that_was_acknowledged_is_lost(kind: FaultKind) -> None:
    rehearsal, states = FaultyFiles(), States()
    administrate(rehearsal, states)
    assert all(one != other for one, other in pairwise(states))
    kinds = ("write", "sync", "rename", "sync_directory") if kind == "crash after" else ("write",)
    calls = [call for call in rehearsal.calls if call.kind in kinds]
    assert len(calls) > len(CHANGES)
    for call in calls:
        fault = Fault(kind, call.number, keep=call.size // 2)
        files, acknowledged = FaultyFiles(fault), States()
        with pytest.raises(Crashed):
            administrate(files, acknowledged)
        done = max(len(acknowledged) - 1, 0)
        for left in (files.after_kill(), files.survivors(lose_all), files.survivors(call.number)):
            log = opened(left)
            # The change under way may have been made, although nobody was told.
            assert told(log) in states[done : done + 2], (fault, done)
            for change in CHANGES[states.index(told(log), done) :]:
                log.commit(change)
            assert told(log) == states[-1]
