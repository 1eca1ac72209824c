"""The files that the process may open: clients that connect leave the log enough of them."""

import errno
import os
import resource

import pytest

from asking import Asker, ConnectionEnded
from semel.broker.broker import Broker
from semel.broker.limits import Limits
from semel.storage.files import MemoryFile, MemoryFiles, sync
from semel.testing.broker import FaultyBroker
from semel.wire.versions import API_VERSIONS


def allow(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (count, count))


@pytest.mark.parametrize(
    ("allowed", "connections"), [(40, 10), (256, 128), (400, 236), (1_024, 704), (65_536, 2_000), (-1, 2_000)]
)
def test_connections_and_segments_leave_files_for_the_journal(
    monkeypatch: pytest.MonkeyPatch, allowed: int, connections: int
) -> None:
    allow(monkeypatch, allowed)
    broker = Broker()
    assert broker.limits == Limits(connections_max=connections)
    if allowed > 0:
        assert broker.limits.connections_max + broker._settings.open_segments_max < allowed


def test_a_limit_that_was_asked_for_is_never_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, 65_536)
    assert Broker(limits=Limits(connections_max=7)).limits.connections_max == 7


def test_who_connects_when_no_file_is_left_for_him_is_sent_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the log could open no file: it refused all writes, and ended at the next checkpoint."""
    allow(monkeypatch, 100)
    with FaultyBroker() as broker:
        askers = [Asker(broker.bootstrap) for _ in range(25)]
        for asker in askers:
            assert asker(API_VERSIONS, 0).error_code == 0
        late = Asker(broker.bootstrap)
        with pytest.raises((ConnectionEnded, ConnectionError)):
            late(API_VERSIONS, 0)
        for asker in (*askers, late):
            asker.close()
    assert "event=connections_limited connections_max=25 open_files_max=100" in caplog.text


@pytest.mark.parametrize("lack", [errno.EMFILE, errno.ENFILE])
def test_a_file_that_could_not_be_opened_to_sync_it_is_no_failed_sync(lack: int) -> None:
    """Nothing was lost by it, so the same sync can be tried again."""

    class FullTable(MemoryFiles):
        def open(self, path: str, *, create: bool = False) -> MemoryFile:
            raise OSError(lack, os.strerror(lack), path)

    with pytest.raises(OSError, match=os.strerror(lack)) as refused:
        sync(FullTable(), ["topics/0-orders/0/0.log"], [])
    assert refused.value.errno == lack
