"""What administrators set is in every checkpoint, is encoded once, and is never older than its last change."""

import json
from collections.abc import Callable

import pytest

from administration import CHANGES, told
from semel.log.core.entries import AccessRule, AccessRulesAdded, AccessRulesRemoved
from semel.log.storage import checkpoint
from semel.log.storage.log import Log
from semel.log.storage.log_settings import LogSettings
from semel.testing.faulty import FaultyFiles, keep_all

MANY = 10_000
RULES = [AccessRule(2, f"topic-{number}", 3, "User:app", "*", 4, 3) for number in range(MANY)]


def start(files: FaultyFiles) -> Log:
    return Log.open(files, new_cluster_id="cluster", settings=LogSettings(journal_file_bytes=16384))


def test_a_checkpoint_has_each_change_that_was_made_before_it() -> None:
    files = FaultyFiles()
    log = start(files)
    for change in CHANGES:
        log.checkpoint_now()
        log.commit(change)
        log.checkpoint_now()
        files_now = files.survivors(keep_all)
        assert told(start(files_now)) == told(log), change


def test_a_change_after_a_checkpoint_has_begun_is_in_the_next_one() -> None:
    """The thread that writes it encodes users, rules and quotas while the event loop changes them."""
    log, twin = start(FaultyFiles()), start(FaultyFiles())
    for change in CHANGES:
        snapshot, before = log.state.begin_snapshot(), texts(twin.state.begin_snapshot())
        log.commit(change)
        twin.commit(change)
        assert texts(snapshot) == before
        assert texts(twin.state.begin_snapshot()) != before


def texts(snapshot: dict[str, object]) -> bytes:
    return b"".join(checkpoint.encode({name: snapshot[name] for name in ("access", "users", "quotas")}, []))


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many characters JSON's encoder has made since the last call."""
    sizes: list[int] = []

    def note(encoder: json.JSONEncoder, value: object) -> str:
        text = encode(encoder, value)
        sizes.append(len(text))
        return text

    def count() -> int:
        made = sum(sizes)
        sizes.clear()
        return made

    encode = json.JSONEncoder.encode
    monkeypatch.setattr(json.JSONEncoder, "encode", note)
    return count


def test_ten_thousand_rules_are_encoded_once_and_again_when_one_changes(encoded: Callable[[], int]) -> None:
    log = start(FaultyFiles())
    log.checkpoint_now()
    encoded()
    log.checkpoint_now()
    without = encoded()
    log.commit(AccessRulesAdded(tuple(RULES)))
    log.checkpoint_now()
    assert encoded() > MANY * 30
    for _ in range(3):
        log.checkpoint_now()
        assert encoded() < 1.03 * without
    log.commit(AccessRulesRemoved(tuple(RULES[:1])))
    log.checkpoint_now()
    assert encoded() > MANY * 30
