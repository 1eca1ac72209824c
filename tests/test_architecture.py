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

# Each room, and what it may import besides itself: a room, or a single module of one. `semel` is the package's own
# face: the modules that stand beside the rooms, which programs import.
ARROWS: dict[str, set[str]] = {
    # A broker that is embedded makes what its clients log in with, where it is told to.
    "semel": {"broker", "security.listeners", "storage.files", "store", "testing.security", "cli.main"},
    "core": set(),
    "wire": {"core"},
    "storage": {"core"},
    "compaction": {"core", "wire", "storage"},
    "store": {"storage.files"},
    "replica": {"core", "storage", "store"},
    "security": {"core", "wire"},
    "broker": {"semel", "core", "wire", "storage", "compaction", "security", "store", "replica"},
    "publish": {"metrics"},
    "database": set(),
    "metrics": set(),
    "retries": {"database.errors", "metrics"},
    "outbox": {"publish", "database", "retries", "metrics"},
    "inbox": {"database", "publish.clients", "retries", "metrics"},
    "http": {"database", "retries", "metrics"},
    "offsets": {"database"},
    "schema": {"database", "outbox.tables", "inbox.tables", "http.tables", "offsets.tables"},
    "watch": {"database", "outbox.tables", "inbox.tables", "http.tables"},
    "settings": set(),
    # What salts a password and derives keys from it is the same on both sides of a login.
    "client": {"wire", "core.batch", "core.users"},
    "spark": {"client", "wire", "core.producers"},
    "audit": {"client", "wire"},
    # Batches pass from one log into the other by their headers.
    "transfer": {"client", "wire", "core.batch"},
    "chaos": set(),
    "charts": set(),
    "testing": {
        *("semel", "core", "wire", "storage", "store", "security", "broker", "chaos.undisturbed"),
        # A test that kills a broker need not wait for its lease.
        "replica.lease",
    },
    "console": {
        # The console reads the log record by record, as a client.
        *("semel", "client", "wire", "core.producers", "database", "outbox", "inbox", "watch", "charts"),
        # What keeps the page of another site from the console keeps it from the broker's decisions, too; and it logs in
        # there.
        *("security.hosts", "security.basic", "security.places"),
        # Who is active on a store is asked of the store, for all brokers may be down.
        *("store", "replica", "core.slots"),
        # A trial is a broker of the console's own behind a faulty network.
        *("chaos", "testing.served", "testing.ports"),
    },
    "demo": {"semel", "cli.display", "chaos", "charts", "settings", "spark", "audit", "testing"},
    "cli": {
        *("semel", "core", "wire", "storage", "store", "security", "broker", "testing", "chaos", "settings", "client"),
        # Who is active on a store is asked of the store, for all brokers may be down.
        "replica",
        *("spark", "audit", "transfer", "demo", "database", "publish", "outbox", "inbox", "http", "schema", "console"),
    },
}

# The pure room takes time and chance as arguments and leaves reading, writing and waiting to others.
IMPURE = {
    *("asyncio", "concurrent", "datetime", "fcntl", "io", "logging", "mmap", "multiprocessing", "os", "pathlib"),
    *("random", "secrets", "select", "selectors", "shutil", "signal", "socket", "ssl", "subprocess", "tempfile"),
    *("threading", "time", "uuid", "kio", "uvloop"),
}
IMPURE_CALLS = {"input", "open", "print"}

# All IO of the storage goes through its seam, or the faulty double of the seam would prove nothing.
DISK = {"fcntl", "io", "mmap", "os", "pathlib", "shutil", "tempfile"}
SEAM = {PACKAGE / "storage" / name for name in ("files.py", "holes.py", "tree_lock.py")}


def modules(room: str = "") -> list[Path]:
    return sorted((PACKAGE / room).rglob("*.py"))


def room_of(path: Path) -> str:
    inside = path.relative_to(PACKAGE)
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
    """Where an imported name goes: `core.batch.Batch` for `semel.core.batch.Batch`; None where it leaves semel."""
    parts = name.split(".")
    if parts[0] != "semel":
        return None
    if len(parts) == 1 or not (PACKAGE / parts[1]).is_dir():
        return "semel"
    return ".".join(parts[1:])


def may(room: str, target: str) -> bool:
    return any(target == allowed or target.startswith(f"{allowed}.") for allowed in {room, *ARROWS[room]})


def calls(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, node.lineno


def test_every_room_has_its_arrows() -> None:
    assert {room_of(path) for path in modules()} <= set(ARROWS), "a new room: say in ARROWS what it may import"


@pytest.mark.parametrize("room", sorted(ARROWS))
def test_a_room_imports_only_the_rooms_below_it(room: str) -> None:
    crossed = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules()
        if room_of(path) == room
        for name in imports(path)
        if (target := crossing(name)) is not None and not may(room, target)
    ]
    assert crossed == []


def test_no_files_import_each_other_in_a_circle() -> None:
    assert [sorted(circle) for circle in circles()] == []


def test_the_arrows_are_told_apart() -> None:
    assert crossing("semel.core.producers.Window") == "core.producers.Window"
    assert crossing("semel.Broker") == "semel"
    assert crossing("asyncio.sleep") is None
    assert may("spark", "core.producers.Window")
    assert not may("spark", "core.partition")
    assert not may("core", "wire.frames")
    assert not may("storage", "broker")
    assert not may("outbox", "core.producers")


def test_the_rules_know_no_clock_no_disk_no_socket_and_no_chance() -> None:
    impure = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules("core")
        for name in imports(path)
        if name.split(".")[0] in IMPURE
    ]
    impure += [
        f"{path.relative_to(ROOT)}:{line} calls {name}"
        for path in modules("core")
        for name, line in calls(ast.parse(path.read_text()))
        if name in IMPURE_CALLS
    ]
    assert impure == []


def test_the_storage_reaches_the_disk_through_its_seam_alone() -> None:
    around = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules("storage")
        if path not in SEAM
        for name in imports(path)
        if name.split(".")[0] in DISK
    ]
    around += [
        f"{path.relative_to(ROOT)}:{line} calls open"
        for path in modules("storage")
        if path not in SEAM
        for name, line in calls(ast.parse(path.read_text()))
        if name == "open"
    ]
    assert around == []
