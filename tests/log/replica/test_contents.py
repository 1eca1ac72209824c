"""Extents: however a checkpoint follows on another, they hold the bytes of all files, and not much more than those."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.log.replica.cached_files import CachedFiles
from semel.log.replica.contents import (
    MERGED_AT_ONCE,
    NOTHING,
    SMALL_BYTES,
    Contents,
    Extent,
    kept,
    missing,
    packed,
    with_object,
)
from semel.log.replica.uploads import in_pieces
from semel.log.storage.files import MemoryFiles
from semel.log.storage.segment import Stretch

PATHS = st.sampled_from(["a", "b", "c", "d"])
# By path: how much of the file there is at a checkpoint. A file that is not named is gone.
CHECKPOINTS = st.lists(st.dictionaries(PATHS, st.integers(1, 40)), max_size=8)


def byte_of(path: str, position: int) -> int:
    return (ord(path) * 7 + position) % 251


def grown(wanted: list[dict[str, int]]) -> list[dict[str, int]]:
    """Files do not shrink."""
    sizes: dict[str, int] = {}
    rows = []
    for row in wanted:
        sizes = {path: max(size, sizes.get(path, 0)) for path, size in row.items()}
        rows.append(sizes)
    return rows


@given(CHECKPOINTS, st.integers(1, 16))
def test_the_extents_of_each_checkpoint_are_its_files_and_at_most_twice_as_much_lies_in_the_store(
    wanted: list[dict[str, int]], bytes_max: int
) -> None:
    contents, store = NOTHING, dict[str, bytes]()
    for sizes in grown(wanted):
        contents = kept(contents, sizes)
        for batch in list(packed(list(missing(contents, sizes)), bytes_max)):
            key = f"object {len(store)}"
            store[key] = bytes(byte_of(path, at) for path, start, size in batch for at in range(start, start + size))
            assert len(store[key]) <= bytes_max
            with_object(contents, key, batch, ["digest"] * len(batch))
        for path, size in sizes.items():
            content = bytearray(size)
            for position, length, key, place, _ in contents.files[path]:
                assert position + length <= size
                content[position : position + length] = store[key][place : place + length]
            assert content == bytes(byte_of(path, at) for at in range(size))
        assert contents.objects == {key: len(store[key]) for key in contents.objects}
        assert sum(contents.objects.values()) <= 2 * sum(sizes.values())
        assert Contents.from_record(contents.to_record()) == contents


def test_what_has_grown_is_uploaded_and_what_was_there_is_not() -> None:
    """A checkpoint that uploaded everything again would cost as much as all that was ever written."""
    before = Contents({"a": [Extent(0, 10, "k", 0, "digest")]}, {"k": 10})
    assert list(missing(kept(before, {"a": 13}), {"a": 13})) == [Stretch("a", 10, 3)]


def test_an_object_of_which_less_than_half_is_needed_is_given_up() -> None:
    """Or a file that never grows would keep an object that other files have left."""
    before = Contents({"a": [Extent(0, 4, "k", 0, "x")], "b": [Extent(0, 6, "k", 4, "y")]}, {"k": 10})
    assert kept(before, {"a": 4}).objects == {}
    assert kept(before, {"b": 6}).objects == {"k": 10}


def test_small_extents_become_one_and_no_byte_is_uploaded_often() -> None:
    """A reader needs a request for each, and each checkpoint names all of them."""
    contents, uploaded, sizes = NOTHING, 0, {"a": 0, "b": 0}
    for number in range(1500):
        sizes = {"a": sizes["a"] + 300, "b": sizes["b"] + 5000}
        contents = kept(contents, sizes)
        for batch in list(packed(list(missing(contents, sizes)))):
            uploaded += sum(stretch.size for stretch in batch)
            with_object(contents, f"object {number} {uploaded}", batch, ["digest"] * len(batch))
        assert max(map(len, contents.files.values())) < 3 * MERGED_AT_ONCE + sizes["b"] // SMALL_BYTES[-1]
    assert uploaded < 6 * sum(sizes.values())


def test_what_cannot_be_read_is_not_merged() -> None:
    """It can only stay as it is."""
    row = [Extent(10 * number, 10, f"k{number}", 0, "digest") for number in range(40)]
    before = Contents({"a": row}, {extent.key: 1000 for extent in row})
    after = kept(before, {"a": 400}, {"k7"})
    assert after.files["a"] == [row[7]]
    assert after.objects == {"k7": 1000}


@pytest.mark.parametrize("sizes", [[], [0], [10], [3, 0, 7], [4, 4, 4], [25], [1] * 9, [8, 1]])
def test_a_checkpoint_is_cut_into_pieces_as_if_it_were_one_text(sizes: list[int]) -> None:
    buffers = [bytes(range(size)) for size in sizes]
    text = b"".join(buffers)
    assert list(in_pieces(buffers, 4)) == [text[first : first + 4] for first in range(0, len(text), 4)]


@pytest.mark.parametrize("is_seen", [True, False], ids=["there may be something of it here", "nothing of it is here"])
def test_what_no_checkpoint_names_any_more_is_not_freed_and_when_it_has_come_it_is_the_disks(is_seen: bool) -> None:
    """Its object is about to be deleted, so it would be lost. Nor does it count as a part of the cache."""
    disk = MemoryFiles()
    rows = {path: [Extent(0, 100, "segments/a", place, "digest")] for place, path in ((0, "old"), (100, "new"))}
    for path in rows:
        disk.open(path, create=True).write_at([bytes(99) + bytes([is_seen])], 0)
    files = CachedFiles(disk)
    files.begin(Contents(rows, {"segments/a": 200}))
    files.name(Contents({"new": rows["new"]}, {"segments/a": 200}))
    files.note_here("new", rows["new"][0])
    assert [path for path, _ in files.lacking([Stretch("old", 0, 100)])] == ["old"]
    assert files.cached_bytes == 100
    assert files.choose(0) == [Stretch("new", 0, 100)]
    files.note_here("old", rows["old"][0])
    files.note_here("new", rows["new"][0])
    assert files.lacking([Stretch("old", 0, 100)]) == []
    assert (files.cached_bytes, files.end_of_parts("old")) == (100, 0)
    assert files.choose(0) == [Stretch("new", 0, 100)]


def test_an_extent_that_reaches_beyond_the_end_of_its_file_is_not_kept() -> None:
    """Whoever starts from the checkpoint would make the file longer than the log."""
    known = Contents({"a": [Extent(0, 50, "segments/a", 0, "d"), Extent(50, 50, "segments/a", 50, "d")]}, {})
    known.objects["segments/a"] = 100
    assert kept(known, {"a": 100}).files["a"] == known.files["a"]
    assert kept(known, {"a": 99}).files["a"] == known.files["a"][:1]
