"""Finds broken promises: in the books, the answers and the events; and checks that all planned kills happened.

Pure. It compares the answers that the clients got with the databases and the topic.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator

from payments.trial.plan import Kill, Request
from payments.trial.trial import Outcome


def wrong(outcome: Outcome) -> Iterator[str]:
    """One line for each thing that is wrong."""
    if not outcome.books.are_balanced:
        yield "the books are not balanced"
    yield from _wrong_answers(outcome)
    yield from _wrong_payments("the topic tells of", outcome.events, outcome.payments)
    if (outcome.figures.get("semel_watch_up"), outcome.figures.get("semel_outbox_waiting")) != (1, 0):
        yield "the API does not show to Prometheus that nothing waits"
    planned = Counter(step.victim for step in outcome.steps if isinstance(step, Kill))
    for process in outcome.processes:
        if process.had_to_be_killed:
            yield f"{process.name} did not end when it was asked to"
        elif process.kills != planned[process.name]:
            yield f"{process.name} was killed {process.kills} times and not {planned[process.name]} times"


def _wrong_answers(outcome: Outcome) -> Iterator[str]:
    silent = torn = others = 0
    told: Counter[str] = Counter()
    for request in {step for step in outcome.steps if isinstance(step, Request)}:
        answers = outcome.clients.answers.get(request, set())
        silent += not answers
        torn += len(answers) > 1
        for status, body in answers:
            payment = json.loads(body)["payment"] if status == 201 else None
            told.update([payment] if payment is not None else [])
            asked = (request.payer, request.payee, request.amount_cents)
            others += status != request.status or (payment is not None and outcome.payments.get(payment) != asked)
    for count, what in ((silent, "no answer"), (torn, "different answers"), (others, "an answer that is not theirs")):
        if count:
            yield f"{count} requests got {what}"
    yield from _wrong_payments("the clients were told of", told, outcome.payments)


def _wrong_payments(said: str, found: Counter[str], payments: Collection[str]) -> Iterator[str]:
    twice = sum(count > 1 for count in found.values())
    unknown = sum(payment not in payments for payment in found)
    missing = sum(payment not in found for payment in payments)
    for count, what in (
        (twice, "payments more than once"),
        (unknown, "payments that are not there"),
        (missing, "payments too few"),
    ):
        if count:
            yield f"{said} {count} {what}"
