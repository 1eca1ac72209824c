"""Plants one bug in semel and runs tests over it: `python tests/saboteurs/planting.py "name of the bug" tests/core -x`.

The bug is a few characters of a module's source, exchanged while the module is imported; nothing on disk is touched. It
must be planted before anything of semel is imported, so it has a process of its own, and tests that start further
processes do not see it there.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType

import pytest
from all_bugs import ALL_BUGS
from bugs import Bug

NOT_PLANTED = 99


class Sabotage(Exception):
    """The bug cannot be planted: the code is no longer what it was."""


class SabotagedLoader(SourceFileLoader):
    """Loads a module as it would be with the bug in it, past every cached compilation."""

    bug: Bug

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        source = self.get_data(path).decode()
        if source.count(self.bug.line) != 1:
            raise Sabotage(f"{path} holds {source.count(self.bug.line)} times: {self.bug.line}")
        return compile(source.replace(self.bug.line, self.bug.instead), path, "exec", dont_inherit=True)


class Saboteur(MetaPathFinder):
    """Stands in front of all other finders and waits for one module."""

    def __init__(self, bug: Bug) -> None:
        self.bug = bug

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.bug.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            raise Sabotage(f"there is no module {fullname}")
        loader = SabotagedLoader(fullname, spec.origin)
        loader.bug = self.bug
        spec.loader = loader
        return spec


def main(name: str, *arguments: str) -> int:
    """Plant the bug, run pytest; answer how it ended. A bug that cannot be planted ends in a number of its own."""
    bug = next(bug for bug in ALL_BUGS if bug.name == name)
    sys.meta_path.insert(0, Saboteur(bug))
    # At once, because pytest puts a finder of its own in front.
    try:
        importlib.import_module(bug.module)
    except Exception as error:
        print(f"not planted: {error!r}", file=sys.stderr)
        return NOT_PLANTED
    # A test that waits for what the bug keeps from happening has caught it, too, before whoever runs this gives up.
    # The time is kept by a thread that ends the process: an error raised by a signal may strike a callback of an event
    # loop, which takes it down in a log and goes on. Some tests rehearse while they are collected, and to break off
    # there is to catch it, too.
    options = ["-p", "no:cacheprovider", "-x", "-q", "--continue-on-collection-errors"]
    return int(pytest.main([*options, "--timeout=60", "--timeout-method=thread", *arguments]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
