"""Mutants of share groups: their records, their sessions, and what an operator is told of them."""

from typing import Final

from saboteurs.planting import Bug

_PARTITION: Final = "tests/log/core/groups/test_share_partition.py"

SHARE_MUTANTS: Final[tuple[Bug, ...]] = (
    Bug(
        "a record that compaction removes is taken from its holder",
        "semel.log.core.groups.share_partition:SharePartition._gone",
        "state.kind == AVAILABLE",
        "state.kind != DONE",
        (_PARTITION, "-k", "compaction_removes"),
    ),
    Bug(
        "what compaction has removed between two batches waits for ever",
        "semel.log.core.groups.share_partition:SharePartition.decide_acquire",
        "result.changes.extend(self._gone(at, first - 1))",
        "pass",
        (_PARTITION, "-k", "compaction_has_removed"),
    ),
    Bug(
        "records between the end and what was read are never delivered",
        "semel.log.core.groups.share_partition:SharePartition.decide_acquire",
        "at > max(self.end, log_start)",
        "False",
        (_PARTITION, "-k", "passed_over"),
    ),
)
