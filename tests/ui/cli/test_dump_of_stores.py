"""`semel dump URL` shows what the store of a log holds, while brokers are on it and when something is damaged."""

import asyncio
from pathlib import Path

import pytest

from asking import Asker, at
from semel.log.replica.floor import FIRST_FLOOR, FLOOR_KEY, Floor, Piece
from semel.log.replica.membership import FORMAT_KEY, format_of
from semel.log.store import open_store
from semel.testing.served import ServedBroker
from semel_command import semel, semel_failure, semel_lines


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/store"


def test_a_store_is_shown_while_a_broker_is_on_it_and_so_is_what_is_damaged(url: str, tmp_path: Path) -> None:
    with ServedBroker(tmp_path / "disk", f"--store={url}") as broker:
        with Asker(broker.bootstrap) as asker:
            asker.create("payments")
            asker.produce("payments", at(1), producer_id=0, producer_epoch=0, base_sequence=0)
        lines = semel_lines("dump", url, "--journal", "--segments", "--producers", "--transactions", "--groups")
    assert lines[0].startswith(f"store       {url}, cluster ")
    assert "  partition 0  offsets 0 to 1, 1 producer" in lines
    assert any(line.startswith("journal/000000000000  epoch 1, a fence") for line in lines)
    assert any(line.startswith("  BatchAppended payments-0 ") for line in lines)
    assert any(line.startswith("payments-0  producer 0  epoch 0  last sequence 0") for line in lines)
    [slot] = [path for path in (tmp_path / "store" / "journal").iterdir() if path.name.endswith("4")]
    slot.write_bytes(slot.read_bytes()[:-1] + b"?")
    told = semel("dump", url, "--journal")
    assert told.returncode == 1
    damage = "slot 4 is damaged: the digest does not match its entries"
    assert f"journal/000000000004  DAMAGED: {damage}" in told.stdout
    assert any(line.startswith("  BatchAppended ") for line in told.stdout.splitlines()), "what lies behind it"


def test_a_checkpoint_that_is_gone_is_named(url: str) -> None:
    async def prepare() -> None:
        store = open_store(url)
        floor = Floor(1, 5, 0, (Piece("checkpoints/5-1-a-0", 10, "00"),))
        await store.create(FLOOR_KEY, floor.encode())
        await store.create(FORMAT_KEY, format_of("x"))
        await store.close()

    asyncio.run(prepare())
    told = semel("dump", url)
    assert told.returncode == 1
    assert "STOPPED     checkpoints/5-1-a-0 is not in " in told.stdout
    assert "and the newest checkpoint needs it" in told.stdout


async def test_a_store_on_which_no_broker_has_written_is_empty(url: str) -> None:
    store = open_store(url)
    await store.create(FLOOR_KEY, FIRST_FLOOR.encode())
    await store.create(FORMAT_KEY, format_of("x"))
    await store.close()
    assert semel_lines("dump", url)[:3] == [
        f"store       {url}, cluster x",
        "checkpoint  none yet",
        "journal     0 entries in 0 slots; the next slot is 0, in epoch 0",
    ]


def test_what_is_no_store_of_a_log_is_one_line(url: str, tmp_path: Path) -> None:
    assert semel_failure("dump", f"file://{tmp_path}").endswith("no broker was ever here")
    assert "ftp" in semel_failure("dump", "ftp://host/prefix")


@pytest.mark.parametrize("command", ["dump", "status"])
def test_a_command_that_only_looks_makes_no_store(url: str, tmp_path: Path, command: str) -> None:
    """A URL with a typing error, or a disk that is not mounted, would look like a store that is empty from then on."""
    assert semel_failure(command, url) == f"{url}: there is no such directory"
    assert list(tmp_path.iterdir()) == []
