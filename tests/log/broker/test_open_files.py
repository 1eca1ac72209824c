"""The files that the process may open: clients that connect leave the log enough of them."""

import asyncio
import errno
import logging
import os
import resource
from types import SimpleNamespace
from typing import Any

import pytest

from asking import Asker, ConnectionEnded
from semel.log.broker import open_files
from semel.log.broker.apis import APIS
from semel.log.broker.broker import Broker
from semel.log.broker.forwarder import Forwarder
from semel.log.broker.limits import Limits
from semel.log.storage.files import MemoryFile, MemoryFiles, sync
from semel.testing.broker import FaultyBroker
from semel.testing.stores import MemoryStore
from semel.wire.versions import API_VERSIONS, METADATA


def allow(monkeypatch: pytest.MonkeyPatch, count: int, opened: int = 0) -> None:
    """The process may open this many files, and has opened some of them already."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (count, count))
    monkeypatch.setattr(open_files, "_open_now", lambda: opened)


@pytest.mark.parametrize(
    ("allowed", "opened", "connections"),
    [
        *((40, 0, 10), (256, 0, 128), (400, 0, 236), (1_024, 0, 704), (65_536, 0, 2_000), (-1, 0, 2_000)),
        *((256, 60, 83), (1_024, 900, 31), (1_024, 1_024, 4)),
    ],
)
def test_connections_and_segments_leave_files_for_the_journal(
    monkeypatch: pytest.MonkeyPatch, allowed: int, opened: int, connections: int
) -> None:
    """And for what the program that embeds the broker has open."""
    allow(monkeypatch, allowed, opened)
    broker = Broker()
    assert broker.limits.connections_max == connections
    if opened < allowed:
        assert opened + broker.limits.connections_max + broker._settings.open_segments_max < allowed


@pytest.mark.parametrize("allowed", [256, 400, 1_024])
def test_so_do_the_sockets_with_which_a_standby_forwards(monkeypatch: pytest.MonkeyPatch, allowed: int) -> None:
    """And the calls of its store. Clients of a standby that only ask for Metadata took every file of the process."""
    allow(monkeypatch, allowed)
    broker = Broker(store=MemoryStore())
    forwarded_max = broker._forwarder._under_way_max
    assert forwarded_max > 20
    taken = broker.limits.connections_max + broker._settings.open_segments_max + forwarded_max
    assert taken + 96 <= allowed


async def test_a_standby_forwards_no_more_at_once_than_it_has_sockets_for() -> None:
    reached = asyncio.Event()

    async def reach(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        await reached.wait()
        raise OSError

    forwards = Forwarder(reach, 1000, under_way_max=2)
    exchange: Any = SimpleNamespace(api=APIS[METADATA], connection=SimpleNamespace(is_of_a_standby=False))
    for _ in range(2):
        assert forwards.takes(exchange)
        forwards.forward(("host", 9092), exchange, b"", lambda: None, lambda: None)
    assert not forwards.takes(exchange)
    exchange.is_lost = True
    forwards.stop()
    await asyncio.gather(*forwards._tasks, return_exceptions=True)


@pytest.mark.parametrize("allowed", [40, 256, 400, 1_024, 65_536])
def test_strangers_never_have_all_places(monkeypatch: pytest.MonkeyPatch, allowed: int) -> None:
    """With few files, too, they have a quarter of them, and one address has a fifth of these."""
    allow(monkeypatch, allowed)
    limits = Broker().limits
    assert 1 <= limits.unknown_connections_max <= limits.connections_max // 4
    assert 1 <= limits.unknown_connections_per_address_max <= max(limits.unknown_connections_max // 5, 1)
    shut = Broker(limits=Limits(unknown_connections_max=0, unknown_connections_per_address_max=2)).limits
    assert shut.unknown_connections_max == 0


def test_what_is_open_is_counted() -> None:
    before = open_files._open_now()
    descriptors = [os.open(os.devnull, os.O_RDONLY) for _ in range(5)]
    assert open_files._open_now() == before + 5
    for descriptor in descriptors:
        os.close(descriptor)


def test_where_the_system_does_not_tell_the_standard_streams_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(directory: str) -> list[str]:
        raise FileNotFoundError(directory)

    monkeypatch.setattr(os, "listdir", refuse)
    assert open_files._open_now() == 3


@pytest.mark.parametrize(
    ("allowed", "asked_for", "warns"), [(1_024, None, False), (100, None, True), (1_024, 1_500, True)]
)
def test_an_operator_is_warned_of_few_connections(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    allowed: int,
    asked_for: int | None,
    warns: bool,
) -> None:
    """Or of fewer than he has asked for. A program with the usual 1,024 files that embeds a broker is not: each start
    would tell it something that it need not know.
    """
    caplog.set_level(logging.INFO, "semel")
    allow(monkeypatch, allowed)
    Broker(limits=None if asked_for is None else Limits(connections_max=asked_for))
    (told,) = (record for record in caplog.records if "connections_limited" in record.getMessage())
    assert (told.levelno == logging.WARNING) is warns


def test_a_limit_that_was_asked_for_is_never_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, 65_536)
    assert Broker(limits=Limits(connections_max=7)).limits.connections_max == 7


def test_who_connects_when_no_file_is_left_for_him_is_sent_away(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the log could open no file: it refused all writes, and ended at the next checkpoint."""
    allow(monkeypatch, 100)
    with FaultyBroker() as broker:
        # One address has half of the places, and one more that is kept for its listener.
        askers = [Asker(broker.bootstrap) for _ in range(13)]
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
