"""A checkpoint of very many partitions is taken bit by bit: it is of one moment all the same, and may be given up."""

from asking import at
from ledger import Caller, Ledger
from semel.log.storage.segment import unpack_records
from semel.testing.faulty import FaultyFiles
from semel.wire.records import encode_batch
from semel.wire.steps import finish


def test_a_checkpoint_that_is_taken_bit_by_bit_is_of_the_moment_at_which_it_was_begun() -> None:
    files = FaultyFiles()
    caller = Caller(files, Ledger())
    caller.create("payments", 3)
    first, _, last = caller.log.state.partitions.all()
    for partition in (first, last):
        caller.append(partition, bytearray(encode_batch(at(1))))
    caller.sync()
    caller.commit_offset("readers", last, 1)
    steps = caller.log.begin_checkpoint()
    next(steps)
    for partition in (first, last):
        caller.append(partition, bytearray(encode_batch(at(1))))
        caller.commit_offset("readers", partition, 2)
    caller.delete("payments")
    while True:
        try:
            next(steps)
        except StopIteration as end:
            job = end.value
            break
    assert [record["next_offset"] for record in job.state["partitions"]] == [1, 1]
    (readers,) = job.state["groups"]["groups"]
    assert [offset[0] for offset in readers["offsets"]["committed"][last.topic_number].values()] == [1]
    assert caller.end_checkpoint(job)


def test_a_checkpoint_that_is_given_up_leaves_what_it_would_have_synced_to_the_next() -> None:
    caller = Caller(FaultyFiles(), Ledger())
    caller.create("payments")
    (partition,) = caller.log.state.partitions.all()
    caller.append(partition, bytearray(encode_batch(at(1))))
    steps = caller.log.begin_checkpoint()
    next(steps)
    steps.close()
    assert not caller.log.checkpoint_running
    assert any(partition.directory in path for path in finish(caller.log.begin_checkpoint()).dirty)
    caller.log.abandon()


def test_a_checkpoint_that_is_taken_bit_by_bit_names_no_segment_of_a_pass_that_ends_meanwhile() -> None:
    """It has begun without the name of that segment, so it would not sync it."""
    caller = Caller(FaultyFiles(), Ledger())
    caller.create("payments", 3)
    *_, last = caller.log.state.partitions.all()
    caller.append(last, bytearray(encode_batch(at(1))))
    last.roll(0)
    caller.append(last, bytearray(encode_batch(at(1))))
    before = [segment.to_record() for segment in last.segments]
    steps = caller.log.begin_checkpoint()
    next(steps)
    assert caller.log.swap(last, last.segments[:1], None)
    job = finish(steps)
    named = [unpack_records(memoryview(files.segments.packed())) for files in job.partition_files]
    assert [segments for segments in named if segments] == [before]
    caller.log.abandon()
