"""`semel repair` shows what a start stops at, and sets it aside on request; `semel serve` and `semel dump` name it."""

from pathlib import Path

from ledger import Caller, Ledger
from semel.core.entries import TransactionGrew
from semel.storage.encoding import encode
from semel.storage.files import DiskFiles
from semel_command import semel, semel_failure, semel_lines


def spoilt(data: Path) -> str:
    """A directory with an entry that cannot be; answers how a start speaks of it."""
    caller = Caller(DiskFiles(data), Ledger())
    caller.create("orders")
    position = caller.log.end
    caller.log._journal.append(*encode(TransactionGrew(7, 0, (), (), 0)))
    caller.log.abandon()
    place = f"{data}/journal/{0:016x}:{position}"
    return (
        f"{place}: entry at position {position}, TransactionGrew producer id 7: no transactional id has producer id 7"
    )


def test_a_start_that_stops_at_an_entry_shows_the_way_on(tmp_path: Path) -> None:
    misfit = spoilt(tmp_path)
    said = semel_failure("serve", f"--data={tmp_path}", "--listen=127.0.0.1:0")
    assert said == f"the data directory cannot be used: {misfit}; semel repair {tmp_path} shows a way on"
    dumped = semel("dump", str(tmp_path), "--journal")
    assert dumped.returncode == 1
    assert f"STOPPED     {misfit}" in dumped.stdout
    assert "TransactionGrew producer_id=7" in dumped.stdout


def test_repair_looks_and_changes_nothing_until_it_is_told_to_set_aside(tmp_path: Path) -> None:
    misfit = spoilt(tmp_path)
    for _ in range(2):
        looked = semel("repair", str(tmp_path))
        assert (looked.returncode, looked.stdout) == (1, f"a start would stop at {misfit}\n")
    (aside, done) = semel_lines("repair", str(tmp_path), "--set-aside")
    (copy,) = (tmp_path / "set-aside").iterdir()
    assert aside == f"set aside: {misfit}; kept in {copy}"
    assert done == "the directory is consistent again: a broker may start on it"
    assert semel_lines("repair", str(tmp_path)) == ["no entry stops a start"]


def test_damaged_bytes_are_not_set_aside(tmp_path: Path) -> None:
    caller = Caller(DiskFiles(tmp_path), Ledger())
    caller.close()
    checkpoint = tmp_path / "checkpoint"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1] + b"?")
    said = semel_failure("repair", str(tmp_path), "--set-aside")
    assert said.endswith("this cannot be set aside: restore a backup")
