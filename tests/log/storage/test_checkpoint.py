"""A checkpoint is the old one or the new one, whole, or it is refused with its name."""

import errno
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.log.storage import checkpoint
from semel.log.storage.files import DiskFiles, File, Files, MemoryFiles
from semel.log.storage.journal import Damaged
from semel.testing.faulty import Crashed, Fault, FaultyFiles, every_fault, lose_all
from small_disk import SmallDisk

OLD = {"state": "old"}
NEW = {"state": "new"}


def found(files: Files) -> tuple[str, bytes]:
    read = checkpoint.read(files)
    assert read is not None
    state, packed = read
    return state["state"], bytes(packed)


@pytest.fixture(params=["memory", "disk"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return MemoryFiles() if request.param == "memory" else DiskFiles(tmp_path)


def test_there_is_none_at_first_then_the_latest(files: Files) -> None:
    assert checkpoint.read(files) is None
    checkpoint.write(files, OLD, [b"a" * 1000, b"b"])
    assert found(files) == ("old", b"a" * 1000 + b"b")
    checkpoint.write(files, NEW, [])
    assert found(files) == ("new", b"")


def test_producers_come_back_as_they_were_packed() -> None:
    states = [(1000, b"x" * 34), (2**62, b""), (7, b"y")]
    packed = memoryview(checkpoint.pack_producers(states))
    assert list(checkpoint.unpack_producers(packed)) == states


def test_whatever_happens_while_one_is_written_there_is_the_old_one_or_the_new_one() -> None:
    def prepared(*faults: Fault) -> FaultyFiles:
        files = FaultyFiles()
        checkpoint.write(files, OLD, [b"1" * 700])
        return files.survivors(0, *faults)

    rehearsal = prepared()
    checkpoint.write(rehearsal, NEW, [b"2" * 700])
    seen = set()
    for fault in every_fault(rehearsal.calls):
        files = prepared(fault)
        done = False
        try:
            checkpoint.write(files, NEW, [b"2" * 700])
            done = True
        except (OSError, Crashed):
            pass
        assert files.fired
        for seed in range(5):
            after = found(files.survivors(seed))
            assert after in ([("new", b"2" * 700)] if done else [("old", b"1" * 700), ("new", b"2" * 700)])
            seen.add(after)
    assert len(seen) == 2


def test_one_that_was_written_survives_any_loss_of_power() -> None:
    files = FaultyFiles()
    checkpoint.write(files, OLD, [])
    checkpoint.write(files, NEW, [])
    assert found(files.survivors(lose_all)) == ("new", b"")


def test_on_a_full_disk_the_reserve_makes_room_for_one() -> None:
    files = FaultyFiles()
    checkpoint.write(files, OLD, [])
    assert "reserve" in files.names("")
    files.arm(Fault("ENOSPC", call="write"), Fault("ENOSPC", call="create", path="reserve", lasting=True))
    checkpoint.write(files, NEW, [b"n"])
    assert files.fired["ENOSPC"] == 2
    assert found(files) == ("new", b"n")
    assert "reserve" not in files.names("")
    files.disarm()
    checkpoint.write(files, OLD, [])
    assert "reserve" in files.names("")


def check_that_a_full_disk_has_space(disk: SmallDisk, old_bytes: int, new_bytes: int) -> None:
    checkpoint.write(disk, OLD, [b"o" * old_bytes])
    disk.bytes_max = disk.bytes_taken
    checkpoint.write(disk, NEW, [b"n" * new_bytes])
    assert found(disk) == ("new", b"n" * new_bytes)


def test_on_a_full_disk_there_is_space_for_a_large_one() -> None:
    check_that_a_full_disk_has_space(SmallDisk(100_000_000), 2_500_000, 3_000_000)


class BusyDisk(SmallDisk):
    """A full disk whose other files take all space as soon as there is some."""

    def remove(self, path: str) -> None:
        super().remove(path)
        self.bytes_max = self.bytes_taken


def test_nobody_else_gets_the_space_that_is_kept_for_one() -> None:
    """Clients try again and again to have records stored while the disk is full."""
    check_that_a_full_disk_has_space(BusyDisk(100_000_000), 1000, 1000)


def test_space_is_kept_again_where_a_crash_left_nothing_but_its_name() -> None:
    files = MemoryFiles()
    files.open("reserve", create=True)
    checkpoint.write(files, OLD, [])
    assert files.open("reserve").size() > checkpoint.RESERVE_BYTES


def test_the_space_that_is_kept_shrinks_with_them() -> None:
    files = MemoryFiles()
    checkpoint.write(files, OLD, [b"o" * 10_000_000])
    checkpoint.write(files, NEW, [])
    assert files.open("reserve").size() < 2 * checkpoint.RESERVE_BYTES
    checkpoint.write(files, OLD, [b"o" * 100])
    assert found(files) == ("old", b"o" * 100)


def test_without_space_and_reserve_the_old_one_stays() -> None:
    files = FaultyFiles()
    checkpoint.write(files, OLD, [])
    files.arm(Fault("ENOSPC", call="write", lasting=True))
    for _ in range(2):
        with pytest.raises(OSError, check=lambda error: error.errno == errno.ENOSPC):
            checkpoint.write(files, NEW, [])
        assert found(files) == ("old", b"")
    files.disarm()
    checkpoint.write(files, NEW, [])
    assert found(files) == ("new", b"")


def test_one_for_which_there_is_no_space_does_not_keep_the_last_of_it() -> None:
    """The journal needs it."""
    files = FaultyFiles()
    checkpoint.write(files, OLD, [])
    files.arm(Fault("ENOSPC", call="write", keep=100, lasting=True))
    for _ in range(2):
        with pytest.raises(OSError, check=lambda error: error.errno == errno.ENOSPC):
            checkpoint.write(files, NEW, [b"n" * 700])
        assert files.open("checkpoint.new").size() == 0


def test_any_changed_byte_is_refused_by_name() -> None:
    files = MemoryFiles()
    checkpoint.write(files, OLD, [b"packed"])
    file: File = files.open(checkpoint.NAME)
    for position in range(file.size()):
        right = file.read_at(1, position)
        file.write_at([bytes([right[0] ^ 0x40])], position)
        with pytest.raises(Damaged, match="memory:checkpoint: "):
            checkpoint.read(files)
        file.write_at([right], position)
    assert found(files) == ("old", b"packed")


@pytest.mark.parametrize("size", [0, 5, 30])
def test_one_that_is_cut_short_is_refused_by_name(size: int) -> None:
    files = MemoryFiles()
    checkpoint.write(files, OLD, [b"packed"])
    files.open(checkpoint.NAME).truncate(size)
    with pytest.raises(Damaged, match="memory:checkpoint: "):
        checkpoint.read(files)


def test_one_of_another_format_is_refused_with_both_formats_named(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()
    with monkeypatch.context() as later:
        later.setattr(checkpoint, "FORMAT", checkpoint.FORMAT + 1)
        checkpoint.write(files, OLD, [])
    with pytest.raises(Damaged, match=f"format {checkpoint.FORMAT + 1} by another.*reads {checkpoint.FORMAT}"):
        checkpoint.read(files)


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=30,
)


@given(VALUES)
def test_a_state_comes_back_as_it_was_however_it_is_nested(value: object) -> None:
    files = MemoryFiles()
    with pytest.MonkeyPatch.context() as smaller:
        smaller.setattr(checkpoint, "_PIECE_ITEMS", 2)
        checkpoint.write(files, {"state": value}, [])
    assert found(files) == (value, b"")


def test_no_piece_of_a_large_state_is_large() -> None:
    """Or nothing else would run in the process while it is made."""
    offsets = {"committed": {number: dict.fromkeys(range(100), (7, 0, "")) for number in range(20)}}
    state = {
        "groups": {"groups": [{"name": f"readers-{number}", "offsets": offsets} for number in range(50)]},
        "transactions": {"owners": [("one", number, 0) for number in range(10_000)]},
        "partitions": [{"index": number, "segments": [[1, 2, 3]]} for number in range(10_000)],
    }
    pieces = list(checkpoint._pieces(state))
    assert json.loads("".join(pieces)) == json.loads(json.dumps(state))
    assert max(map(len, pieces)) < 25_000
