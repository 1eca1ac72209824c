"""Holds what `pip install 'semel[app]'` and its like promise: what they bring is enough for the rooms they are for.

A room is imported in a process that finds only those packages which pip would install for the extra, and what a package
asks for by an extra of its own counts only where that extra is named.
"""

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT: Final = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
ROOMS: Final = {
    "": ("semel", "semel.broker", "semel.chaos", "semel.settings", "semel.testing", "semel.cli.doctor"),
    "app": ("semel.database", "semel.http", "semel.inbox", "semel.publish"),
    "spark": ("semel.audit", "semel.spark", "semel.spark.dedup"),
}

# The one finder that is left asks the others, unless the package is one that was not asked for.
IMPORT_WITHOUT: Final = """
import sys
from importlib import import_module

missing, rooms = (set(words.split()) for words in sys.argv[1:])
finders = sys.meta_path[:]

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            return None
        return next(filter(None, (finder.find_spec(name, path, target) for finder in finders)), None)

sys.meta_path[:] = [Finder()]
for room in rooms:
    import_module(room)
"""


def requirements_of(name: str, extra: str) -> Iterator[str]:
    """What a distribution asks for under this extra, or under none."""
    if name == "semel":
        yield from PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
        return
    try:
        lines = requires(name) or []
    except PackageNotFoundError:
        # Asked for on other machines alone.
        return
    for line in lines:
        marker = Requirement(line).marker
        if marker is None or marker.evaluate({"extra": extra}):
            yield line


def brought_by(wanted: str, seen: set[tuple[str, str]]) -> set[str]:
    """The distributions that pip would install for this requirement."""
    requirement = Requirement(wanted)
    name = canonicalize_name(requirement.name)
    found: set[str] = {name}
    for extra in ("", *requirement.extras):
        if (name, extra) not in seen:
            seen.add((name, extra))
            for line in requirements_of(name, extra):
                found |= brought_by(line, seen)
    return found


def import_with(wanted: str, rooms: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    brought = brought_by(wanted, set())
    missing = [
        module
        for module, distributions in packages_distributions().items()
        if not brought & {canonicalize_name(one) for one in distributions}
    ]
    assert "ruff" in missing
    return subprocess.run(
        [sys.executable, "-c", IMPORT_WITHOUT, " ".join(missing), " ".join(rooms)],
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("extra", ROOMS)
def test_what_an_extra_brings_is_enough_for_the_rooms_it_is_for(extra: str) -> None:
    ran = import_with(f"semel[{extra}]" if extra else "semel", ROOMS[extra])
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("extra", "room"),
    [
        ("app", "semel.database"),
        ("app", "semel.http"),
        ("app", "semel.inbox"),
        ("app", "semel.publish"),
        ("spark", "semel.audit"),
        ("spark", "semel.spark"),
    ],
)
def test_without_its_packages_a_room_names_the_extra_that_brings_them(extra: str, room: str) -> None:
    last = import_with("semel", (room,)).stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: {room} needs ")
    assert last.endswith(f": pip install 'semel[{extra}]'")
