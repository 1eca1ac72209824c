"""Aborted transactions cost next to no memory once they are old, and are named all the same, or the read is refused."""

import random
from itertools import pairwise

import pytest

from ledger import NOW_MS, SETTINGS, Caller, Ledger, batch, check_tidy
from semel.log.core.aborted import AbortedTransactions
from semel.log.core.configs import parse
from semel.log.core.partition import Partition
from semel.log.storage.aborted_blocks import BLOCK_LAYOUT, BlockLayout, BlockWalk
from semel.log.storage.files import MemoryFiles
from semel.log.storage.journal import Damaged, StillInJournal
from semel.log.storage.partition_log import PartitionLog
from semel.log.storage.segment import FilePart
from semel.log.storage.segment_files import SegmentFiles
from semel.testing.faulty import Fault, FaultyFiles
from semel.wire.batch import TRANSACTIONAL_BIT, control_batch, place, read_header

CONFIGS = parse({})


def made(files: MemoryFiles, layout: BlockLayout = BLOCK_LAYOUT) -> PartitionLog:
    return PartitionLog(0, 0, "topics/0-orders/0", SegmentFiles(files), layout, Partition())


def abort(partition: PartitionLog, producer_id: int) -> None:
    """A transaction of one batch, aborted at once."""
    sent = batch(producer_id, 0, size=70, attributes=TRANSACTIONAL_BIT)
    for written in (sent, control_batch(producer_id, 0, 0, NOW_MS, committed=False)):
        header = place(written, read_header(written), partition.state.next_offset)
        partition.write(header, written, NOW_MS, CONFIGS)
        if header.is_control:
            partition.apply_marker(header, NOW_MS, committed=False)
        else:
            partition.apply_append(header, NOW_MS)


def test_ten_thousand_aborted_transactions_take_less_than_8_kb_in_memory_and_in_a_checkpoint() -> None:
    partition = made(MemoryFiles())
    for number in range(10_000):
        abort(partition, number)
    parts = partition.to_parts()
    assert len(parts.aborted) + len(parts.aborted_blocks) < 8_000
    assert partition.state.aborted.young_count <= BLOCK_LAYOUT.aborted_per_block
    assert partition.weight < 10_000 * 2 // 100, "it is as much work as if all of them were copied"
    for begin in (0, 1, 255, 256, 257, 12_345, 19_999):
        for end in (begin + 1, begin + 600, 20_000):
            expected = [(first // 2, first) for first in range(0, 20_000, 2) if first + 1 >= begin and first < end]
            assert partition.aborted.between(begin, end) == expected


@pytest.mark.parametrize("harm", ["a bit", "the end"])
def test_a_block_that_is_not_as_it_was_written_is_never_taken_for_one(harm: str) -> None:
    files = MemoryFiles()
    partition = made(files, BlockLayout(2, 2))
    for number in range(8):
        abort(partition, number)
    assert partition.aborted.between(0, 4) == [(0, 0), (1, 2)]
    (path, _) = [path for path in partition.paths if path.endswith(".aborted")]
    file = files.open(path)
    if harm == "a bit":
        file.write_at([b"\x01"], 20)
    else:
        file.truncate(20)
    with pytest.raises(Damaged, match="no block of aborted transactions at offset 0"):
        partition.aborted.between(0, 4)


def test_a_file_of_blocks_is_named_in_checkpoints_until_it_is_full() -> None:
    """A store forgets what no checkpoint names, and the next checkpoint may need the file again from its beginning."""
    files = MemoryFiles()
    partition = made(files, BlockLayout(1, 2))
    path, block_bytes = "topics/0-orders/0/00000000000000000000.aborted", BlockLayout(1, 2).block_bytes
    abort(partition, 0)
    abort(partition, 1)
    assert partition.aborted.contents() == [FilePart(path, block_bytes)]
    partition.apply_log_start(partition.state.next_offset)
    assert partition.state.aborted.block_count == 0
    assert partition.aborted.contents() == [FilePart(path, block_bytes)]
    parts = partition.to_parts()
    later = AbortedTransactions.from_bytes(parts.aborted, parts.aborted_blocks)
    assert (later.first_block, later.next_block) == (1, 1), "the next block would be taken for the one at its place"
    abort(partition, 2)
    abort(partition, 3)
    partition.apply_log_start(partition.state.next_offset)
    assert partition.state.aborted.next_block == 2
    assert partition.aborted.contents() == []


def begun(files: FaultyFiles) -> tuple[Caller, PartitionLog]:
    caller = Caller(files, Ledger())
    topic = caller.create("orders", segment_bytes="1024")
    assert topic is not None
    caller.claim("one")
    (partition,) = caller.log.state.partitions.of(topic)
    return caller, partition


def aborted_once(caller: Caller, partition: PartitionLog) -> None:
    owner = caller.log.state.transactions.owners()[0]
    caller.append(partition, caller.next_batch(partition, owner.producer_id))
    caller.end("one", False, raises_epoch=True)
    caller.sync()


def test_blocks_go_with_the_records_they_speak_of_and_with_their_topic() -> None:
    files = FaultyFiles()
    caller, partition = begun(files)
    for _ in range(7):
        aborted_once(caller, partition)
    assert caller.checkpoint()
    blocks = [path for path in partition.paths if path.endswith(".aborted")]
    assert len(blocks) == 3
    before = partition.aborted.between(10, 14)
    caller.delete_records(partition, 10)
    assert caller.checkpoint()
    check_tidy(files, caller.log)
    assert partition.aborted.between(10, 14) == before != []
    assert [path for path in partition.paths if path.endswith(".aborted")] == blocks[2:]
    caller.delete_records(partition)
    aborted_once(caller, partition)
    assert caller.checkpoint()
    check_tidy(files, caller.log)
    again = Caller(files.after_kill(), caller.ledger)
    (found,) = again.log.state.partitions.all()
    assert found.aborted.between(14, 16) == partition.aborted.between(14, 16) != []
    again.delete("orders")
    assert again.checkpoint()
    assert again.log.files.names("topics") == []


def test_a_block_that_a_checkpoint_names_and_that_is_not_there_keeps_the_log_from_starting() -> None:
    files = FaultyFiles()
    caller, partition = begun(files)
    for _ in range(3):
        aborted_once(caller, partition)
    caller.close()
    (path,) = [path for path in partition.paths if path.endswith(".aborted")]
    left = files.after_kill()
    left.remove(path)
    with pytest.raises(Damaged, match="missing, the checkpoint names it"):
        Caller(left, caller.ledger)


def test_a_block_that_the_disk_refuses_is_put_away_by_the_next_write() -> None:
    files = FaultyFiles()
    caller, partition = begun(files)
    aborted_once(caller, partition)
    files.arm(Fault("ENOSPC", call="write", path="*.aborted", keep=7, lasting=True))
    assert caller.append(partition, caller.next_batch(partition, -1)) is None
    assert caller.refused == 2
    files.disarm()
    aborted_once(caller, partition)
    assert partition.state.aborted.block_count == 1
    assert len(partition.aborted.between(0, 4)) == 2


def test_a_log_with_aborted_transactions_that_were_never_put_away_goes_on() -> None:
    """As an older version left them in its checkpoint."""
    assert SETTINGS.aborted_blocks.aborted_per_block == 1
    partition = made(MemoryFiles())
    for number in range(5):
        abort(partition, number)
    later = made(MemoryFiles(), BlockLayout(1, 2))
    later.state.aborted = type(later.state.aborted).from_bytes(partition.to_parts().aborted)
    later.state.next_offset = 10
    abort(later, 5)
    assert later.state.aborted.block_count == 2
    assert later.aborted.between(0, 12) == [(number, 2 * number) for number in range(6)]


@pytest.mark.parametrize("kept", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("harm", ["a bit", "the end"])
def test_a_block_that_the_disk_has_lost_before_a_checkpoint_is_written_again(harm: str, kept: int) -> None:
    """The journal says which transactions were aborted, until a checkpoint frees it."""
    files = FaultyFiles()
    caller, partition = begun(files)
    for _ in range(kept):
        aborted_once(caller, partition)
    assert caller.checkpoint()
    for _ in range(7 - kept):
        aborted_once(caller, partition)
    everything = partition.aborted.between(0, 14)
    path, size, *_ = partition.aborted.files()[-1]
    file = files.open(path)
    if harm == "a bit":
        file.write_at([bytes([file.read_at(1, size - 1)[0] ^ 1])], size - 1)
    else:
        file.truncate(size - 1)
    with pytest.raises(StillInJournal, match=rf"{path}: .*, but the journal in .*journal has them: start again"):
        caller.checkpoint()
    again = Caller(files.after_kill(), caller.ledger)
    (found,) = again.log.state.partitions.all()
    assert found.aborted.between(0, 14) == everything


def test_a_damaged_block_that_a_checkpoint_has_keeps_no_broker_from_the_next_one() -> None:
    files = FaultyFiles()
    caller, partition = begun(files)
    for _ in range(2):
        aborted_once(caller, partition)
    assert caller.checkpoint()
    files.open(partition.aborted.files()[0].path).write_at([b"\xff"], 0)
    for _ in range(3):
        aborted_once(caller, partition)
    assert caller.checkpoint()


@pytest.mark.parametrize("seed", range(20))
def test_a_walk_over_blocks_misses_no_change_however_they_are_cut(seed: int) -> None:
    chance, files, layout = random.Random(seed), MemoryFiles(), BlockLayout(3, 8)
    partition = made(files, layout)
    for number in range(40):
        abort(partition, number)
    file = partition.aborted.files()[-1]
    content = bytes(files.open(file.path).data)
    begin = chance.randrange(4) * file.block_bytes
    cuts = sorted(chance.randrange(begin, file.size) for _ in range(chance.randrange(8)))

    def is_right(content: bytes) -> bool:
        walk = BlockWalk(file, begin)
        return not any(walk.take(content[a:b], a) for a, b in pairwise([begin, *cuts, file.size]))

    assert is_right(content)
    for at in chance.sample(range(begin, file.size), 100):
        other = bytearray(content)
        other[at] ^= 1 << chance.randrange(8)
        assert not is_right(bytes(other)), at
