"""Bugs in what the pieces for applications share: the retry budget, offsets with the output, counts, and what waits."""

from typing import Final

from saboteurs.planting import Bug

_BUDGET: Final = "tests/retries/test_retry_budget.py"
_OFFSETS: Final = "tests/offsets/test_offsets_with_output.py"
_WATCH: Final = "tests/watch/test_watch.py"

KIT_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "a retry is free",
        "semel.retries.budget:RetryBudget.take",
        "self._tokens -= _WHOLE",
        "pass",
        (_BUDGET, "-k", "thousandths"),
    ),
    Bug(
        "loops that have to go on retry as fast as they can",
        "semel.retries.budget:RetryBudget.take_on_credit",
        "self._tokens -= _WHOLE",
        "pass",
        (_BUDGET, "-k", "faster"),
    ),
    Bug(
        "a record that was read is read again",
        "semel.offsets.places:_MOVE",
        'offsets.c.next_offset <= bindparam("of_offset")',
        'offsets.c.next_offset <= bindparam("of_offset") + 1',
        (_OFFSETS, "-k", "highest"),
    ),
    Bug(
        "a consumer begins where its group says, and not its output",
        "semel.offsets.seek:seeking",
        "place.offset = next_offset",
        "pass",
        (_OFFSETS, "-k", "sqlite and output_ends"),
    ),
    Bug(
        "a topic that was made again is skipped to its old offset",
        "semel.offsets.seek:_check_there",
        "low <= next_offset <= high",
        "True",
        (_OFFSETS, "-k", "sqlite and made_again"),
    ),
    Bug(
        "a lease that ran out counts as a key in flight",
        "semel.watch.gauges:_of",
        "keys.c.lease_until_ms > at_ms",
        "keys.c.lease_until_ms != at_ms",
        (_WATCH, "-k", "sqlite and each_figure"),
    ),
    Bug(
        "a database that is away fails the scrape",
        "semel.watch.collectors:known",
        "except SQLAlchemyError as error: ...",
        "except ZeroDivisionError as error: ...",
        (_WATCH, "-k", "themselves"),
    ),
    Bug(
        "a counter has the name of a figure",
        "semel.outbox.counters:QUARANTINED",
        '"semel_outbox_put_aside_total"',
        '"semel_outbox_quarantined_total"',
        (_WATCH, "-k", "one_registry"),
    ),
    Bug(
        "a hook that fails costs the request",
        "semel.metrics.counters:Counter.add",
        "except Exception as error: ...",
        "except ZeroDivisionError as error: ...",
        ("tests/metrics/test_kit_counters.py", "-k", "hook"),
    ),
    Bug(
        "a connection through a pooler executes what another client has prepared",
        "semel.database.poolers:check_prepares_nothing_through_pooler",
        "raise PreparesThroughPooler",
        "pass",
        ("tests/inbox/test_inbox_pooled.py", "-k", "prepares or asyncpg"),
    ),
)
