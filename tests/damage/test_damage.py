"""Each kind of file with each kind of damage: a start brings back everything, or stops with a line and changes nothing.

These are some of the cells; `make damage` tries all of them, and random damages besides.
"""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from damage.damages import kind_of
from damage.scenes import LIVES, Scene, scene, started
from damage.trial import REFUSED, WHOLE, cells, outcome
from semel.log.storage import journal
from semel.log.storage.files import DiskFiles
from semel.log.storage.log import Log

# One file of each kind; the matrix takes all of them.
PER_KIND = 1


@pytest.fixture(scope="module", params=[(age, end) for age in LIVES for end in ("clean stop", "killed")], ids=" ".join)
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    age, end = request.param
    return scene(tmp_path_factory.mktemp("damage"), age, end)


def some_cells(left: Scene) -> Iterator[tuple[str, object]]:
    seen: Counter[tuple[str, str]] = Counter()
    for path, damage in cells(left):
        key = kind_of(path), damage.name
        seen[key] += 1
        if seen[key] <= PER_KIND:
            yield path, damage


def test_no_damage_to_a_file_loses_what_was_acknowledged_without_a_word(left: Scene) -> None:
    chance = random.Random(7)
    found = {(path, damage.name): outcome(left, path, damage, chance) for path, damage in some_cells(left)}  # type: ignore[attr-defined, arg-type]
    broken = {cell: verdict for cell, verdict in found.items() if verdict not in (WHOLE, REFUSED, None)}
    assert broken == {}
    assert Counter(found.values())[REFUSED] > 10
    assert Counter(found.values())[WHOLE] > 10


@pytest.fixture
def killed(tmp_path: Path) -> Scene:
    made = scene(tmp_path, "young", "killed")
    made.restore()
    return made


def test_a_start_without_its_journal_says_what_is_missing_and_touches_no_segment(killed: Scene) -> None:
    """A disk that is not mounted: the directory is there, and is empty."""
    for path in (killed.root / "journal").iterdir():
        path.unlink()
    segments = {path: path.read_bytes() for path in killed.root.rglob("*.log")}
    with pytest.raises(
        journal.Lost, match=rf"{killed.root}/journal/0{{16}}: missing, the checkpoint names it; at least"
    ):
        started(killed)
    assert {path: path.read_bytes() for path in killed.root.rglob("*.log")} == segments


def test_a_journal_that_lost_its_newest_file_is_missed(killed: Scene) -> None:
    newest = max(path for path in (killed.root / "journal").iterdir() if not path.name.startswith("spare-"))
    newest.unlink()
    with pytest.raises(journal.Lost, match=f"{newest}: missing, .* goes on there"):
        started(killed)


def test_the_clean_checkpoint_of_an_earlier_stop_does_not_hide_what_came_after_it(tmp_path: Path) -> None:
    made = scene(tmp_path, "young", "clean stop")
    made.restore()
    log = started(made)
    log.new_producer_id(0)
    log.sync_now()
    log.close()
    (made.root / "checkpoint").write_bytes(made.tree["checkpoint"] or b"")
    with pytest.raises(journal.Lost, match="checkpoint: an older one, the log went on after it; at least"):
        started(made)


def test_the_segment_of_another_broker_is_not_served_although_it_is_intact(tmp_path: Path) -> None:
    made = scene(tmp_path, "young", "clean stop")
    made.restore()
    (path, *_) = [path for path in made.tree if path.endswith(".log") and made.others.get(path) is not None]
    other = bytearray(made.others[path] or b"")
    other[61 + 8] ^= 1
    (made.root / path).write_bytes(other)
    with pytest.raises(journal.Lost, match=f"{made.root / path}: .* are lost or damaged"):
        started(made)


def test_no_log_is_begun_where_there_has_to_be_one(tmp_path: Path) -> None:
    with pytest.raises(journal.Damaged, match="holds no log, and none may be begun there"):
        Log.open(DiskFiles(tmp_path), new_cluster_id=None)
    assert not (tmp_path / "checkpoint").exists()


def test_a_file_that_no_state_claims_is_set_aside_under_the_time_of_the_start(killed: Scene) -> None:
    stray = killed.root / "topics/9-gone/0/00000000000000000007.log"
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"perhaps the only copy")
    log = started(killed)
    kept = killed.root / "set-aside/2001-09-09T01-46-40Z/topics/9-gone/0/00000000000000000007.log"
    assert kept.read_bytes() == b"perhaps the only copy"
    assert "topics/9-gone/0/00000000000000000007.log" in log.put_aside
    log.close()
