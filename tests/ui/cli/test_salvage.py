"""`semel salvage`: each record that is provably whole comes out, nothing false does, and what is left is untouched."""

import random
import stat
from pathlib import Path

import pytest

from asking import Asker, at
from damage.damages import DAMAGES, Damaged
from damage.scenes import SETTINGS, Scene, scene, tree_of
from semel.log.storage.cache import mark_as_cache
from semel.log.storage.files import DiskFiles
from semel.log.storage.log import Log
from semel.log.storage.scrub import Scrub, read, write
from semel.testing.broker import FaultyBroker
from semel.ui.cli.errors import Failure
from semel.ui.cli.salvage import salvage
from semel_command import semel


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return scene(tmp_path_factory.mktemp("old"), "old", "killed")


def records_in(root: Path) -> dict[tuple[str, int], bytes]:
    """By partition and base offset, each batch that a log serves. A start changes the directory."""
    log = Log.open(DiskFiles(root), new_cluster_id=None, settings=SETTINGS)
    try:
        return {
            (partition.directory, header.base_offset): bytes(data)
            for partition in log.state.partitions.used()
            for header, data in partition.batches(partition.state.log_start, partition.readable)
        }
    finally:
        log.abandon()


def segments_of(scene: Scene) -> list[str]:
    return [path for path in scene.tree if path.endswith(".log") and path.startswith("topics/")]


def all_records(scene: Scene) -> dict[tuple[str, int], bytes]:
    scene.restore()
    whole = records_in(scene.root)
    scene.restore()
    return whole


def test_a_flipped_byte_costs_the_batch_that_has_it_and_no_other(old: Scene, tmp_path: Path) -> None:
    whole = all_records(old)
    path = segments_of(old)[0]
    segment = old.root / path
    content = bytearray(segment.read_bytes())
    # In the records of its first batch, after the header.
    content[80] ^= 1
    segment.write_bytes(content)
    before = tree_of(old.root)
    lines = salvage(str(old.root), str(tmp_path / "new"), SETTINGS)
    assert any(line.startswith(f"{segment}: no intact batch at offset 0") for line in lines)
    assert tree_of(old.root) == before
    out = records_in(tmp_path / "new")
    (lost,) = whole.keys() - out.keys()
    assert lost == (str(Path(path).parent), int(segment.stem))
    assert out.items() <= whole.items()


def test_batches_behind_a_changed_header_are_not_proven(old: Scene, tmp_path: Path) -> None:
    """Their offsets are not covered by their own checksums: another's batches would be as whole."""
    whole = all_records(old)
    path = segments_of(old)[0]
    segment = old.root / path
    content = bytearray(segment.read_bytes())
    # The leader epoch in the header of the first batch, and a byte of its records.
    content[15] ^= 1
    content[80] ^= 1
    segment.write_bytes(content)
    salvage(str(old.root), str(tmp_path / "new"), SETTINGS)
    lost = whole.keys() - records_in(tmp_path / "new").keys()
    (partition,) = {directory for directory, _ in lost}
    assert partition == str(Path(path).parent)
    assert len(lost) > 1


def test_of_a_log_without_damage_everything_comes_out(old: Scene, tmp_path: Path) -> None:
    old.restore()
    assert salvage(str(old.root), str(tmp_path / "new"), SETTINGS) == []
    log = Log.open(DiskFiles(tmp_path / "new"), new_cluster_id=None, settings=SETTINGS)
    old.judge(log)
    log.close()


def test_entries_that_were_written_and_are_gone_are_named(old: Scene, tmp_path: Path) -> None:
    """A copy alone would look like a log after a loss of power, which need not have kept them."""
    whole = all_records(old)
    newest = max((old.root / "journal").glob("0*"))
    newest.write_bytes(b"")
    lines = salvage(str(old.root), str(tmp_path / "new"), SETTINGS)
    out = records_in(tmp_path / "new")
    assert out.keys() < whole.keys()
    assert any("journal" in line for line in lines)


def test_the_command_says_what_there_is_and_what_is_lost(tmp_path: Path) -> None:
    with FaultyBroker(data=tmp_path / "log") as broker, Asker(broker.bootstrap) as ask:
        ask.create("payments", segment_bytes="14000")
        for number in range(6):
            ask.produce("payments", at(*[number] * 250))
    (first, *_) = sorted((tmp_path / "log/topics").glob("*/0/*.log"))
    first.unlink()
    said = semel("salvage", str(tmp_path / "log"), "--into", str(tmp_path / "new"))
    assert said.returncode == 1, said.stderr
    assert "partition 0  offsets 0 to 1500" in said.stdout
    (lost,) = [line for line in said.stdout.splitlines() if line.startswith("LOST")]
    assert lost.endswith("missing, the checkpoint names it; records from offset 0 to 999 are lost or damaged")
    assert "has all that can be proven, 1 piece is lost" in said.stdout


@pytest.mark.parametrize("damage", DAMAGES, ids=[damage.name for damage in DAMAGES])
def test_whatever_happens_to_a_segment_nothing_false_comes_out_and_the_rest_does(
    old: Scene, tmp_path: Path, damage: object
) -> None:
    whole = all_records(old)
    path = segments_of(old)[0]
    damaged = Damaged(old, path, damage, random.Random(1))  # type: ignore[arg-type]
    if not damaged.makes_a_difference:
        pytest.skip("no difference to this file")
    salvage(str(old.root), str(tmp_path / "new"), SETTINGS)
    out = records_in(tmp_path / "new")
    damaged.undo()
    assert out.items() <= whole.items(), "false"
    others = {place: batch for place, batch in whole.items() if place[0] != str(Path(path).parent)}
    assert others.items() <= out.items(), "what is whole is missing"


def test_the_cache_of_a_store_is_no_log(tmp_path: Path) -> None:
    mark_as_cache(DiskFiles(tmp_path / "cache"), "file:///srv/semel", "a cluster")
    with pytest.raises(Failure, match=rf"^{tmp_path}/cache.*: salvage the store itself, by its URL"):
        salvage(str(tmp_path / "cache"), str(tmp_path / "new"))


@pytest.mark.parametrize("end", ["", "/"])
def test_a_file_without_which_nothing_can_be_proven_is_named_where_a_person_looks_for_it(
    old: Scene, tmp_path: Path, end: str
) -> None:
    old.restore()
    checkpoint = old.root / "checkpoint"
    checkpoint.write_bytes(b"x" + checkpoint.read_bytes()[1:])
    with pytest.raises(Failure, match=rf"^{old.root}/+checkpoint: .*; without it nothing can be proven"):
        salvage(f"{old.root}{end}", f"{tmp_path}/new{end}")


def test_a_directory_with_something_in_it_is_refused(old: Scene, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    refused = semel("salvage", str(old.root), "--into", str(tmp_path))
    assert refused.returncode == 1
    assert "is not empty: name another directory" in refused.stderr


def test_a_log_is_not_salvaged_into_itself(tmp_path: Path) -> None:
    (tmp_path / "log/topics").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "log")
    for target in (tmp_path / "log/topics/new", tmp_path / "link/new"):
        with pytest.raises(Failure, match="is in the other: name a directory outside"):
            salvage(str(tmp_path / "log"), str(target))
        assert not target.exists()


def test_the_log_of_a_broker_that_runs_is_refused(tmp_path: Path) -> None:
    with FaultyBroker(data=tmp_path / "log"):
        with pytest.raises(Failure, match="log is in use by a broker: stop it first"):
            salvage(str(tmp_path / "log"), str(tmp_path / "new"))
        assert not (tmp_path / "new").exists()


def test_of_a_log_for_reading_only_comes_one_that_a_broker_can_write_to(old: Scene, tmp_path: Path) -> None:
    old.restore()
    write(DiskFiles(old.root), Scrub(0, damaged=(("topics/0-a/0/00000000000000000000.log", 0, 0),)))
    paths = [old.root, *old.root.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        salvage(str(old.root), str(tmp_path / "new"), SETTINGS)
    finally:
        for path in paths:
            path.chmod(0o755 if path.is_dir() else 0o644)
    for path in (tmp_path / "new", *(tmp_path / "new").rglob("*")):
        assert path.stat().st_mode & stat.S_IWUSR, path
    assert read(DiskFiles(tmp_path / "new")) is None, "what is known of damage there is not known of the copies"
