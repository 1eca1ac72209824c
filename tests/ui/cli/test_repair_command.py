"""`semel repair` shows what a start stops at, and sets it aside on request; `semel serve` and `semel dump` name it."""

from pathlib import Path

from ledger import Caller, Ledger, batch
from semel.log.core.entries import TransactionGrew
from semel.log.storage.cache import mark_as_cache
from semel.log.storage.encoding import encode
from semel.log.storage.examination import examine
from semel.log.storage.files import DiskFiles, ReadOnlyFiles
from semel.log.storage.log import Log
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
        way_on = f"bring it back, or go on without it: semel repair {tmp_path} --set-aside"
        assert (looked.returncode, looked.stdout) == (1, f"a start would stop at {misfit}; {way_on}\n")
    (aside, done) = semel_lines("repair", str(tmp_path), "--set-aside")
    (copy,) = (tmp_path / "set-aside").iterdir()
    assert aside == f"set aside: {misfit}; kept in {copy}"
    assert done == "the directory is consistent again: a broker may start on it"
    size = copy.stat().st_size
    has = f"{tmp_path}/set-aside has 1 file ({size} bytes); --remove-set-aside removes them"
    assert semel_lines("repair", str(tmp_path)) == [has, "nothing stops a start"]
    assert semel_lines("repair", str(tmp_path), "--remove-set-aside") == [f"removed 1 file ({size} bytes)"]
    assert not (tmp_path / "set-aside").exists()
    assert semel_lines("repair", str(tmp_path)) == ["nothing stops a start"]


def test_repair_goes_on_without_what_is_lost_says_what_that_is_and_keeps_what_is_left(tmp_path: Path) -> None:
    caller = Caller(DiskFiles(tmp_path), Ledger())
    caller.create("orders", segment_bytes="1024")
    (partition,) = caller.log.state.partitions.all()
    for _ in range(8):
        caller.append(partition, batch(size=600))
    caller.sync()
    caller.log.abandon()
    newest = max(path for path in (tmp_path / "journal").iterdir() if not path.name.startswith("spare-"))
    newest.unlink()
    looked = semel("repair", str(tmp_path))
    assert looked.returncode == 1
    assert f"a start would stop at {newest}: missing" in looked.stdout
    assert "bytes of acknowledged changes" in looked.stdout
    *aside, done = semel_lines("repair", str(tmp_path), "--set-aside")
    assert any(f"{newest}: missing" in line for line in aside)
    assert done == "the directory is consistent again: a broker may start on it"
    kept = {path.name for path in (tmp_path / "set-aside").rglob("*") if path.is_file()}
    assert any(name.endswith(".log") for name in kept), "the records that the journal no longer has"
    Log.open(DiskFiles(tmp_path), new_cluster_id=None).close()


def test_repair_keeps_the_records_around_damage_in_a_segment_and_notes_what_it_gives_up(tmp_path: Path) -> None:
    caller = Caller(DiskFiles(tmp_path), Ledger())
    caller.create("orders", segment_bytes="4096")
    (partition,) = caller.log.state.partitions.all()
    for mark in range(10):
        caller.append(partition, batch(size=600, mark=mark))
    caller.close()
    first, *_ = sorted(tmp_path.rglob("*.log"))
    content = bytearray(first.read_bytes())
    content[1300] ^= 1
    first.write_bytes(content)
    looked = semel("repair", str(tmp_path)).stdout
    assert looked == (
        f"a start would stop at {first}: no intact batch at offset 1200; "
        "records from offset 2 to 5 are lost or damaged; "
        f"bring it back, or go on without it: semel repair {tmp_path} --set-aside\n"
    )
    (told, _) = semel_lines("repair", str(tmp_path), "--set-aside")
    assert told.endswith("records from offset 2 to 5 are lost or damaged, except 3 to 5, which are whole")
    log = Log.open(DiskFiles(tmp_path), new_cluster_id=None)
    (partition,) = log.state.partitions.all()
    offsets = [header.base_offset for header, _ in partition.batches(0, partition.readable)]
    assert offsets == [0, 1, 3, 4, 5, 6, 7, 8, 9]
    assert partition.given_up == [(2, 3)]
    log.close()
    (copy,) = (tmp_path / "set-aside").rglob("*.log")
    assert copy.read_bytes() == content


def test_damaged_bytes_are_not_set_aside(tmp_path: Path) -> None:
    caller = Caller(DiskFiles(tmp_path), Ledger())
    caller.close()
    checkpoint = tmp_path / "checkpoint"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1] + b"?")
    said = semel_failure("repair", str(tmp_path), "--set-aside")
    looked = semel("repair", str(tmp_path)).stdout
    assert said in looked
    assert not examine(ReadOnlyFiles(tmp_path), as_a_start=True).can_be_set_aside
    assert said.endswith("nothing can be read without this: bring it back, or restore a backup")


def test_a_cache_has_nothing_to_repair_and_the_store_is_named(tmp_path: Path) -> None:
    mark_as_cache(DiskFiles(tmp_path), "s3://bucket/log", "cluster")
    said = semel_failure("repair", str(tmp_path))
    assert "is only a cache of the log in s3://bucket/log" in said
    assert "semel dump s3://bucket/log --journal --segments" in said
