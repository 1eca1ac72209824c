"""The planted bugs of what is done in steps: others are served in between, and change what was looked up before."""

from typing import Final

from saboteurs.planting import Bug

STEP_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "very many large files are removed in one turn",
        "semel.log.storage.segment_files:SegmentFiles.remove",
        "yield pieces",
        "yield APPEND_PIECES",
        ("tests/log/storage/test_segment.py", "-k", "turn_to_itself"),
    ),
    Bug(
        "a checkpoint that is taken bit by bit has what came meanwhile",
        "semel.log.storage.partition_log:PartitionLog._before_change",
        "self.keeper(self)",
        "pass",
        ("tests/log/storage/test_checkpoint_in_steps.py",),
    ),
    Bug(
        "a marker that others have written over counts as written",
        "semel.log.storage.markers:write_markers",
        "writes.get(partition) != partition.last_write",
        "partition not in writes",
        ("tests/log/storage/test_log_transactions.py",),
    ),
    Bug(
        "a marker counts as written in a segment that was sealed since",
        "semel.log.storage.partition_log:PartitionLog.last_write",
        "self.end_mark()",
        "Mark(0, 0, 0)",
        ("tests/log/storage/test_prepared_ends.py",),
    ),
    Bug(
        "a checkpoint that is taken bit by bit has the end that came meanwhile",
        "semel.log.storage.partition_log:PartitionLog.apply_marker",
        "self._before_change()",
        "pass",
        ("tests/log/storage/test_prepared_ends.py",),
    ),
    Bug(
        "a place is answered that was deleted while the batch was looked through",
        "semel.log.broker.apis.list_offsets:first_since",
        "record is not None and record[0] >= log_start",
        "record is not None",
        ("tests/log/broker/apis/test_between_steps.py",),
    ),
    Bug(
        "a time is looked for in a topic that was deleted meanwhile",
        "semel.log.broker.apis.list_offsets:first_since",
        "broker.log.state.catalog.numbered(partition.topic_number) is None",
        "False",
        ("tests/log/broker/apis/test_between_steps.py",),
    ),
    Bug(
        "a request that was timely when it came is taken for timely after its steps",
        "semel.log.broker.transactions:TransactionCoordinator.end",
        "check_timely()",
        "pass",
        ("tests/log/broker/apis/test_transactions_between_steps.py",),
    ),
    Bug(
        "partitions of a request that was overtaken get into the next transaction",
        "semel.log.broker.apis.add_partitions_to_txn:_outcome",
        "check_timely(broker, exchange, addition.producer_id)",
        "pass",
        ("tests/log/broker/apis/test_transactions_between_steps.py",),
    ),
    Bug(
        "offsets of a request that was overtaken get into the next transaction",
        "semel.log.broker.apis.txn_offset_commit:handle.commit_some",
        "exchange.version < _JOINS_FROM",
        "False",
        ("tests/log/broker/apis/test_transactions_between_steps.py",),
    ),
    Bug(
        "a transaction is timed out for the one before it",
        "semel.log.broker.transactions:TransactionCoordinator._time_out",
        "due_ms is None or due_ms > steady_ms",
        "due_ms is None",
        ("tests/log/broker/apis/test_transactions_between_steps.py",),
    ),
    Bug(
        "offsets are shown of two moments",
        "semel.log.core.groups.offsets:GroupOffsets.view",
        "OffsetsView(self.committed.snapshot(), pending)",
        "OffsetsView(self.committed._by_topic, pending)",
        ("tests/log/broker/apis/test_transactions_between_steps.py",),
    ),
    Bug(
        "a request waits for a client that is gone",
        "semel.log.broker.connection:Connection.park",
        "self.is_lost",
        "False",
        ("tests/log/broker/test_lost_in_between.py",),
    ),
    Bug(
        "a lost connection gives back the room that a handler still works in",
        "semel.log.broker.connection:Connection.connection_lost",
        "not self._has_to_wait",
        "True",
        ("tests/log/broker/test_lost_in_between.py",),
    ),
    Bug(
        "a member is heard over a connection that is gone",
        "semel.log.broker.classic_groups:ClassicGroupCoordinator.note_heard",
        "exchange.is_lost",
        "False",
        ("tests/log/broker/test_lost_in_between.py",),
    ),
    Bug(
        "a fetch waits for a topic that went while it was looked at",
        "semel.log.broker.apis.fetch:_ParkedFetch.wait",
        "until_of(self._request, partition) != until or self._is_gone(partition)",
        "until_of(self._request, partition) != until",
        ("tests/log/broker/apis/test_between_steps.py",),
    ),
    Bug(
        "the next request overtakes one that takes several turns",
        "semel.log.broker.connection:Connection._may_serve",
        "self._has_to_wait",
        "False",
        ("tests/log/broker/test_held_loop.py", "-k", "next_request"),
    ),
    Bug(
        "a member never hears of topics that came while its expression was looked up",
        "semel.log.core.groups.consumer_topics:ResolvedPattern._look_through",
        "self._matches, self._numbers, self._changes = matches, frozenset(numbers), changes",
        "self._matches, self._numbers, self._changes = matches, frozenset(numbers), catalog.changes",
        ("tests/log/broker/test_held_loop.py", "-k", "hears_of_topics"),
    ),
    Bug(
        "every connection may have a large batch opened at once",
        "semel.log.compaction.records:KeyChecks.__init__",
        "Door(1)",
        "Door(2_000)",
        ("tests/log/compaction/test_key_checks.py",),
    ),
    Bug(
        "who is given up at a door keeps the place that was kept for it",
        "semel.wire.steps:Door._enter",
        """
        if waiting in self._waiting:
            self._waiting.remove(waiting)
        else:
            self._leave()
        """,
        """
        if waiting in self._waiting:
            self._waiting.remove(waiting)
        """,
        ("tests/log/compaction/test_key_checks.py",),
    ),
    Bug(
        "a checkpoint that is taken bit by bit has the offsets that came meanwhile",
        "semel.log.core.groups.groups:Groups.apply",
        "self._before_change(name)",
        "pass",
        ("tests/log/storage/test_checkpoint_in_steps.py",),
    ),
    Bug(
        "a checkpoint lacks the offsets in a topic whose deletion may be lost",
        "semel.log.core.groups.groups:Groups._leave_topic",
        "self._before_change(group.name)",
        "pass",
        ("tests/log/core/groups/test_offsets.py",),
    ),
    Bug(
        "what a request has gathered counts as nothing until it is answered",
        "semel.log.broker.apis.harvest:Harvest.note_read",
        "self._broker.unsent_bytes += size",
        "pass",
        ("tests/log/broker/apis/test_between_steps.py", "-k", "gather"),
    ),
)
