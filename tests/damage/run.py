"""Damages data directories, file by file, and prints what a start makes of each: `make damage`.

    PYTHONPATH=tests python -m damage.run [--random N] [--seed N] [--only WORDS]

First every file of every scene with every damage, then random ones. A start has to bring back everything that was
acknowledged, or to stop with a line and change nothing, so that everything is there once the damage is undone; and
it must never delete a file with records. Exit code 1 if one did not.
"""

import argparse
import json
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from damage.damages import DAMAGES, OF_DIRECTORIES, Damage, kind_of
from damage.scenes import Scene, scenes
from damage.trial import REFUSED, WHOLE, cells, outcome

# Thousands of starts, each with some syncs: a file system in memory is fast, and loses nothing in a kill either.
_IN_MEMORY = "/dev/shm"


class Table:
    """What came of every kind of damage to every kind of file."""

    def __init__(self) -> None:
        self._cells: dict[tuple[str, str], Counter[str]] = {}
        self.broken: list[str] = []

    def add(self, scene: Scene, path: str, damage: Damage, found: str) -> None:
        verdict = found if found in (WHOLE, REFUSED) else "BROKEN"
        self._cells.setdefault((kind_of(path), damage.name), Counter())[verdict] += 1
        if verdict == "BROKEN":
            self.broken.append(f"{scene.name}: {path}, {damage.name}: {found}")

    def count(self, verdict: str) -> int:
        return sum(cell[verdict] for cell in self._cells.values())

    def lines(self) -> list[str]:
        kinds = sorted({kind for kind, _ in self._cells})
        names = [damage.name for damage in dict.fromkeys((*DAMAGES, *OF_DIRECTORIES))]
        width = max(map(len, kinds))
        head = f"{'':{width}}  " + "  ".join(f"{name:>11}" for name in names)
        return [head, *(f"{kind:{width}}  " + "  ".join(self._shown(kind, name) for name in names) for kind in kinds)]

    def _shown(self, kind: str, name: str) -> str:
        cell = self._cells.get((kind, name))
        if cell is None:
            return f"{'-':>11}"
        broken = f"!{cell['BROKEN']}" if cell["BROKEN"] else ""
        return f"{f'{cell[WHOLE]}+{cell[REFUSED]}{broken}':>11}"


def chosen(all_scenes: Sequence[Scene], count: int, chance: random.Random) -> Iterator[tuple[Scene, str, Damage]]:
    """Random damages: first the kind of file, since there are many segments and one checkpoint."""
    for _ in range(count):
        scene = chance.choice(all_scenes)
        kind = chance.choice(sorted({kind_of(path) for path in scene.tree}))
        path = chance.choice([path for path in scene.tree if kind_of(path) == kind])
        yield scene, path, chance.choice(DAMAGES if scene.tree[path] is not None else OF_DIRECTORIES)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make damage", description="Damages data directories, and starts on them.")
    parser.add_argument("--random", type=int, default=2000, metavar="N", help="random damages after the matrix (2000)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="what chance begins from (1)")
    parser.add_argument("--only", default="", metavar="WORDS", help="in scenes with these words in their name")
    parser.add_argument("--no-matrix", action="store_true", help="random damages only")
    options = parser.parse_args(arguments)
    chance = random.Random(options.seed)
    table = Table()
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY if os.path.isdir(_IN_MEMORY) else None) as directory:
        found = [scene for scene in scenes(Path(directory)) if options.only in scene.name]
        if not options.no_matrix:
            for scene in found:
                for path, damage in cells(scene):
                    judge(table, scene, path, damage, chance)
        done = 0
        while done < options.random:
            for scene, path, damage in chosen(found, options.random - done, chance):
                done += judge(table, scene, path, damage, chance)
    print("\n".join(["whole+refused, of starts after one damage", *table.lines()]))
    print("\n".join(f"BROKEN: {line}" for line in table.broken))
    figures = {"whole": table.count(WHOLE), "refused": table.count(REFUSED), "broken": len(table.broken)}
    print(", ".join(f"{name} {count}" for name, count in figures.items()))
    if path_of_figures := os.environ.get("SEMEL_FIGURES"):
        Path(path_of_figures).write_text(json.dumps(figures))
    return 1 if table.broken or not table.count(REFUSED) or not table.count(WHOLE) else 0


def judge(table: Table, scene: Scene, path: str, damage: Damage, chance: random.Random) -> bool:
    """Whether the damage made a difference to the file."""
    found = outcome(scene, path, damage, chance)
    if found is not None:
        table.add(scene, path, damage, found)
    return found is not None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
