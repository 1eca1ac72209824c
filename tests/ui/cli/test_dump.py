"""What `semel dump` promises: it shows what is there as far as it can, says where it stops, and changes nothing."""

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from asking import Asker
from eventually import eventually
from ledger import SETTINGS, Caller, Ledger, batch
from semel.log.core.entries import OffsetsCommitted, PartitionName, StoredOffset, TransactionalOffsets
from semel.log.storage.aborted_blocks import BLOCK_LAYOUT
from semel.log.storage.examination import examine, segment_paths, walk_segment
from semel.log.storage.files import DiskFiles, ReadOnlyFiles
from semel.log.storage.journal import look_into, starts_of
from semel.log.storage.log import Log
from semel.testing.broker import FaultyBroker
from semel.testing.stores import MemoryStore
from semel.ui.cli import main
from semel.wire.batch import TRANSACTIONAL_BIT
from semel.wire.versions import INIT_PRODUCER_ID, OFFSET_COMMIT
from semel_command import semel, semel_failure, semel_lines

Contents = dict[str, tuple[int, int, bytes]]


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose broker was killed: seven batches of one producer are in the journal and in no checkpoint."""
    data = tmp_path_factory.mktemp("dump") / "data"
    broker = FaultyBroker(data).start()
    batches = [f"{number:0300000}" for number in range(7)]
    semel_lines("produce", "records", "--bootstrap", broker.bootstrap, stdin="\n".join(batches) + "\n")
    broker.kill()
    return data


@pytest.fixture
def copy(crashed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(crashed, tmp_path / "copy"))


def contents(data: Path) -> Contents:
    files = sorted(path for path in data.rglob("*") if path.is_file())
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size, path.read_bytes()) for path in files}


def change(path: Path, alter: Callable[[bytearray], None]) -> None:
    content = bytearray(path.read_bytes())
    alter(content)
    path.write_bytes(content)


def flip(at: int) -> Callable[[bytearray], None]:
    def alter(content: bytearray) -> None:
        content[at] ^= 0xFF

    return alter


def test_no_name_that_a_client_chose_makes_a_line_or_reaches_the_terminal_as_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "x\n  STOPPED: nothing is wrong\x1b[2J\u202e"
    with FaultyBroker(tmp_path / "data") as broker:
        broker.create_topic("orders")
        broker.add_user(name, "secret")
        with Asker(broker.bootstrap) as ask:
            ask(INIT_PRODUCER_ID, 1, transactional_id=name, transaction_timeout_ms=60_000)
            committed = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1}
            topics = [{"name": "orders", "partitions": [{**committed, "committed_metadata": name}]}]
            member = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
            ask(OFFSET_COMMIT, 8, group_id=name, **member, topics=topics)
    with pytest.raises(SystemExit) as ended:
        main(["dump", str(tmp_path / "data"), "--journal", "--transactions", "--groups"])
    assert not ended.value.code
    shown = capsys.readouterr().out.split("\n")
    assert sum("nothing is wrong" in line for line in shown) >= 4
    assert all(line.isprintable() for line in shown)
    assert not any(line.startswith("  STOPPED") for line in shown)


def test_what_recovery_would_find_is_shown(copy: Path) -> None:
    said = semel_lines("dump", str(copy))
    assert said[0].startswith("checkpoint  cluster ")
    assert said[1].startswith("journal     9 entries after the checkpoint, to position ")
    assert said[2].startswith("topic       records, number 0, id ")
    assert said[3] == "  partition 0  offsets 0 to 7, 1 producer"


def test_entries_batches_and_producers_are_shown_with_their_numbers(copy: Path) -> None:
    said = semel_lines("dump", str(copy), "--journal", "--segments", "--producers")
    kinds = [line.split()[6] for line in said if " durable to " in line]
    assert sorted(kinds) == ["BatchAppended"] * 7 + ["ProducerIdsReserved", "TopicCreated"]
    batch = "offsets 6 to 6, 300072 bytes, producer 1000/0 sequences 6 to 6"
    assert sum(batch in line for line in said) == 2
    assert any("producer 1000  epoch 0  last sequence 6 " in line for line in said)
    # The window of five, oldest first.
    assert [line.split()[1] for line in said if "went to offsets" in line] == ["2", "3", "4", "5", "6"]


def test_open_transactions_and_groups_are_shown_with_what_would_come_of_them(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    semel_lines("lab", "--data", data, stdin="INIT p\nPRODUCE p 0 a\nBEGIN p\nPRODUCE p 1 b\nPRODUCE p 0 c other\n")
    log = Log.open(DiskFiles(data), new_cluster_id="unused")
    name = PartitionName(0, 0)
    log.commit(OffsetsCommitted("readers", (StoredOffset(*name, 1, 0, "half way"),), -1, 5))
    log.commit(TransactionalOffsets(1000, 0, "readers", (StoredOffset(*name, 2, 0, ""),), 6))
    log.abandon()
    said = semel_lines("dump", data, "--transactions", "--groups")
    assert "  partition 0  offsets 0 to 2, stable to 1, 1 producer" in said
    assert "transactions  1 transactional id, 1 open" in said
    assert "groups        1 group" in said
    begin = next(index for index, line in enumerate(said) if line.startswith("transactional id p/1000  producer 1000"))
    assert "  epoch 0  ONGOING  timeout " in said[begin]
    assert said[begin + 1 : begin + 3] == ["    lab-0  from offset 1 on", "    other-0  from offset 0 on"]
    assert said[said.index("group readers") :] == [
        "group readers",
        "    lab-0  offset 1  committed 5  noted 'half way'",
        "    lab-0  offset 2  if producer 1000 commits",
    ]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_members_of_a_group_are_shown_when_their_broker_was_killed(tmp_path: Path, protocol: str) -> None:
    broker = FaultyBroker(tmp_path / "data").start()
    broker.create_topic("orders")
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "readers", "group.protocol": protocol}
    consumer = Consumer({**settings, "log_level": 0})
    consumer.subscribe(["orders"])
    assert eventually(lambda: consumer.poll(0.1) is None and consumer.assignment())
    broker.kill()
    [members] = [line for line in semel_lines("dump", str(tmp_path / "data"), "--groups") if "    members " in line]
    assert "rdkafka" in members
    consumer.close()


def test_the_directory_of_a_running_broker_is_left_alone(copy: Path) -> None:
    def is_left_alone() -> bool:
        before = contents(copy)
        said = semel_lines("dump", str(copy), "--journal", "--segments", "--producers")
        assert "  partition 0  offsets 0 to 8, 2 producers" in said
        return contents(copy) == before

    with FaultyBroker(copy) as broker:
        semel_lines("produce", "records", "--bootstrap", broker.bootstrap, stdin="one more\n")
        # The checkpoint of the copy is so old that the broker writes a new one by itself, some time after its start.
        assert is_left_alone() or is_left_alone()
    # After a clean stop everything is in the checkpoint.
    said = semel_lines("dump", str(copy))
    assert said[0].endswith("written after a clean stop")
    assert "  partition 0  offsets 0 to 8, 2 producers" in said


def test_a_directory_that_may_only_be_read_is_enough(copy: Path) -> None:
    (copy / "lock").unlink()
    (copy / "reserve").unlink()
    before = contents(copy)
    semel_lines("dump", str(copy), "--journal", "--segments", "--producers")
    assert contents(copy) == before


def test_damage_in_the_journal_is_named_and_what_lies_behind_it_is_shown(copy: Path) -> None:
    (journal,) = (copy / "journal").glob("0*")
    change(journal, flip(700_000))
    done = semel("dump", str(copy), "--journal")
    assert done.returncode == 1
    stopped = [line for line in done.stdout.splitlines() if line.startswith("STOPPED")]
    assert len(stopped) == 1
    assert str(journal) in stopped[0]
    assert "no valid entry at offset" in stopped[0]
    assert "  STOPPED: no valid entry in 300" in done.stdout
    # The third of the seven batches is lost.
    assert "  partition 0  offsets 0 to 2, 1 producer" in done.stdout
    assert done.stdout.count("BatchAppended") == 6


def test_a_checkpoint_that_cannot_be_read_does_not_hide_the_rest(copy: Path) -> None:
    change(copy / "checkpoint", flip(60))
    done = semel("dump", str(copy), "--journal", "--segments")
    assert done.returncode == 1
    assert f"STOPPED     {copy}/checkpoint: the checksum does not match" in done.stdout
    assert done.stdout.count("BatchAppended records-0") == 7
    assert done.stdout.count(" bytes, producer 1000/0 ") == 14


@pytest.mark.parametrize("lost", ["checkpoint", "checkpoint and journal"])
def test_a_log_whose_checkpoint_is_gone_is_not_taken_for_one_that_never_began(copy: Path, lost: str) -> None:
    (copy / "checkpoint").unlink()
    if "journal" in lost:
        shutil.rmtree(copy / "journal")
    done = semel("dump", str(copy))
    assert done.returncode == 1
    assert "checkpoint: missing, though a log was kept here" in done.stdout


def test_damage_in_a_segment_is_named_and_what_lies_behind_it_is_shown(copy: Path) -> None:
    (segment,) = (copy / "topics").rglob("*.log")
    change(segment, flip(1000))
    done = semel("dump", str(copy), "--segments")
    assert done.returncode == 1
    batches = [line for line in done.stdout.splitlines() if " bytes, producer" in line]
    assert ["DAMAGED" in line for line in batches] == [True] + [False] * 6
    with open(segment, "r+b") as file:
        file.truncate(2_000_000)
    assert "STOPPED: at offset 1800432 of 2000000 bytes: a batch of 300072 bytes that is cut short" in (
        semel("dump", str(copy), "--segments").stdout
    )


def aborting(data: Path) -> Path:
    """A directory in which so much was aborted that there is a block of it; answers the file of blocks."""
    caller = Caller(DiskFiles(data), Ledger(), replace(SETTINGS, aborted_blocks=BLOCK_LAYOUT))
    caller.create("records")
    partition, producer_id = caller.log.state.partitions.all()[0], caller.claim("a")
    for sequence in range(BLOCK_LAYOUT.aborted_per_block + 2):
        caller.append(partition, batch(producer_id, sequence, attributes=TRANSACTIONAL_BIT))
        caller.end("a", committed=False, raises_epoch=False)
    caller.close()
    (blocks,) = data.rglob("*.aborted")
    return blocks


def test_damage_in_a_block_of_aborted_transactions_is_named(tmp_path: Path) -> None:
    """A backup is looked at in this way, and no consumer of committed records could read on behind such a block."""
    blocks = aborting(tmp_path)
    assert semel("dump", str(tmp_path), "--segments").returncode == 0
    change(blocks, flip(1000))
    done = semel("dump", str(tmp_path), "--segments")
    assert done.returncode == 1
    assert f"STOPPED: {blocks}: no block of aborted transactions at offset 0" in done.stdout


@pytest.mark.parametrize("suffix", ["log", "aborted"])
def test_what_a_start_would_miss_of_a_file_is_named(tmp_path: Path, suffix: str) -> None:
    aborting(tmp_path)
    (path,) = tmp_path.rglob(f"*.{suffix}")
    assert examine(ReadOnlyFiles(tmp_path)).stopped is None
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.truncate(100)
    short = f"{path}: ends at offset 100, the checkpoint knows {size} bytes"
    assert (examine(ReadOnlyFiles(tmp_path)).stopped or "").startswith(short)
    path.unlink()
    gone = f"{path}: missing, the checkpoint names it"
    assert (examine(ReadOnlyFiles(tmp_path)).stopped or "").startswith(gone)
    assert semel("repair", str(tmp_path)).stdout.startswith(f"a start would stop at {gone}")


def test_what_is_no_directory_of_semel_is_one_line(tmp_path: Path) -> None:
    assert semel_failure("dump", str(tmp_path / "nowhere")).endswith("there is no such directory")
    assert semel_failure("dump", str(tmp_path)).endswith("this is not a data directory of semel")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_damaged_examining_comes_to_an_end(copy: Path, seed: int) -> None:
    chance = random.Random(seed)
    paths = sorted(path for path in copy.rglob("*") if path.is_file() and path.stat().st_size)
    for path in chance.sample(paths, 2):
        content = bytearray(path.read_bytes())
        for _ in range(chance.choice([1, 20])):
            # Where the heads are, mostly.
            content[chance.randrange(min(len(content), chance.choice([64, 4096, 3_000_000])))] = chance.randrange(256)
        if chance.random() < 0.3:
            del content[chance.randrange(len(content)) :]
        path.write_bytes(content)
    files = ReadOnlyFiles(copy)
    examine(files)
    for start in starts_of(files):
        assert len(list(look_into(files, start))) <= 9
    for directory in (path for path in (copy / "topics").glob("*/*") if path.is_dir()):
        for segment in segment_paths(files, str(directory.relative_to(copy))):
            end = walk_segment(files, segment, lambda batch: None, lambda done: None)
            assert end.position <= end.file_bytes


def test_a_cache_is_named_with_its_store(tmp_path: Path) -> None:
    """The records are there, and nothing else of the log."""
    data = tmp_path / "cache"
    with FaultyBroker(data, store=MemoryStore()) as broker:
        broker.seed("payments", b"30 EUR", b"50 EUR")
    before = contents(data)
    said = semel_lines("dump", str(data))
    assert said[0] == "cache       of the log in memory"
    assert not [line for line in said if line.startswith(("journal", "topic", "group"))]
    assert [line for line in semel_lines("dump", str(data), "--segments") if "offsets 0 to 1" in line]
    assert contents(data) == before


@pytest.mark.parametrize("mark", [b"", b"\xff\x00\n"])
def test_a_cache_that_does_not_say_whose_it_is_is_still_one(tmp_path: Path, mark: bytes) -> None:
    (tmp_path / "cache").write_bytes(mark)
    assert semel_lines("dump", str(tmp_path))[0] == "cache       of the log in a store"


def test_a_directory_in_the_place_of_the_mark_is_one_line(tmp_path: Path) -> None:
    """As many programs have one that is called so."""
    (tmp_path / "cache").mkdir()
    assert semel_failure("dump", str(tmp_path)) == f"{tmp_path}/cache: Is a directory"
