"""Damages one file, starts, and says what came of it."""

import contextlib
import random
from collections.abc import Iterator

from damage.damages import DAMAGES, OF_DIRECTORIES, Damage, Damaged
from damage.scenes import Scene, Tree, judged, started, tree_of
from semel.log.storage import journal

WHOLE, REFUSED = "whole", "refused"
# What a start may change although it refuses: the files of the lock and of nothing else.
NEVER_CHANGED = frozenset(("lock",))


def cells(scene: Scene) -> Iterator[tuple[str, Damage]]:
    """Every file and directory of a scene with every damage that can happen to it."""
    for path, content in scene.tree.items():
        for damage in OF_DIRECTORIES if content is None else DAMAGES:
            yield path, damage


def outcome(scene: Scene, path: str, damage: Damage, chance: random.Random) -> str | None:
    """What a start makes of it: whole or refused; anything else says what is wrong. None if the damage makes no
    difference to this file.
    """
    scene.restore()
    damaged = Damaged(scene, path, damage, chance)
    if not damaged.makes_a_difference:
        damaged.forget()
        return None
    before = tree_of(scene.root)
    try:
        log = started(scene)
    except (journal.Damaged, OSError) as error:
        said = str(error)
        if "\n" in said or str(scene.root) not in said:
            return f"said {said!r}"
        if missing := differences(before, tree_of(scene.root)):
            return f"refused, and changed {missing}"
        damaged.undo()
        try:
            judged(scene)
        except (AssertionError, journal.Damaged, OSError) as left:
            return f"refused, and after the damage was undone: {left}"
        return REFUSED
    try:
        with contextlib.closing(log):
            scene.judge(log)
    except AssertionError as lost:
        return f"LOST: {lost}"
    except (journal.Damaged, OSError) as error:
        return f"served, and then: {error}"
    damaged.forget()
    if gone := gone_from(before, tree_of(scene.root), undisturbed(scene)):
        return f"DELETED: {gone}"
    return WHOLE


def differences(before: Tree, after: Tree) -> list[str]:
    paths = (before.keys() | after.keys()) - NEVER_CHANGED
    return sorted(path for path in paths if before.get(path, b"?") != after.get(path, b"?"))


def gone_from(before: Tree, after: Tree, expected: Tree) -> list[str]:
    """The files with records that were there, and are neither in their place nor set aside, though a start without
    damage keeps them.
    """
    kept = {path.partition("/")[2].partition("/")[2] for path in after if path.startswith("set-aside/")}
    files = [path for path, content in before.items() if content and path.startswith(("topics/", "producers/"))]
    return [path for path in files if path in expected and path not in after and path not in kept]


_UNDISTURBED: dict[str, Tree] = {}


def undisturbed(scene: Scene) -> Tree:
    """What a start without damage leaves."""
    if scene.name not in _UNDISTURBED:
        scene.restore()
        judged(scene)
        _UNDISTURBED[scene.name] = tree_of(scene.root)
    return _UNDISTURBED[scene.name]
