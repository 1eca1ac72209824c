"""Extents: however a checkpoint follows on another, they hold the bytes of all files, and not much more than those."""

from hypothesis import given
from hypothesis import strategies as st

from semel.replica.contents import NOTHING, Contents, Extent, kept, missing, packed, with_object
from semel.storage.segment import Stretch

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
