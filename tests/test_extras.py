"""Holds what `pip install 'semel[app]'` and its like promise: what they bring is enough for the rooms they are for.

A room is imported in a process that finds only those packages which pip would install for the extra, and what a package
asks for by an extra of its own counts only where that extra is named.
"""

import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from asking import Asker
from semel.testing.broker import FaultyBroker
from semel.wire.records import Record

PROJECT: Final = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
ROOMS: Final = {
    "": (
        *("semel", "semel.log.brokers", "semel.log.stores", "semel.chaos", "semel.client", "semel.settings"),
        *("semel.testing", "semel.testing.stores", "semel.ui.cli.doctor", "semel.ui.console.server"),
    ),
    "app": (
        "semel.ui.console.claims",
        "semel.database",
        "semel.http.client",
        "semel.inbox",
        "semel.publish",
        "semel.retries",
    ),
    "audit": ("semel.audit", "semel.client.arrow"),
    "testing": ("semel.testing.certificates", "semel.testing.security"),
    "spark": ("semel.audit", "semel.spark", "semel.spark.dedup"),
}

# The one finder that is left asks the others, unless the package is one that was not asked for.
RUN_WITHOUT: Final = """
import sys
from importlib.machinery import PathFinder

missing = set(sys.argv.pop(1).split())
finders = sys.meta_path[:]

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            return None
        return next(filter(None, (finder.find_spec(name, path, target) for finder in finders)), None)

    def find_distributions(self, *context):
        return PathFinder.find_distributions(*context)

sys.meta_path[:] = [Finder()]
exec(sys.argv.pop(1))
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


def run_with(wanted: str, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program in a process that finds what pip would install for this requirement, and no other package."""
    brought = brought_by(wanted, set())
    missing = [
        module
        for module, distributions in packages_distributions().items()
        if not brought & {canonicalize_name(one) for one in distributions}
    ]
    assert "ruff" in missing
    return subprocess.run(
        [sys.executable, "-c", RUN_WITHOUT, " ".join(missing), program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )


def import_with(wanted: str, rooms: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    return run_with(wanted, "import " + ", ".join(rooms))


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
        ("app", "semel.retries"),
        ("audit", "semel.audit"),
        ("audit", "semel.client.arrow"),
        ("spark", "semel.spark"),
        ("testing", "semel.testing.certificates"),
    ],
)
def test_without_its_packages_a_room_names_the_extra_that_brings_them(extra: str, room: str) -> None:
    last = import_with("semel", (room,)).stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: {room} needs ")
    assert last.endswith(f": pip install 'semel[{extra}]'")


def test_a_store_names_the_extra_that_it_needs_and_others_do_not_need_it(tmp_path: Path) -> None:
    opened = "from semel.log.store import open_store; import sys; open_store(sys.argv[1])"
    assert run_with("semel", opened, f"file://{tmp_path}").returncode == 0
    last = run_with("semel", opened, "s3://bucket/prefix").stderr.splitlines()[-1]
    assert last.startswith("semel.log.store.contract.StoreRefused: a store at s3:// needs obstore")
    assert last.endswith(": pip install 'semel[store]'")


def test_a_topic_is_audited_against_a_table_without_pyspark(broker: FaultyBroker, ask: Asker, tmp_path: Path) -> None:
    """A host that runs no Spark still says whether all that was sent is in its database, once."""
    ask.create("payments")
    ask.produce("payments", [Record(b"value", key=key, timestamp_ms=1000) for key in (b"p-1", b"p-2")])
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection, connection:
        connection.execute("CREATE TABLE payments (id TEXT)")
        connection.executemany("INSERT INTO payments VALUES (?)", [("p-1",), ("p-1",)])
    source, sink = f"semel://{broker.bootstrap}/payments?id=key", f"sqlite:{tmp_path}/app.db/payments?id=id"
    ran = run_with("semel[audit]", "from semel.ui.cli import main; main()", "audit", "--source", source, "--sink", sink)
    assert (ran.returncode, ran.stderr) == (1, "")
    assert ran.stdout.splitlines()[-1] == "NOT CLEAN: 1 lost, 1 doubled"
    assert "No module named 'pyspark'" in run_with("semel[audit]", "import pyspark").stderr
