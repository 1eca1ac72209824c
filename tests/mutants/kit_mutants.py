"""Mutants of the application pieces, and of the audit."""

from typing import Final

from saboteurs.planting import Bug

_CLAIMING: Final = "tests/inbox/test_claiming.py"
_REAPER: Final = "tests/inbox/test_reaper.py"
_INBOX_QUARANTINE: Final = "tests/inbox/test_quarantine.py"
_COMMITS: Final = "tests/inbox/test_loop_commits.py"
_PUBLISHING: Final = "tests/publish/test_publishing.py"
_PUBLISH_FAULTS: Final = "tests/publish/test_publish_faults.py"
_STEPS: Final = "tests/http/test_http_steps.py"
_OFFSETS: Final = "tests/offsets/test_offsets_with_output.py"
_TRANSACTION: Final = "tests/client/test_transaction.py"
_RAW: Final = "tests/database/test_raw_transactions.py"
_WRITERS: Final = "tests/database/test_writers.py"
_RETRIES: Final = "tests/retries/test_retry_budget.py"
_AUDITING: Final = "tests/audit/test_auditing.py"
_AUDIT_PLACES: Final = "tests/audit/test_audit_places.py"
_PASSWORDS: Final = "tests/ui/cli/test_passwords.py"

KIT_MUTANTS: Final[tuple[Bug, ...]] = (
    # -- claims, the floor and the offsets of a loop ----------------------------------------------------------------
    Bug(
        "the time that comes with an event counts for more than the one in its id",
        "semel.inbox.claims:claim_of",
        "event_time_ms if own_ms is None else own_ms",
        "own_ms if event_time_ms is None else event_time_ms",
        (_REAPER, "-k", "time_in_an_id and sqlite"),
    ),
    Bug(
        "the offsets of lost partitions are committed over those of their new owner",
        "semel.inbox.loop:Loop.forget",
        "self._committable.forget(places)",
        "",
        (_COMMITS, "-k", "lost_partitions and sqlite"),
    ),
    Bug(
        "a message that waits for another system is committed over",
        "semel.inbox.loop:Loop._consume",
        "outcome is not None",
        "True",
        (_COMMITS, "-k", "read_again and sqlite"),
    ),
    Bug(
        "a message that waits for another system is not read again",
        "semel.inbox.loop:Loop._consume",
        "client.read_again(message)",
        "pass",
        (_COMMITS, "-k", "read_again and sqlite"),
    ),
    # -- the quarantine ---------------------------------------------------------------------------------------------
    Bug(
        "a loop retries what other consumers have put aside",
        "semel.inbox.quarantine:due_numbers",
        "quarantine.c.consumer == consumer",
        "",
        (_INBOX_QUARANTINE, "-k", "only_what_its_own and sqlite"),
    ),
    Bug(
        "a version that is still a gap when it is retried counts as done",
        "semel.inbox.admission:Admission.retake",
        "quarantine.hold_again(connection, number, State.DONE, gap_reason(identity))",
        "pass",
        (_INBOX_QUARANTINE, "-k", "versions_come_out and sqlite"),
    ),
    Bug(
        "a message is kept after its retry has done it",
        "semel.inbox.admission:Admission.retake",
        "quarantine.forget_message(connection, number)",
        "",
        (_INBOX_QUARANTINE, "-k", "once_it_is_done and sqlite"),
    ),
    Bug(
        "a message is kept after a person has dropped it",
        "semel.inbox.quarantine:drop",
        "forget_message(connection, number)",
        "",
        (_INBOX_QUARANTINE, "-k", "once_it_is_done and sqlite"),
    ),
    Bug(
        "a retry that fails brings back what a person has dropped meanwhile",
        "semel.inbox.quarantine:hold_again",
        "quarantine.c.state == source.value",
        "",
        (_INBOX_QUARANTINE, "-k", "stays_dropped and sqlite"),
    ),
    Bug(
        "the reaper deletes what waits for its retry",
        "semel.inbox.reaper:_SETTLED",
        "State.DONE.value, State.DROPPED.value",
        "State.DONE.value, State.DROPPED.value, State.DUE.value",
        (_INBOX_QUARANTINE, "-k", "waits_for_its_retry and sqlite"),
    ),
    Bug(
        "the reaper of one consumer deletes the settled messages of all others",
        "semel.inbox.reaper:delete_step",
        "quarantine.c.consumer == consumer",
        "",
        (_INBOX_QUARANTINE, "-k", "reaper_of_one and sqlite"),
    ),
    # -- the publisher ----------------------------------------------------------------------------------------------
    Bug(
        "a record under another key is taken for the cursor",
        "semel.publish.cursor_topic:CursorTopic._cursor_in",
        "if key != self.key: ...",
        "",
        (_PUBLISHING, "-k", "something_else_in_it"),
    ),
    # -- the audit --------------------------------------------------------------------------------------------------
    Bug(
        "with once, buckets in which only the sink has rows are not compared",
        "semel.audit.run:_Audit.judge",
        "everything(sent, stored)",
        "everything(sent)",
        (_AUDITING, "-k", "with_once"),
    ),
    Bug(
        "with once, of a window only the buckets of the source are compared",
        "semel.audit.tally:everything",
        "chosen[window] | there if window in chosen else there",
        "chosen[window] if window in chosen else there",
        (_AUDITING, "-k", "with_once"),
    ),
    Bug(
        "a row in memory counts twice at the end of a piece",
        "semel.audit.places.given:Given.pieces",
        "self._table.slice(begin, self._piece_rows)",
        "self._table.slice(begin, self._piece_rows + 1)",
        (_AUDITING, "-k", "naive_comparison"),
    ),
    Bug(
        "a row in memory is lost at the end of a piece",
        "semel.audit.places.given:Given.pieces",
        "self._table.slice(begin, self._piece_rows)",
        "self._table.slice(begin, self._piece_rows - 1)",
        (_AUDITING, "-k", "naive_comparison"),
    ),
    Bug(
        "a piece of a Parquet file begins with the last group of the one before",
        "semel.audit.places.parquet:_pieces_of_file",
        "group + 1, 0",
        "group, 0",
        (_AUDIT_PLACES, "-k", "one_piece_ends and parquet"),
    ),
    Bug(
        "a piece of a Parquet file ends before its last group",
        "semel.audit.places.parquet:_pieces_of_file",
        "RowGroups(str(path), first, group + 1, rows, files=files)",
        "RowGroups(str(path), first, group, rows, files=files)",
        (_AUDIT_PLACES, "-k", "one_piece_ends and parquet"),
    ),
    Bug(
        "the last groups of a Parquet file of several pieces are left out",
        "semel.audit.places.parquet:_pieces_of_file",
        "if first < metadata.num_row_groups: ...",
        "if first == 0: ...",
        (_AUDIT_PLACES, "-k", "one_piece_ends and parquet"),
    ),
    Bug(
        "a record of a topic counts twice at the end of a piece",
        "semel.audit.places.topic:TopicPlace.pieces",
        "start + self.piece_rows",
        "start + self.piece_rows + 1",
        (_AUDIT_PLACES, "-k", "one_piece_ends and semel"),
    ),
    Bug(
        "a record of a topic is lost at the end of a piece",
        "semel.audit.places.topic:TopicPlace.pieces",
        "start + self.piece_rows",
        "start + self.piece_rows - 1",
        (_AUDIT_PLACES, "-k", "one_piece_ends and semel"),
    ),
    Bug(
        "a row of PostgreSQL counts twice at the end of a batch",
        "semel.audit.places.postgres:PostgresTable.read",
        "batch.slice(begin, self.batch_rows)",
        "batch.slice(begin, self.batch_rows + 1)",
        (_AUDIT_PLACES, "-k", "one_piece_ends and postgresql"),
    ),
    Bug(
        "a row of PostgreSQL is lost at the end of a batch",
        "semel.audit.places.postgres:PostgresTable.read",
        "batch.slice(begin, self.batch_rows)",
        "batch.slice(begin, self.batch_rows - 1)",
        (_AUDIT_PLACES, "-k", "one_piece_ends and postgresql"),
    ),
    Bug(
        "of the rows of a database that are held at a time only the last ones count",
        "semel.audit.places.cursors:fetched",
        "rows += few",
        "rows = few",
        (_AUDIT_PLACES, "-k", "long_rows and sqlite"),
    ),
    Bug(
        "rows of a group that were counted are counted again with the next ones",
        "semel.audit.comparison:_counted",
        "counted, waiting = _recounted(counted, waiting), []",
        "counted = _recounted(counted, waiting)",
        (_AUDITING, "-k", "naive_comparison"),
    ),
    Bug(
        "rows of a group that were counted are forgotten over the next ones",
        "semel.audit.comparison:_counted",
        "counted, waiting = _recounted(counted, waiting), []",
        "_recounted(counted, waiting)\nwaiting = []",
        (_AUDITING, "-k", "naive_comparison"),
    ),
    # -- consumers, topics and partitions that are not alone -----------------------------------------------------------
    Bug(
        "to forget a topic for one consumer forgets it for all",
        "semel.offsets.places:forget",
        "offsets.c.consumer == consumer",
        "",
        (_OFFSETS, "-k", "its_own_offsets and sqlite"),
    ),
    Bug(
        "a consumer goes on at the offsets of any other",
        "semel.offsets.places:next_offsets",
        "_.where(offsets.c.consumer == consumer)",
        "_",
        (_OFFSETS, "-k", "its_own_offsets and sqlite"),
    ),
    Bug(
        "a consumer goes on at the offset of the first partition in all",
        "semel.offsets.seek:seeking",
        "known.get((place.topic, place.partition))",
        "known.get((place.topic, 0))",
        (_OFFSETS, "-k", "where_it_is_itself and sqlite"),
    ),
    Bug(
        "records that were deleted before they were read are passed over",
        "semel.offsets.seek:_check_there",
        "low <= next_offset <= high",
        "next_offset <= high",
        (_OFFSETS, "-k", "were_deleted_before and sqlite"),
    ),
    Bug(
        "who has read everything cannot go on",
        "semel.offsets.seek:_check_there",
        "low <= next_offset <= high",
        "low <= next_offset < high",
        (_OFFSETS, "-k", "where_it_is_itself and sqlite"),
    ),
    Bug(
        "the claim of one consumer is kept for what another has in the quarantine",
        "semel.inbox.reaper:_old",
        "quarantine.c.consumer == consumer",
        "quarantine.c.consumer != ''",
        (_REAPER, "-k", "though_another_consumer and sqlite"),
    ),
    Bug(
        "a step of one caller is taken for that of another with the same key",
        "semel.steps.records:_OF_NAME",
        'steps.c.scope == bindparam("of_scope")',
        'bindparam("of_scope") == bindparam("of_scope")',
        (_STEPS, "-k", "step_of_one_caller and sqlite"),
    ),
    # -- what the quarantine keeps, and when it is retried -------------------------------------------------------------
    Bug(
        "the quarantine does not keep the time of a message",
        "semel.inbox.quarantine:_columns",
        '"timestamp_ms": message.timestamp_ms',
        '"timestamp_ms": None',
        (_INBOX_QUARANTINE, "-k", "comes_out_of and sqlite"),
    ),
    Bug(
        "a header without a value comes out of the quarantine with an empty one",
        "semel.inbox.quarantine:_columns",
        "None if value is None else value.hex()",
        '(value or b"").hex()',
        (_INBOX_QUARANTINE, "-k", "comes_out_of and sqlite"),
    ),
    Bug(
        "two messages that lay at one place are one",
        "semel.inbox.quarantine:subject_of_record",
        "repr(_)",
        "repr((message.topic, message.partition, message.offset))",
        (_INBOX_QUARANTINE, "-k", "at_one_place and sqlite"),
    ),
    Bug(
        "what another delivery has done meanwhile is put aside",
        "semel.inbox.admission:Admission.put_aside",
        "if not outcome: ...",
        "",
        (_INBOX_QUARANTINE, "-k", "another_delivery and sqlite"),
    ),
    Bug(
        "retries keep a loop from its broker for as long as they take",
        "semel.inbox.loop:Loop._retry_until",
        "self._is_stopping or (until_ms is not None and self._clock() >= until_ms)",
        "self._is_stopping",
        (_COMMITS, "-k", "in_between and sqlite"),
    ),
    Bug(
        "a loop that is told to stop makes all retries first",
        "semel.inbox.loop:Loop._retry_until",
        "self._is_stopping or (until_ms is not None and self._clock() >= until_ms)",
        "until_ms is not None and self._clock() >= until_ms",
        (_COMMITS, "-k", "told_to_stop and sqlite"),
    ),
    Bug(
        "the time at which a broker stored a record is that of its event",
        "semel.inbox.confluent:message_of",
        "kind == 1 and timestamp_ms >= 0",
        "timestamp_ms >= 0",
        (_COMMITS, "-k", "at_which_a_broker and sqlite"),
    ),
    # -- transactions of the publisher and of the client ---------------------------------------------------------------
    Bug(
        "a publisher does not look who has the name behind its fence",
        "semel.publish.publisher:Publisher._claim",
        "if self._is_noted: self._check_owner(cursor)",
        "",
        (_PUBLISH_FAULTS, "-k", "only_behind_its_fence"),
    ),
    Bug(
        "the last record that fails is taken for the one that was refused",
        "semel.publish.transaction:Transaction._note",
        "self._failed is None",
        "True",
        (_PUBLISHING, "-k", "takes_its_call_with_it"),
    ),
    Bug(
        "offsets are lost between two requests of a transaction",
        "semel.client.transaction:Transaction.commit_offsets",
        "every[at : at + _OFFSETS_PER_REQUEST]",
        "every[at : at + _OFFSETS_PER_REQUEST - 1]",
        (_TRANSACTION, "-k", "more_partitions_than_one"),
    ),
    Bug(
        "a committed offset of 0 is none",
        "semel.client.groups:committed",
        "one.committed_offset >= 0",
        "one.committed_offset > 0",
        (_TRANSACTION, "-k", "more_partitions_than_one"),
    ),
    # -- the transaction of a claim -----------------------------------------------------------------------------------
    Bug(
        "a commit in SQL that was refused is let through when it is tried again",
        "semel.database.transactions:_check_commit",
        "watched.failed = failed",
        "",
        ("tests/database/test_open_transactions.py", "-k", "as_often_as_it_is_tried and sqlite"),
    ),
    Bug(
        "a rollback to a savepoint from after the failure lets the claim commit",
        "semel.database.dialects.sqlite:_refusal_of_commit",
        "name not in later",
        "True",
        (_RAW, "-k", "from_after_the_failure and sqlite"),
    ),
    Bug(
        "a transaction on another file is refused, too",
        "semel.database.writers:check_no_own_writer",
        "if writer.file != file: ...",
        "",
        (_WRITERS,),
    ),
    # -- retries -------------------------------------------------------------------------------------------------------
    Bug(
        "all of a wait is random",
        "semel.retries.backoff:Retries.wait_seconds",
        "1 - chance / 2",
        "1 - chance",
        (_RETRIES, "-k", "random_part"),
    ),
    # -- the identity that a program finds ----------------------------------------------------------------------------
    Bug(
        "an identity that is made of the offset alone is the sender's mistake",
        "semel.inbox.admission:Admission._follows_place",
        "offset=message.offset + 1",
        "offset=message.offset",
        ("tests/inbox/test_identities.py",),
    ),
    Bug(
        "an identity that cannot be found for now is none",
        "semel.inbox.admission:Admission.identity_of",
        "self.passing(error)",
        "False",
        ("tests/inbox/test_identities.py",),
    ),
    # -- which requests are looked at ---------------------------------------------------------------------------------
    Bug(
        "a method that is written small is none",
        "semel.http.idempotency:Idempotency.__init__",
        "method.upper()",
        "method",
        ("tests/http/test_concerns.py",),
    ),
    Bug(
        "an answer that has just expired is replayed",
        "semel.http.claims:_claimed",
        "row.expires_ms <= at_ms",
        "row.expires_ms < at_ms",
        ("tests/http/test_terms.py",),
    ),
    Bug(
        "the answer of a successor is taken for one's own",
        "semel.http.claims:is_kept",
        "row.token == token",
        "True",
        ("tests/http/test_terms.py",),
    ),
    Bug(
        "a request that was refused ends the one that runs",
        "semel.http.idempotency:Idempotency.leave",
        "self._running.get(name) is owner",
        "name in self._running",
        ("tests/http/test_concerns.py",),
    ),
    Bug(
        "who asks for an answer that is kept waits for what its handler does behind it",
        "semel.http.holders:InTransaction.settle",
        "self.idempotency.leave(self._name, self)",
        "pass",
        ("tests/http/test_concerns.py", "-k", "works_on"),
    ),
    # -- passwords that commands read ---------------------------------------------------------------------------------
    Bug(
        "the end of its line is part of a password in a file",
        "semel.ui.cli.password_file:password_in",
        "lines.readline().rstrip('\\r\\n')",
        "lines.readline()",
        (_PASSWORDS,),
    ),
    Bug(
        "the end of its line is part of a password on standard input",
        "semel.ui.cli.users:_typed",
        "password.rstrip('\\r\\n')",
        "password",
        (_PASSWORDS,),
    ),
)
