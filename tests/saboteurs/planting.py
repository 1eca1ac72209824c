"""What a planted bug is, and how it gets into semel: its module is imported with another piece of Python in one place.

Nothing on disk is touched. A bug must be planted before anything of semel is imported, for whoever imports a name from
a module keeps what it found there; so each bug has a process of its own, and processes that its tests start do not see
it.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Final, NamedTuple

from saboteurs.pieces import NotPlanted, plant

SECONDS_MAX: Final = 60.0
"""How long a test may take before it counts as failed: it may wait for what the bug keeps from happening. One that
starts Spark has longer."""


class Bug(NamedTuple):
    """A mistake that could be made, or was made in a system of this kind."""

    name: str
    place: str
    """Module and symbol, as in `semel.wire.batch:BatchHeader.parse`; the module alone for what stands in itself."""
    piece: str
    instead: str
    caught_by: tuple[str, ...]
    """The cheapest tests that fail over it, as arguments for pytest."""
    seconds_max: float = SECONDS_MAX

    @property
    def module(self) -> str:
        return self.place.partition(":")[0]

    @property
    def symbol(self) -> str:
        return self.place.partition(":")[2]


def sabotage(bug: Bug, source: str) -> ast.Module:
    """The module as it is with the bug in it."""
    tree = ast.parse(source)
    try:
        plant(tree, bug.symbol, bug.piece, bug.instead)
    except NotPlanted as error:
        raise NotPlanted(f"{bug.place}: {error}") from None
    return tree


def import_sabotaged(bug: Bug) -> None:
    """Import the module of the bug with the bug in it, and leave it at that whoever imports it from now on."""
    if bug.module in sys.modules:
        raise NotPlanted(f"{bug.module} is imported already")
    sys.meta_path.insert(0, _Finder(bug))
    # At once, because pytest puts a finder of its own in front.
    try:
        importlib.import_module(bug.module)
    except NotPlanted:
        raise
    except Exception as error:
        raise NotPlanted(f"{bug.module} cannot be imported with it: {error!r}") from error


class _Finder(MetaPathFinder):
    """Stands in front of all other finders and waits for one module."""

    def __init__(self, bug: Bug) -> None:
        self._bug = bug

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._bug.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            raise NotPlanted(f"there is no module {fullname}")
        spec.loader = _Loader(self._bug, spec.origin)
        return spec


class _Loader(SourceFileLoader):
    """Loads a module with the bug in it, past every cached compilation."""

    def __init__(self, bug: Bug, path: str) -> None:
        super().__init__(bug.module, path)
        self._bug = bug

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        tree = sabotage(self._bug, self.get_data(path).decode())
        return compile(tree, path, "exec", dont_inherit=True)
