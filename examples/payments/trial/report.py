"""The report of a trial: the query, its result, the counts of retries, lost answers and kills, and the verdict."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from payments.trial.books import QUERY
from payments.trial.processes import Process
from payments.trial.stage import LEDGER
from payments.trial.trial import Outcome

BALANCED: Final = "balanced: each payment is booked once, and each request has one answer"
_DUPLICATES: Final = re.compile(r"duplicate=(\d+)")


def report(outcome: Outcome, mistakes: Sequence[str]) -> str:
    """`mistakes` has what is wrong, if anything is."""
    counts = outcome.clients.counts
    answers = [answer for different in outcome.clients.answers.values() for answer in different]
    accepted = sum(status == 201 for status, _ in answers)
    return "\n".join(
        [
            "",
            QUERY,
            "",
            *(f"{name:15} {value:>12,}" for name, value in asdict(outcome.books).items()),
            "",
            f"{len(outcome.clients.answers):,} requests: {accepted:,} accepted, {len(answers) - accepted:,} refused",
            f"{counts.attempts:,} attempts: {counts.retries:,} retries, {counts.duplicates:,} duplicates at the same "
            f"moment, {counts.lost_answers:,} answers lost; {counts.replays:,} answers were replays",
            f"kill -9: {', '.join(f'{process.name} {process.kills}' for process in outcome.processes)}",
            f"the ledger got at least {_redelivered(outcome.processes):,} events again and knew them",
            *([f"{counts.given_up:,} calls gave up, and were made again"] if counts.given_up else []),
            *([f"{counts.failures:,} answers said that something had failed"] if counts.failures else []),
            *_ended_by_themselves(outcome.processes),
            f"{outcome.seconds:.0f} s",
            "",
            *([f"WRONG: {mistake}" for mistake in mistakes] or [BALANCED]),
        ]
    )


def _redelivered(processes: Sequence[Process]) -> int:
    """The sum of the last logged count of each life of the ledger; what a life counted after that is unknown."""
    [ledger] = [process for process in processes if process.name == LEDGER]
    counted = ([_DUPLICATES.search(line) for line in reversed(life)] for life in ledger.lives)
    return sum(next((int(found[1]) for found in life if found is not None), 0) for life in counted)


def _ended_by_themselves(processes: Sequence[Process]) -> list[str]:
    return [
        f"{process.name} ended by itself {len(process.ended_by_itself)} times, the last time with:\n"
        f"{process.ended_by_itself[-1]}"
        for process in processes
        if process.ended_by_itself
    ]
