"""The planted bugs of workflows: a late run that writes, a sleep that forgets, a limit that is none."""

from typing import Final

from saboteurs.planting import Bug

_WORKFLOWS: Final = "tests/steps/test_workflows.py"

WORKFLOW_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "a run that was taken over still writes",
        "semel.steps.ledger:_OF_HOLDER",
        'workflows.c.token == _given("of_token")',
        'workflows.c.token >= _given("of_token")',
        (_WORKFLOWS, "-k", "sqlite and taken_over"),
    ),
    Bug(
        "a late run of a deleted workflow writes into a new one of its id",
        "semel.steps.ledger:add",
        "secrets.randbits(_RANDOM_BITS) << _COUNTING_BITS",
        "0",
        (_WORKFLOWS, "-k", "sqlite and was_deleted_writes"),
    ),
    Bug(
        "a relay that has sent a batch begins it again after a wait",
        "semel.outbox.sender:Sender.put",
        "self._sent += 1",
        "pass",
        ("tests/outbox/test_sending.py", "-k", "sqlite and sends_nothing_twice"),
    ),
    Bug(
        "each run sleeps for the whole time again",
        "semel.steps.workflows:AnyRun._sleep",
        "json.loads(noted) if noted else at_ms + round(seconds * 1000)",
        "at_ms + round(seconds * 1000)",
        (_WORKFLOWS, "-k", "sqlite and sleep_holds"),
    ),
    Bug(
        "each try that fails shows the same traceback",
        "semel.steps.worker:Worker._end_by",
        "error if is_shown else None",
        "error",
        (_WORKFLOWS, "-k", "sqlite and first_and_the_last_show"),
    ),
    Bug(
        "a queue's limit does not count those whose worker is gone",
        "semel.steps.rules:chosen",
        "running_max - running",
        "running_max",
        (_WORKFLOWS, "-k", "sqlite and no_more_of_a_queue"),
    ),
    Bug(
        "what comes after the step from which a workflow goes on is passed by",
        "semel.steps.ledger:begin_again",
        "connection.execute(delete(steps).where(others))",
        "",
        (_WORKFLOWS, "-k", "sqlite and goes_on_after"),
    ),
)
