"""Access rules outlive the process: those that were acknowledged hold after a kill, whatever the checkpoint holds."""

import pytest

from semel.log.core.access import Asker, Operation, ResourceType
from semel.log.core.entries import AccessRule
from semel.log.storage.log import Log
from semel.log.storage.log_settings import LogSettings
from semel.testing.faulty import FaultyFiles, keep_all

SETTINGS = LogSettings(journal_file_bytes=16384)
FIRST = AccessRule(2, "orders", 3, "User:app", "*", 4, 3)
SECOND = AccessRule(2, "pay", 4, "User:ä", "::1", 2, 2)
WRITE, TOPIC = Operation.WRITE, ResourceType.TOPIC


def start(files: FaultyFiles) -> Log:
    return Log.open(files, new_cluster_id="cluster", settings=SETTINGS)


def add(log: Log, *rules: AccessRule) -> None:
    entry = log.state.access.decide_add(rules)
    assert entry is not None
    log.commit(entry)


def remove(log: Log, *rules: AccessRule) -> None:
    entry = log.state.access.decide_remove(rules)
    assert entry is not None
    log.commit(entry)


@pytest.mark.parametrize("checkpointed", [False, True])
def test_rules_hold_after_a_kill_as_they_held_before_it(checkpointed: bool) -> None:
    files = FaultyFiles()
    log = start(files)
    add(log, FIRST, SECOND)
    if checkpointed:
        log.checkpoint_now()
    remove(log, FIRST)
    add(log, FIRST._replace(name="other"))
    log.sync_now()
    for _ in range(2):
        files = files.survivors(keep_all)
        log = start(files)
        assert list(log.state.access) == [SECOND, FIRST._replace(name="other")]
        assert not log.state.access.allows(Asker("User:app", "10.0.0.7"), WRITE, TOPIC, "orders")
        assert log.state.access.allows(Asker("User:app", "10.0.0.7"), WRITE, TOPIC, "other")


def test_a_rule_is_answered_only_when_it_is_durable_though_records_need_not_be() -> None:
    """Or whoever was shut out would be let in again after a loss of power."""
    log = start(FaultyFiles())
    for change in (add, remove):
        change(log, FIRST)
        assert log.identity_end == log.end > log.synced
        log.commit(log.state.catalog.decide_create(change.__name__, 1, {}, change.__name__.encode().ljust(16), 0))
        assert log.identity_end < log.end
        log.sync_now()
