"""Mutants of workflows and recorded steps."""

from typing import Final

from saboteurs.planting import Bug

_SEVERAL: Final = "tests/steps/test_several_workflows.py"
_LEDGER: Final = "semel.steps.ledger"


def _on_sqlite(words: str) -> tuple[str, ...]:
    return _SEVERAL, "-k", f"{words} and sqlite"


STEP_MUTANTS: Final[tuple[Bug, ...]] = (
    Bug(
        "a second start under an id may be of another function",
        f"{_LEDGER}:add",
        "known.workflow != workflow",
        "False",
        _on_sqlite("belongs"),
    ),
    Bug(
        "one and true are the same argument",
        f"{_LEDGER}:_plain",
        "json.dumps(json.loads(arguments), sort_keys=True)",
        "json.loads(arguments)",
        _on_sqlite("belongs"),
    ),
    Bug(
        "a worker takes functions that it has not",
        f"{_LEDGER}:_taken_of",
        "workflows.c.workflow.in_(list(names))",
        "workflows.c.id.is_not(None)",
        _on_sqlite("leaves_functions"),
    ),
    Bug(
        "what runs of other queues counts as well",
        f"{_LEDGER}:_taken_of",
        "_.where(workflows.c.queue == queue, workflows.c.state == State.RUNNING)",
        "_.where(workflows.c.state == State.RUNNING)",
        _on_sqlite("all_queues"),
    ),
    Bug(
        "one whose worker is gone waits for all that came before",
        f"{_LEDGER}:_taken_of",
        "_.order_by(workflows.c.state, workflows.c.due_ms, workflows.c.id)",
        "_.order_by(workflows.c.due_ms, workflows.c.id)",
        _on_sqlite("worker_is_gone"),
    ),
    Bug(
        "a workflow that has failed at its deadline is never deleted",
        f"{_LEDGER}:_taken_of",
        '"ended_ms": at_ms',
        "",
        _on_sqlite("deleted_in_time"),
    ),
    Bug(
        "a workflow that is resumed keeps its deadline",
        f"{_LEDGER}:resume",
        '"deadline_ms": None',
        "",
        _on_sqlite("deleted_in_time"),
    ),
    Bug(
        "a workflow that is resumed keeps its attempts",
        f"{_LEDGER}:resume",
        '"attempts": 0',
        "",
        _on_sqlite("given_up"),
    ),
    Bug(
        "those whose deadline is over are failed one look at a time",
        "semel.steps.worker:Worker._take",
        "while failed and not taken: ...",
        "if failed: ...",
        _on_sqlite("nobody_waiting"),
    ),
    Bug(
        "a worker that ends keeps its run for a whole lease",
        "semel.steps.worker:Worker._end_by",
        "yield from self._end(taken, State.WAITING)",
        "pass",
        _on_sqlite("at_once and ends"),
    ),
    Bug(
        "a run beats no more after its first step",
        "semel.steps.recorded:AnyStep._leave",
        "self._recording.is_locked = False",
        "pass",
        _on_sqlite("holds_on"),
    ),
    Bug(
        "the pauses between tries do not grow",
        "semel.steps.rules:after_error",
        "PAUSE_MS << min(attempts - 1, 20)",
        "PAUSE_MS",
        (_SEVERAL, "-k", "pause"),
    ),
)
