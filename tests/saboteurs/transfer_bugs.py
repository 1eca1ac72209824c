"""The planted bugs of the move into another cluster: what would lose, double or disorder a record, or have a group go
on in another place."""

from typing import Final

from saboteurs.planting import Bug

_MOVE: Final = "tests/ui/transfer/test_move_between_clusters.py"
_AUDIT: Final = "tests/ui/transfer/test_comparison.py"

TRANSFER_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "a move that goes on after a kill begins each partition at its beginning",
        "semel.ui.transfer.move:Move._behind",
        "max(reached.next, begins[where])",
        "begins[where]",
        (f"{_MOVE}::test_what_is_written_meanwhile_comes_along",),
        seconds_max=15.0,
    ),
    Bug(
        "a move does not look whether another one has written meanwhile",
        "semel.ui.transfer.progress:Progress.write",
        "any(True for _ in _bodies(client, self.topic, self.known, first))",
        "False",
        (f"{_MOVE}::test_of_two_moves_at_the_same_time_one_gives_up",),
    ),
    Bug(
        "a move ends while a transaction is open",
        "semel.ui.transfer.move:Move._in_use",
        "stable[where] < ends[where]",
        "False",
        (f"{_MOVE}::test_an_open_transaction_is_waited_for",),
        seconds_max=15.0,
    ),
    Bug(
        "a move ends while a transaction is open that has only offsets",
        "semel.client.transactional_ids:under_way",
        "listed(cluster, _UNDER_WAY)",
        "{}",
        ("tests/ui/transfer/test_move_waits.py",),
        seconds_max=15.0,
    ),
    Bug(
        "what was written during the audit stays behind",
        "semel.ui.transfer.move:Move._copy_and_audit",
        "not self._behind(progress)",
        "True",
        (f"{_MOVE}::test_what_is_written_meanwhile_comes_along",),
    ),
    Bug(
        "a group goes back by what it read between the audit and the next run",
        "semel.ui.transfer.move:Move._check_unchanged",
        "self._committed() != before",
        "False",
        (f"{_MOVE}::test_a_move_that_was_killed_after_the_audit_goes_on_if_nobody_used_the_source_since",),
        seconds_max=15.0,
    ),
    Bug(
        "a transaction takes in records until its timeout is over",
        "semel.ui.transfer.move:Move._copy",
        "size >= TRANSACTION_BYTES or self._steady() >= until",
        "size >= TRANSACTION_BYTES",
        (f"{_MOVE}::test_a_slow_source_makes_transactions_shorter",),
        seconds_max=15.0,
    ),
    Bug(
        "all offsets of all groups are written as one batch",
        "semel.ui.transfer.progress:_batches",
        "batch and size > _BATCH_BYTES",
        "False",
        (f"{_MOVE}::test_thousands_of_offsets_with_metadata_come_along",),
        seconds_max=15.0,
    ),
    Bug(
        "aborted records are moved",
        "semel.client.aborted:committed_batches",
        "header.is_control or is_aborted",
        "header.is_control",
        (f"{_MOVE}::test_each_committed_record_is_there_once_and_in_its_order",),
    ),
    Bug(
        "the records before the log's beginning come along with their batch",
        "semel.ui.transfer.pieces:Piece.bodies",
        "body.offset >= self.start",
        "True",
        (f"{_MOVE}::test_a_log_that_begins_in_the_middle_of_a_batch_is_moved_from_there",),
    ),
    Bug(
        "a batch with the broker's times passes as if they were its own",
        "semel.ui.transfer.pieces:Piece.is_plain",
        "APPEND_TIME_BIT | HORIZON_BIT",
        "0",
        (f"{_MOVE}::test_the_time_of_the_broker_stays_the_time_of_a_record",),
    ),
    Bug(
        "retention removes records of the target while they are moved",
        "semel.ui.transfer.topics:prepare",
        "dict.fromkeys(sources, meanwhile)",
        "dict.fromkeys(sources, {})",
        (f"{_MOVE}::test_configurations_come_along_and_count_only_when_all_is_there",),
    ),
    Bug(
        "a topic that holds records of its own is moved into",
        "semel.ui.transfer.topics:prepare",
        "_check_empty(target, there[name])",
        "None",
        (f"{_MOVE}::test_a_topic_that_holds_something_else_is_refused",),
    ),
    Bug(
        "a group goes on at the offset of the source",
        "semel.ui.transfer.comparison:_Places.note",
        "target + max(wanted - source, 0)",
        "wanted",
        (f"{_AUDIT}::test_an_offset_stands_for_the_same_record_or_for_the_next_one",),
    ),
    Bug(
        "the audit forgives what only the target has",
        "semel.ui.transfer.comparison:compare",
        "other is None or not may_lack",
        "other is None",
        (f"{_AUDIT}::test_a_difference_is_found_where_it_is",),
    ),
    Bug(
        "the audit takes any record that is missing in the source for a superseded one",
        "semel.ui.transfer.comparison:compare",
        "offset is not None",
        "False",
        (f"{_AUDIT}::test_compaction_takes_no_last_record_of_a_key",),
    ),
    Bug(
        "the audit does not compare times",
        "semel.ui.transfer.comparison:_are_same",
        "(ours.record_count, ours.base_timestamp, ours.codec)",
        "(ours.record_count, theirs.base_timestamp, ours.codec)",
        (f"{_AUDIT}::test_a_difference_is_found_where_it_is",),
    ),
    Bug(
        "a move that has ended moves the groups back when it is run again",
        "semel.ui.transfer.move:Move.run",
        "progress.stage is Stage.MOVED",
        "False",
        (f"{_MOVE}::test_a_second_move_changes_nothing",),
    ),
    Bug(
        "a topic that is deleted while both sides are compared ends the move",
        "semel.ui.transfer.move:Move._copy_and_audit",
        "before.keys() <= self._originals.keys()",
        "True",
        (_MOVE, "-k", "deleted_meanwhile"),
    ),
)
