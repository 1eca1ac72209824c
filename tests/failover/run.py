"""Every state of the replicated journal, in worlds that are too large for an ordinary test run.

    PYTHONPATH=tests python -m failover.run

Each world is searched to its end in a process of its own; what it held, and how long that took, is printed. Exit code 1
if a state is wrong, with the shortest way to it, or if leaving a rule out goes unnoticed.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor

from failover.search import exhaust
from failover.states import Size
from failover.worlds import LARGE, SMALL, omissions

WORKERS = 2


def main() -> int:
    unnoticed = [rule for rule, outcome in omissions() if not outcome.violation]
    for rule in unnoticed:
        print(f"failover: nobody notices that {rule} is left out")
    wrong = 0
    with ProcessPoolExecutor(WORKERS) as pool:
        sizes = [*SMALL, *LARGE]
        for size, outcome in zip(sizes, pool.map(exhaust, sizes), strict=True):
            print(f"{described(size)}: {outcome.states:,} states, {outcome.seconds:.0f} s", flush=True)
            if outcome.violation:
                wrong += 1
                print(outcome.told())
    print(f"failover: {len(sizes)} worlds searched to their ends, {wrong} wrong; {len(unnoticed)} rules not missed")
    return 1 if wrong or unnoticed else 0


def described(size: Size) -> str:
    beginning = "an empty store" if size.from_empty else "an active writer"
    questions = ""
    if size.questions:
        questions = (
            f", and is asked up to {size.questions} times{'' if size.all_questions else ' for what it has missed'}"
        )
    removals = f"; {size.removals} objects go that are needed" if size.removals else ""
    return (
        f"{size.writers} writers, {size.slots} slots, depth {size.depth}, from {beginning}; "
        f"each sends up to {size.entries} entries and {size.checkpoints} checkpoints{questions}{removals}"
    )


if __name__ == "__main__":
    sys.exit(main())
