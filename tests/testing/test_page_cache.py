"""What survives a loss of power and what does not, promise by promise, then against a model of every byte."""

import itertools

import pytest
from disk_contents import content, contents, every_outcome, synced_file
from hypothesis import given
from hypothesis import strategies as st

from semel.testing.faulty import Fault, FaultyFiles, keep_all, lose_all
from semel.testing.page_cache import SECTOR_BYTES


def test_what_was_synced_survives_whatever_is_chosen() -> None:
    files = FaultyFiles()
    file = synced_file(files, "a", b"x" * 2000)
    file.truncate(1500)
    file.write_at([b"y" * 100], 700)
    file.sync()
    file.write_at([b"later"], 3000)
    for survivor in files.every_survivor():
        assert content(survivor, "a")[:1500] == b"x" * 700 + b"y" * 100 + b"x" * 700


def test_a_write_that_was_not_synced_survives_or_does_not() -> None:
    files = FaultyFiles()
    synced_file(files, "a", b"before").write_at([b"AFTER"], 0)
    assert every_outcome(files, "a") == {b"before", b"AFTERe"}
    assert content(files.survivors(lose_all), "a") == b"before"
    assert content(files.survivors(keep_all), "a") == b"AFTERe"
    assert files.fired["lost write"] == 2


def test_any_subset_of_the_sectors_of_a_write_may_survive() -> None:
    files = FaultyFiles()
    old, new = b"o" * SECTOR_BYTES, b"n" * SECTOR_BYTES
    synced_file(files, "a", old * 3).write_at([new * 3], 0)
    expected = {b"".join(sectors) for sectors in itertools.product([old, new], repeat=3)}
    assert every_outcome(files, "a") == expected
    assert files.fired["partly lost write"] > 0


def test_sectors_are_those_of_the_disk_and_not_those_of_the_write() -> None:
    files = FaultyFiles()
    synced_file(files, "a", b"o" * 600).write_at([b"n" * 20], SECTOR_BYTES - 10)
    before, after = b"o" * (SECTOR_BYTES - 10), b"o" * (600 - SECTOR_BYTES - 10)
    middles = [left * 10 + right * 10 for left in (b"o", b"n") for right in (b"o", b"n")]
    assert every_outcome(files, "a") == {before + middle + after for middle in middles}


def test_any_subset_of_several_writes_may_survive() -> None:
    files = FaultyFiles()
    file = synced_file(files, "a", b"...")
    for position in range(3):
        file.write_at([b"X"], position)
    expected = {bytes(three) for three in itertools.product(b".X", repeat=3)}
    assert every_outcome(files, "a") == expected


def test_a_lost_write_leaves_zeros_where_the_file_grew_behind_it() -> None:
    files = FaultyFiles()
    file = synced_file(files, "a")
    file.write_at([b"1"], 0)
    file.write_at([b"2"], 1)
    assert every_outcome(files, "a") == {b"", b"\0", b"\0\0", b"1", b"12", b"\x002", b"1\0"}


def test_a_truncation_survives_or_does_not_and_later_writes_do_not_care() -> None:
    files = FaultyFiles()
    file = synced_file(files, "a", b"abcdef")
    file.truncate(2)
    file.write_at([b"X"], 0)
    assert every_outcome(files, "a") == {b"abcdef", b"Xbcdef", b"ab", b"Xb"}
    assert files.fired["lost size"] > 0


def test_an_allocation_survives_once_it_is_synced() -> None:
    files = FaultyFiles()
    file = synced_file(files, "a", b"ab")
    file.allocate(4)
    assert every_outcome(files, "a") == {b"ab", b"ab\0\0"}
    file.sync()
    assert every_outcome(files, "a") == {b"ab\0\0"}


def test_a_new_file_needs_its_directory_synced_though_it_is_synced_itself() -> None:
    files = FaultyFiles()
    file = files.open("a", create=True)
    file.write_at([b"data"], 0)
    file.sync()
    assert [contents(survivor) for survivor in files.every_survivor()] == [{}, {"a": b"data"}]
    files.sync_directory("")
    assert [contents(survivor) for survivor in files.every_survivor()] == [{"a": b"data"}]


def test_syncing_a_directory_does_not_save_what_is_in_its_files() -> None:
    files = FaultyFiles()
    files.open("a", create=True).write_at([b"data"], 0)
    files.sync_directory("")
    assert contents(files.survivors(lose_all)) == {"a": b""}


def test_a_directory_that_is_lost_takes_all_below_it_along() -> None:
    files = FaultyFiles()
    files.make_directory("d/e")
    file = files.open("d/e/a", create=True)
    file.write_at([b"data"], 0)
    file.sync()
    files.sync_directory("d/e")
    files.sync_directory("d")
    without = files.survivors(lose_all)
    assert [without.names(path) for path in ("", "d", "d/e")] == [[], [], []]
    with pytest.raises(FileNotFoundError):
        without.open("d/e/a")
    files.sync_directory("")
    assert contents(files.survivors(lose_all), "d/e") == {"a": b"data"}


def test_a_rename_is_atomic_and_survives_or_does_not_until_the_directory_is_synced() -> None:
    files = FaultyFiles()
    synced_file(files, "target", b"old")
    synced_file(files, "new", b"new")
    files.rename("new", "target")
    outcomes = [contents(survivor) for survivor in files.every_survivor()]
    assert outcomes == [{"target": b"old", "new": b"new"}, {"target": b"new"}]
    files.sync_directory("")
    assert [contents(survivor) for survivor in files.every_survivor()] == [{"target": b"new"}]


def test_a_file_renamed_before_its_content_was_synced_may_be_empty_under_its_new_name() -> None:
    files = FaultyFiles()
    synced_file(files, "target", b"old")
    files.open("new", create=True).write_at([b"new"], 0)
    files.rename("new", "target")
    files.sync_directory("")
    assert contents(files.survivors(lose_all)) == {"target": b""}


def test_a_file_never_survives_under_two_names() -> None:
    files = FaultyFiles()
    synced_file(files, "a", b"data")
    files.rename("a", "b")
    files.rename("b", "c")
    assert {tuple(survivor.names("")) for survivor in files.every_survivor()} == {("a",), ("b",), ("c",)}


def test_a_rename_between_directories_needs_both_synced() -> None:
    files = FaultyFiles()
    files.make_directory("one")
    files.make_directory("two")
    files.sync_directory("")
    synced_file(files, "one/a", b"data")
    files.rename("one/a", "two/a")
    files.sync_directory("two")
    assert contents(files.survivors(lose_all), "one") == {"a": b"data"}
    files.sync_directory("one")
    assert contents(files.survivors(lose_all), "two") == {"a": b"data"}


def test_a_removed_file_may_come_back_until_the_directory_is_synced() -> None:
    files = FaultyFiles()
    synced_file(files, "a", b"data")
    files.remove("a")
    assert [contents(survivor) for survivor in files.every_survivor()] == [{"a": b"data"}, {}]
    files.sync_directory("")
    assert [contents(survivor) for survivor in files.every_survivor()] == [{}]


def test_changes_of_names_survive_independently_of_their_order() -> None:
    files = FaultyFiles()
    for name in "ab":
        files.open(name, create=True)
    outcomes = {tuple(survivor.names("")) for survivor in files.every_survivor()}
    assert outcomes == {(), ("a",), ("b",), ("a", "b")}


def test_the_same_seed_leaves_the_same_and_seeds_differ() -> None:
    files = FaultyFiles()
    synced_file(files, "a").write_at([bytes(range(256)) * 40], 0)
    seeds = [content(files.survivors(seed), "a") for seed in range(20)]
    assert seeds == [content(files.survivors(seed), "a") for seed in range(20)]
    assert len(set(seeds)) >= 8


def test_what_survived_once_survives_the_next_loss_of_power() -> None:
    files = FaultyFiles()
    files.open("a", create=True).write_at([b"data"], 0)
    survivor = files.survivors(keep_all)
    assert contents(survivor.survivors(lose_all)) == {"a": b"data"}


def test_a_survivor_has_nothing_in_common_with_the_disk_it_came_from() -> None:
    files = FaultyFiles()
    file = synced_file(files, "a", b"data")
    survivor, killed = files.survivors(0), files.after_kill()
    file.write_at([b"XXXX"], 0)
    survivor.open("a").write_at([b"YYYY"], 0)
    assert (content(files, "a"), content(survivor, "a"), content(killed, "a")) == (b"XXXX", b"YYYY", b"data")


@given(
    st.lists(
        st.one_of(st.tuples(st.integers(0, 1200), st.integers(1, 1300)), st.sampled_from(["sync", "failed sync"])),
        max_size=12,
    ),
    st.integers(0, 2**32),
)
def test_every_byte_that_survives_was_written_there_and_none_is_older_than_its_sync(
    steps: list[tuple[int, int] | str], seed: int
) -> None:
    """Held against a model that keeps, for every byte of the file, the values that it could have."""
    files = FaultyFiles()
    file = synced_file(files, "a")
    possible: list[set[int]] = []
    doubted: list[set[int]] = []
    certain_bytes = 0
    for value, step in enumerate(steps, start=1):
        if step == "sync":
            file.sync()
            # A sector given up by a failed sync may still hold what it held before, unless overwritten and synced.
            possible = [{max(values)} | earlier for values, earlier in zip(possible, doubted, strict=True)]
        elif step == "failed sync":
            files.arm(Fault("failed sync"))
            with pytest.raises(OSError, match="Input/output error"):
                file.sync()
            doubted = [set(values) for values in possible]
        else:
            position, size = step
            file.write_at([bytes([value]) * size], position)
            grown = max(0, position + size - len(possible))
            possible += [{0} for _ in range(grown)]
            doubted += [set() for _ in range(grown)]
            for at in range(position, position + size):
                possible[at].add(value)
        if step == "sync" and not any(doubted):
            certain_bytes = len(possible)
    survived = content(files.survivors(seed), "a")
    assert certain_bytes <= len(survived) <= len(possible)
    assert all(byte in values for byte, values in zip(survived, possible, strict=False))
