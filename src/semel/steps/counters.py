"""What the workers of workflows count."""

from typing import Final

from semel.metrics.counters import Counter

RUNS: Final = Counter(
    "semel_workflows_runs_total",
    "Runs of workflows: to the end (done), to a sleep or a pause before the next try (waiting), to an error (failed), "
    "or to a write that was refused, because the workflow was cancelled or taken over (fenced).",
    "workflow",
    outcomes=("done", "waiting", "failed", "fenced"),
)
REPEATED: Final = Counter(
    "semel_workflows_steps_in_doubt_total",
    "Steps without a key that were executed although an earlier run may have done them.",
    "workflow",
)
