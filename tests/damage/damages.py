"""What can happen to a file of a data directory, and how it is undone."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from damage.scenes import Scene

PAGE_BYTES = 4096
# What stands in the place of the file, or None if this damage makes no difference to it.
Change = Callable[[Path, bytes, Scene, str, random.Random], bool]


class Damage(NamedTuple):
    """One kind of damage. `change` puts it in the place of the file, which was taken away; False if it cannot."""

    name: str
    change: Change


def _missing(place: Path, content: bytes, scene: Scene, path: str, chance: random.Random) -> bool:
    return True


def _empty(place: Path, content: bytes, scene: Scene, path: str, chance: random.Random) -> bool:
    place.write_bytes(b"")
    return bool(content)


def _cut(place: Path, content: bytes, scene: Scene, path: str, chance: random.Random) -> bool:
    place.write_bytes(content[: chance.randrange(len(content) + 1)])
    return len(content) > 1


def _flipped(place: Path, content: bytes, scene: Scene, path: str, chance: random.Random) -> bool:
    # Half of the time among the bytes that mean something, which are few in a file that was made with its whole size.
    end = len(content.rstrip(b"\0")) if chance.random() < 0.5 else len(content)
    if end == 0:
        return False
    at = chance.randrange(end)
    place.write_bytes(content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :])
    return True


def _zeroed_page(place: Path, content: bytes, scene: Scene, path: str, chance: random.Random) -> bool:
    size = min(PAGE_BYTES, max(len(content) // 4, 1))
    at = chance.randrange(max(len(content) // size, 1)) * size
    changed = content[:at] + bytes(len(content[at : at + size])) + content[at + size :]
    place.write_bytes(changed)
    return changed != content


def _zeroed_half(place: Path, content: bytes, scene: Scene, path: str, chance: random.Random) -> bool:
    used = len(content.rstrip(b"\0"))
    place.write_bytes(content[: used // 2] + bytes(len(content) - used // 2))
    return used > 0


def _older_copy(place: Path, content: bytes, scene: Scene, path: str, chance: random.Random) -> bool:
    return _put(place, content, scene.earlier.get(path))


def _of_another(place: Path, content: bytes, scene: Scene, path: str, chance: random.Random) -> bool:
    return _put(place, content, scene.others.get(path))


def _put(place: Path, content: bytes, instead: bytes | None) -> bool:
    if instead is None or instead == content:
        return False
    place.write_bytes(instead)
    return True


def _unreadable(place: Path, content: bytes, scene: Scene, path: str, chance: random.Random) -> bool:
    place.write_bytes(content)
    place.chmod(0)
    return True


def _read_only(place: Path, content: bytes, scene: Scene, path: str, chance: random.Random) -> bool:
    place.write_bytes(content)
    place.chmod(0o444)
    return True


def _directory(place: Path, content: bytes, scene: Scene, path: str, chance: random.Random) -> bool:
    place.mkdir()
    return True


def _link(place: Path, content: bytes, scene: Scene, path: str, chance: random.Random) -> bool:
    target = scene.root.parent / "elsewhere"
    target.write_bytes(content)
    place.symlink_to(target)
    return True


def _dead_link(place: Path, content: bytes, scene: Scene, path: str, chance: random.Random) -> bool:
    place.symlink_to(scene.root.parent / "nowhere")
    return True


DAMAGES = (
    Damage("missing", _missing),
    Damage("empty", _empty),
    Damage("cut", _cut),
    Damage("flipped bit", _flipped),
    Damage("zeroed page", _zeroed_page),
    Damage("zeroed half", _zeroed_half),
    Damage("older copy", _older_copy),
    Damage("another's", _of_another),
    Damage("unreadable", _unreadable),
    Damage("read-only", _read_only),
    Damage("directory", _directory),
    Damage("link", _link),
    Damage("dead link", _dead_link),
)
# What can happen to a whole directory. An empty one is what is left where a disk is not mounted.
OF_DIRECTORIES = (DAMAGES[0], Damage("emptied", DAMAGES[10].change), DAMAGES[12])


class Damaged:
    """A scene with one damage, which can be undone: the file itself was moved away, and nothing is made anew."""

    def __init__(self, scene: Scene, path: str, damage: Damage, chance: random.Random) -> None:
        self._place = scene.root / path
        self._kept = scene.root.parent / "kept"
        content = scene.tree[path] or b""
        self._place.rename(self._kept)
        self.makes_a_difference = damage.change(self._place, content, scene, path, chance)

    def undo(self) -> None:
        if self._place.is_dir() and not self._place.is_symlink():
            shutil.rmtree(self._place)
        else:
            self._place.unlink(missing_ok=True)
        self._kept.rename(self._place)

    def forget(self) -> None:
        if self._kept.is_dir():
            shutil.rmtree(self._kept)
        else:
            self._kept.unlink(missing_ok=True)


def kind_of(path: str) -> str:
    """What kind of file this is."""
    name = path.rpartition("/")[2]
    if "/" not in path:
        return f"{name}/" if name in ("journal", "topics", "producers") else name
    if path.startswith("journal/"):
        return "spare" if name.startswith("spare-") else "journal file"
    return {"log": "segment", "aborted": "aborted", "pages": "pages"}.get(
        name.rpartition(".")[2], "directory below topics"
    )
