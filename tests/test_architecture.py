"""Holds the arrows between the rooms: who may import whom, and what the pure room may not know.

The table below is the design. A change that needs a new arrow changes the table in the same commit, with its reason in
docs/ARCHITECTURE.md; a new room has no arrows until it is given some here.
"""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src/semel"

# Each room, and the rooms that it may import besides itself.
ARROWS: dict[str, set[str]] = {
    **{room: set[str]() for room in ("wire", "database", "metrics", "settings", "chaos")},
    **{room: {"wire"} for room in ("log", "client")},
    # How a URL of MySQL is written, and what commits by itself there, one place knows.
    **{room: {"client", "database", "wire"} for room in ("spark", "audit")},
    "offsets": {"database"},
    "publish": {"metrics"},
    "retries": {"database", "metrics"},
    "steps": {"database", "metrics"},
    "http": {"database", "metrics", "retries", "steps"},
    "django": {"celery", "database", "http", "inbox", "outbox", "publish", "schema", "service"},
    "service": {"database", "log", "retries", "watch", "wire"},
    **{room: {"database", "metrics", "retries", "publish"} for room in ("outbox", "inbox")},
    "celery": {"database", "outbox", "inbox"},
    **{room: {"database", "outbox", "inbox", "http", "offsets", "steps"} for room in ("schema", "watch")},
    "testing": {"log", "wire", "chaos"},
    "semel": {"log"},
}
# What a person sees stands on everything.
HIGHEST = "ui"
# Nobody outside of the log imports what lies deeper in it than the modules at its door.
CLOSED = "log"

# In the log, the same for its own rooms, from the rules to the sockets.
ARROWS_IN_THE_LOG: dict[str, set[str]] = {
    "core": set(),
    **{room: {"core"} for room in ("storage", "security")},
    "store": {"storage"},
    "compaction": {"core", "storage"},
    "replica": {"core", "storage", "store"},
    "broker": {"core", "storage", "store", "compaction", "security", "replica"},
}

# The pure room takes time and chance as arguments and leaves reading, writing and waiting to others.
IMPURE = {
    *("asyncio", "concurrent", "datetime", "fcntl", "io", "logging", "mmap", "multiprocessing", "os", "pathlib"),
    *("random", "secrets", "select", "selectors", "shutil", "signal", "socket", "ssl", "subprocess", "tempfile"),
    *("threading", "time", "uuid", "uvloop"),
}
IMPURE_CALLS = {"input", "open", "print"}

# All IO of the storage goes through its seam, or the faulty double of the seam would prove nothing.
DISK = {"fcntl", "io", "mmap", "os", "pathlib", "shutil", "tempfile"}
SEAM = {PACKAGE / "log/storage" / name for name in ("files.py", "holes.py", "space.py", "tree_lock.py")}


def modules(room: str = "") -> list[Path]:
    return sorted((PACKAGE / room).rglob("*.py"))


def room_of(path: Path) -> str:
    """The command line's own module is what a person sees, too; the other modules beside the rooms are semel's face."""
    inside = path.relative_to(PACKAGE)
    if inside.name == "__main__.py":
        return HIGHEST
    return inside.parts[0] if len(inside.parts) > 1 else "semel"


@functools.cache
def imports(path: Path) -> tuple[str, ...]:
    """The full names of all that a module imports, wherever in the module it does so."""
    return tuple(imported(path))


def imported(path: Path) -> Iterator[str]:
    package = ["semel", *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = [*package[: len(package) - node.level + 1]] if node.level else []
            base = ".".join([*parts, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def module_of(path: Path) -> str:
    """The dotted name of a file below the package; a room's own file has the room's name."""
    return ".".join(part for part in path.relative_to(PACKAGE).with_suffix("").parts if part != "__init__")


def circles() -> list[frozenset[str]]:
    """The files that reach each other by imports, those for types alone included."""
    files = {module_of(path): path for path in modules()}

    def file_of(name: str) -> str | None:
        parts = name.split(".")
        if parts[0] != "semel":
            return None
        while ".".join(parts[1:]) not in files:
            parts.pop()
        return ".".join(parts[1:])

    reach = {file: {file_of(name) for name in imports(path)} - {None, file} for file, path in files.items()}
    grown = True
    while grown:
        grown = False
        for reached in reach.values():
            before = len(reached)
            reached.update(*(reach[further] for further in list(reached) if further is not None))
            grown |= len(reached) > before
    return sorted(
        {frozenset(one for one in reached if one and file in reach[one]) for file, reached in reach.items()}
        - {frozenset()},
        key=sorted,
    )


def crossing(name: str) -> str | None:
    """Where a name leads: `log.core.batch.Batch` for `semel.log.core.batch.Batch`; None if it leaves semel."""
    parts = name.split(".")
    if parts[0] != "semel":
        return None
    if len(parts) == 1 or not (PACKAGE / parts[1]).is_dir():
        return "semel"
    return ".".join(parts[1:])


def may(room: str, target: str) -> bool:
    """Whether a room may import this: `may("spark", "wire.batch")`."""
    there, *deeper = target.split(".")
    if there == room:
        return True
    if there == CLOSED and deeper and (PACKAGE / CLOSED / deeper[0]).is_dir():
        return False
    return room == HIGHEST or there in ARROWS[room]


def may_in_the_log(room: str, target: str) -> bool:
    """The same from a room of the log to another: `may_in_the_log("broker", "core.topics")`."""
    there = target.split(".")[0]
    return there == room or there in ARROWS_IN_THE_LOG[room] or not (PACKAGE / CLOSED / there).is_dir()


def calls(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, node.lineno


def test_every_room_has_its_arrows() -> None:
    assert {room_of(path) for path in modules()} == {HIGHEST, *ARROWS}, "a new room: say in ARROWS what it may import"
    rooms = {path.name for path in (PACKAGE / CLOSED).iterdir() if (path / "__init__.py").exists()}
    assert rooms == set(ARROWS_IN_THE_LOG)


@pytest.mark.parametrize("room", [HIGHEST, *sorted(ARROWS)])
def test_a_room_imports_only_the_rooms_below_it(room: str) -> None:
    crossed = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules()
        if room_of(path) == room
        for name in imports(path)
        if (target := crossing(name)) is not None and not may(room, target)
    ]
    assert crossed == []


@pytest.mark.parametrize("room", sorted(ARROWS_IN_THE_LOG))
def test_a_room_of_the_log_imports_only_the_rooms_below_it(room: str) -> None:
    crossed = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(f"{CLOSED}/{room}")
        for name in imports(path)
        if (target := crossing(name)) is not None
        and target.startswith(f"{CLOSED}.")
        and not may_in_the_log(room, target.removeprefix(f"{CLOSED}."))
    ]
    assert crossed == []


def test_no_room_stands_on_what_stands_on_it() -> None:
    for arrows in (ARROWS, ARROWS_IN_THE_LOG):
        floors = dict.fromkeys(arrows, 0)
        for _ in arrows:
            floors = {room: 1 + max((floors[below] for below in arrows[room]), default=0) for room in arrows}
        assert all(floors[below] < floors[room] for room in arrows for below in arrows[room])


def test_no_files_import_each_other_in_a_circle() -> None:
    assert [sorted(circle) for circle in circles()] == []


def test_the_arrows_are_told_apart() -> None:
    assert crossing("semel.wire.sequences.Window") == "wire.sequences.Window"
    assert crossing("semel.Broker") == "semel"
    assert crossing("asyncio.sleep") is None
    assert may("spark", "wire.sequences.Window")
    assert not may("spark", "log.brokers.Broker")
    assert not may("wire", "log.brokers")
    assert not may("outbox", "wire.sequences")
    assert may("testing", "log.doubles.Exchange")
    assert not may("testing", "log.broker.exchange.Exchange")
    assert may("ui", "log.at_rest.Log")
    assert not may("ui", "log.storage.log.Log")
    assert may_in_the_log("broker", "core.topics.Topic")
    assert not may_in_the_log("core", "storage.log.Log")


def test_the_rules_know_no_clock_no_disk_no_socket_and_no_chance() -> None:
    impure = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules("log/core")
        for name in imports(path)
        if name.split(".")[0] in IMPURE
    ]
    impure += [
        f"{path.relative_to(ROOT)}:{line} calls {name}"
        for path in modules("log/core")
        for name, line in calls(ast.parse(path.read_text()))
        if name in IMPURE_CALLS
    ]
    assert impure == []


def test_the_storage_reaches_the_disk_through_its_seam_alone() -> None:
    around = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules("log/storage")
        if path not in SEAM
        for name in imports(path)
        if name.split(".")[0] in DISK
    ]
    around += [
        f"{path.relative_to(ROOT)}:{line} calls open"
        for path in modules("log/storage")
        if path not in SEAM
        for name, line in calls(ast.parse(path.read_text()))
        if name == "open"
    ]
    assert around == []
