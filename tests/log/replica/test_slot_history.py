"""What a reader of slots must not believe, and that each slot holds what was put into it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from written_slots import written

from semel.log.core.slots import DEPTH, BrokenHistory, History
from semel.log.replica.slot import ENTRY_HEAD_BYTES, HEAD_BYTES, decode, digest_of, encode_entry, entries

ENTRIES = st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40)), max_size=5)


def read(history: History, content: bytes, slot: int | None = None) -> list[tuple[int, bytes]]:
    found = decode(history.next_slot if slot is None else slot, content)
    history.take(found.head, found.digest)
    return [(kind, bytes(payload)) for kind, payload in entries(found.head.slot, found.body)]


@given(st.lists(st.one_of(st.binary(min_size=16, max_size=16), ENTRIES), max_size=8))
def test_a_reader_sees_the_entries_that_were_written_and_skips_the_closed_slots(steps: list[object]) -> None:
    """The objects lie where the writers put them; a reader that knows nothing else finds all, in their order."""
    writer, reader = History(), History()
    objects = {0: written(writer, [], fence=b"0" * 16)}
    expected: list[list[tuple[int, bytes]]] = [[]]
    for step in steps:
        slot = writer.next_slot
        if isinstance(step, bytes):
            objects[slot] = written(writer, [], fence=step)
            expected.append([])
        else:
            assert isinstance(step, list)
            objects[slot] = written(writer, [encode_entry(kind, [payload]) for kind, payload in step])
            expected.append(step)
    seen = []
    while (content := objects.get(reader.next_slot)) is not None:
        seen.append(read(reader, content))
    assert seen == expected
    assert (reader.epoch, reader.next_slot, reader.position) == (writer.epoch, writer.next_slot, writer.position)


def test_behind_a_fence_as_many_slots_are_closed_as_a_writer_may_have_under_way() -> None:
    history = History()
    written(history, [], fence=b"a" * 16)
    assert history.next_slot == DEPTH


def test_an_older_broker_is_not_believed_behind_a_fence() -> None:
    """Its slots there were never acknowledged, or the store has lost the fence."""
    history, zombie = History(), History()
    for one in (history, zombie):
        written(one, [], fence=b"a" * 16)
    late = zombie.following(0, digest_of([]))
    written(history, [], fence=b"b" * 16)
    with pytest.raises(BrokenHistory, match="epoch 1"):
        history.take(late._replace(slot=history.next_slot), b"")


def test_two_brokers_that_believe_to_have_the_same_epoch_are_told_apart() -> None:
    history, other = History(), History()
    written(history, [], fence=b"a" * 16)
    written(other, [], fence=b"b" * 16)
    head = other.following(0, digest_of([]))
    with pytest.raises(BrokenHistory, match="does not follow"):
        history.take(head, b"")
    with pytest.raises(BrokenHistory, match="another broker"):
        history.take(head._replace(previous=history.last), b"")


def test_an_epoch_begins_with_its_fence() -> None:
    history = History()
    written(history, [], fence=b"a" * 16)
    head = history.following(0, digest_of([]))
    with pytest.raises(BrokenHistory, match="no fence"):
        history.take(head._replace(epoch=3), b"")
    with pytest.raises(BrokenHistory, match="no fence"):
        history.take(head._replace(epoch=2, body_bytes=1), b"")


def test_a_history_that_was_replaced_is_noticed_at_its_next_slot() -> None:
    """One head stands for all that came before."""
    history, replaced = History(), History()
    for one, payload in ((history, b"paid"), (replaced, b"owed")):
        written(one, [], fence=b"a" * 16)
        written(one, [encode_entry(1, [payload])])
    content = written(replaced, [])
    with pytest.raises(BrokenHistory, match="does not follow"):
        read(history, content)


@pytest.mark.parametrize("at", [0, 9, HEAD_BYTES - 1, HEAD_BYTES, -1])
def test_a_damaged_byte_anywhere_is_found(at: int) -> None:
    history = History()
    written(history, [], fence=b"a" * 16)
    slot = history.next_slot
    content = bytearray(written(history, [encode_entry(1, [b"paid"])]))
    content[at] ^= 1
    with pytest.raises(BrokenHistory, match=f"slot {slot} "):
        decode(slot, bytes(content))


@pytest.mark.parametrize("size", [0, 7, HEAD_BYTES - 1, HEAD_BYTES + 3])
def test_a_part_of_an_object_is_no_object(size: int) -> None:
    history = History()
    written(history, [], fence=b"a" * 16)
    slot = history.next_slot
    content = written(history, [encode_entry(1, [b"paid"])])
    with pytest.raises(BrokenHistory, match=f"slot {slot} "):
        decode(slot, content[:size])


@pytest.mark.parametrize("cut", [1, ENTRY_HEAD_BYTES - 1, ENTRY_HEAD_BYTES + 2])
def test_an_entry_that_is_cut_off_is_no_entry(cut: int) -> None:
    """As only a mistake of a writer would leave it: the digest fits."""
    with pytest.raises(BrokenHistory, match="middle of an entry"):
        list(entries(7, memoryview(encode_entry(1, [b"paid"]))[:cut]))
