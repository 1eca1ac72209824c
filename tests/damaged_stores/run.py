"""Damages stores, object by object, and prints what a start or a takeover makes of each: `make damaged-stores`.

    PYTHONPATH=tests python -m damaged_stores.run [--random N] [--seed N] [--only WORDS]

First every object of every scene with every damage, then random ones. The broker has to serve everything that was
acknowledged, or to stop with a line and change nothing but its lease, so that everything is there once the damage is
undone; and it must never delete an object. Exit code 1 if one did not.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from random import Random

from damaged_stores.scenes import scenes
from damaged_stores.trial import DAMAGES, REFUSED, WHOLE, cells, kind_of, outcome


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make damaged-stores", description="Damages stores, and starts on them.")
    parser.add_argument("--random", type=int, default=2000, metavar="N", help="random damages after the matrix (2000)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="what chance begins from (1)")
    parser.add_argument("--only", default="", metavar="WORDS", help="in scenes with these words in their name")
    options = parser.parse_args(arguments)
    chance = Random(options.seed)
    table: Counter[tuple[str, str, str]] = Counter()
    broken: list[str] = []
    found = [scene for scene in scenes() if options.only in scene.name]
    wanted = [(scene, key, damage) for scene in found for key, damage in cells(scene)]
    for _ in range(options.random):
        scene = chance.choice(found)
        kind = chance.choice(sorted({kind_of(*item) for item in scene.objects.items()}))
        key = chance.choice([key for key, content in scene.objects.items() if kind_of(key, content) == kind])
        wanted.append((scene, key, chance.choice(DAMAGES)))
    for scene, key, damage in wanted:
        verdict = outcome(scene, key, damage, chance)
        if verdict is None:
            continue
        if verdict not in (WHOLE, REFUSED):
            broken.append(f"{scene.name}: {key}, {damage}: {verdict}")
            verdict = "BROKEN"
        table[kind_of(key, scene.objects[key]), damage, verdict] += 1
    print("whole+refused, of brokers on a store with one damage")
    kinds = sorted({kind for kind, _, _ in table})
    print(f"{'':11}  " + "  ".join(f"{damage:>12}" for damage in DAMAGES))
    for kind in kinds:
        shown = (_shown(table, kind, damage) for damage in DAMAGES)
        print(f"{kind:11}  " + "  ".join(f"{cell:>12}" for cell in shown))
    print("\n".join(f"BROKEN: {line}" for line in broken))
    totals = [sum(count for (*_, found), count in table.items() if found == verdict) for verdict in (WHOLE, REFUSED)]
    print(f"whole {totals[0]}, refused {totals[1]}, broken {len(broken)}")
    return 0 if all(totals) and not broken else 1


def _shown(table: Counter[tuple[str, str, str]], kind: str, damage: str) -> str:
    broken = f"!{table[kind, damage, 'BROKEN']}" if table[kind, damage, "BROKEN"] else ""
    return f"{table[kind, damage, WHOLE]}+{table[kind, damage, REFUSED]}{broken}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
