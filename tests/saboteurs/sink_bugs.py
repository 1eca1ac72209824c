"""The planted bugs of the sink into the log.

Each loses, doubles, reorders or misplaces records, lets a writer go on that was replaced, or never comes to an end.
"""

from typing import Final

from saboteurs.planting import Bug

_ENDS: Final = "tests/client/test_transaction_ends.py"
_ICEBERG: Final = "tests/spark/tables/test_iceberg_claims.py"
_OBJECTS: Final = "tests/spark/tables/test_delta_objects.py"
_PATIENCE: Final = "tests/client/test_patience.py"


def _transactions(named: str) -> tuple[str, ...]:
    return "tests/client/test_transaction.py", "-k", named


SINK_BUGS: Final[tuple[Bug, ...]] = (
    # -- a transaction: each batch once, under its numbers ----------------------------------------------------------
    Bug(
        "all batches of a partition have the numbers of the first",
        "semel.client.transaction:Transaction.write",
        "(sequence + records.count) & _SEQUENCE_MASK",
        "sequence",
        _transactions("there_once_and_in_order"),
    ),
    Bug(
        "batches are numbered, not records",
        "semel.client.transaction:Transaction.write",
        "sequence + records.count",
        "sequence + 1",
        _transactions("numbers"),
    ),
    Bug(
        "the numbers of records do not wrap",
        "semel.client.transaction:_SEQUENCE_MASK",
        "(1 << 31) - 1",
        "(1 << 32) - 1",
        _transactions("numbers"),
    ),
    Bug(
        "the numbers of records go on over a claim",
        "semel.client.transaction:Transaction.join",
        "dict.fromkeys(new, 0)",
        "dict.fromkeys(new, 100 * self._claim[1])",
        (_ENDS, "-k", "what_was_aborted"),
    ),
    Bug(
        "batches are written outside of their transaction",
        "semel.client.transaction:Transaction.write",
        "codec | TRANSACTIONAL_BIT",
        "codec",
        _transactions("there_once_and_in_order"),
    ),
    Bug(
        "a commit does not wait for the last answers",
        "semel.client.transaction:Transaction.commit",
        "wait_for_all=True",
        "wait_for_all=False",
        _transactions("followed_at_once"),
    ),
    Bug(
        "what waits is forgotten when what was sent is taken back",
        "semel.client.transaction:Transaction._take_back",
        "unanswered + self._waiting",
        "unanswered",
        _transactions("without_a_leader"),
    ),
    Bug(
        "what is taken back is sent after what waits",
        "semel.client.transaction:Transaction._take_back",
        "unanswered + self._waiting",
        "self._waiting + unanswered",
        _transactions("without_a_leader"),
    ),
    Bug(
        "who led a partition is remembered when it moves",
        "semel.client.transaction:Transaction._take_back",
        "self._cluster.forget(topic)",
        "",
        _transactions("followed_at_once"),
    ),
    Bug(
        "a coordinator that moved is asked where it was",
        "semel.client.transaction:Transaction._check",
        "if code in codes.NOT_COORDINATED: self._coordinator = None",
        "",
        _transactions("looked_for_again"),
    ),
    Bug(
        "only the first of several partitions takes part",
        "semel.client.transaction:Transaction.join",
        "for where in new: ...",
        "for where in new[:1]: ...",
        _transactions("all_at_once"),
    ),
    Bug(
        "a partition that may not take part yet counts as one that does",
        "semel.client.transaction:Transaction._announce",
        """
        for where, code in of_partitions:
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ...
            if code != ErrorCode.OPERATION_NOT_ATTEMPTED: ...
        if not of_partitions or any(code for _, code in of_partitions): ...
        """,
        """
        for where, code in of_partitions:
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ...
        if not of_partitions:
            raise Moved(self._id)
        """,
        _transactions("busy_or_elsewhere"),
    ),
    Bug(
        "the end of its time does not end a transaction",
        "semel.client.transaction:Transaction._send.attempt",
        "self._check_time()",
        "",
        _transactions("takes_too_long"),
    ),
    Bug(
        "an abort follows a commit that nobody knows of",
        "semel.client.transaction:Transaction.abort",
        "self._ends is None or self._is_fenced or self.is_committing",
        "self._ends is None or self._is_fenced",
        _transactions("claims_nothing"),
    ),
    Bug(
        "a commit is remembered when it is answered",
        "semel.client.transaction:Transaction.commit",
        """
        self.is_committing = True
        self._patiently(self._end, _)
        """,
        """
        self._patiently(self._end, _)
        self.is_committing = True
        """,
        _transactions("claims_nothing"),
    ),
    Bug(
        "an abort leaves the epoch as it is",
        "semel.client.transaction:Transaction._abort_by_claiming",
        "self._claim_id(self._claim)",
        """
        number, epoch = self._claim
        of_claim = {"transactional_id": self._id, "producer_id": number, "producer_epoch": epoch}
        self._check(self._ask_coordinator(kafka.end_txn.EndTxnRequest(**of_claim, committed=False)).error_code)
        """,
        (_ENDS, "-k", "opens_no_transaction_again"),
    ),
    Bug(
        "an abort takes the id from whoever has it by now",
        "semel.client.transaction:Transaction._abort_by_claiming",
        "self._claim_id(self._claim)",
        "self._claim_id(_NO_CLAIM)",
        (_ENDS, "-k", "who_comes_during_an_abort"),
    ),
    Bug(
        "an abort does not look whether the id is still ours",
        "semel.client.transaction:Transaction.abort",
        "self._patiently(lambda: self._announce(self._opened_by), patience)",
        "",
        (_ENDS, "-k", "who_gives_up_aborts_nothing"),
    ),
    Bug(
        "who is fenced asks for an abort all the same",
        "semel.client.transaction:Transaction.abort",
        "self._ends is None or self._is_fenced or self.is_committing",
        "self._ends is None or self.is_committing",
        (_ENDS, "-k", "nothing_more_is_asked"),
    ),
    Bug(
        "who is fenced claims the id again and goes on",
        "semel.client.transaction:Transaction._patiently",
        """
        self._check_time()
        raise
        """,
        """
        self._claim = self._claim_id(_NO_CLAIM)
        attempt()
        """,
        (_ENDS, "-k", "who_is_fenced"),
    ),
    # -- the sender to a leader: what it was given, what it said, how long it is waited for ----------------------------
    Bug(
        "one more request is under way than brokers remember batches",
        "semel.client.sender",
        "REQUESTS_UNDER_WAY_MAX: Final = 5",
        "REQUESTS_UNDER_WAY_MAX: Final = 6",
        _transactions("than_a_broker_remembers"),
    ),
    Bug(
        "a request has two batches of one partition",
        "semel.client.sender:requests_of",
        "where in there or (request and size + len(batch.batch) > bytes_max)",
        "request and size + len(batch.batch) > bytes_max",
        _transactions("one_batch_of_a_partition"),
    ),
    Bug(
        "a request is under way from when it was sent as a whole",
        "semel.client.sender:Sender._send",
        """
        self._under_way.append(self._to_send.popleft())
        try:
            self.connection.send_produce(self._under_way[-1], self._id, self._settings.request_timeout_ms)
        except ConnectionLost: ...
        """,
        """
        request = self._to_send.popleft()
        try:
            self.connection.send_produce(request, self._id, self._settings.request_timeout_ms)
            self._under_way.append(request)
        except ConnectionLost: ...
        """,
        _transactions("breaks_off"),
    ),
    Bug(
        "answers that came before a connection broke are not heard",
        "semel.client.sender:Sender._send",
        "while self._under_way: self._receive()",
        "",
        _transactions("before_a_connection_broke"),
    ),
    Bug(
        "what was not sent yet is not taken back",
        "semel.client.sender:Sender.unanswered",
        "(*self._under_way, *self._to_send)",
        "self._under_way",
        _transactions("breaks_off or lost_answers"),
    ),
    Bug(
        "what was sent without an answer is not taken back",
        "semel.client.sender:Sender.unanswered",
        "(*self._under_way, *self._to_send)",
        "self._to_send",
        _transactions("breaks_off or lost_answers"),
    ),
    Bug(
        "what is taken back has the later ones first",
        "semel.client.sender:Sender.unanswered",
        "(*self._under_way, *self._to_send)",
        "(*self._to_send, *self._under_way)",
        _transactions("breaks_off or lost_answers"),
    ),
    Bug(
        "the last answer is not waited for",
        "semel.client.sender:Sender.advance",
        "wait_for_all and self._under_way",
        "wait_for_all and len(self._under_way) > 1",
        _transactions("than_a_broker_remembers"),
    ),
    Bug(
        "every answer says that the batch is there",
        "semel.client.sender:Sender._receive",
        "answer.error_code == ErrorCode.NONE",
        "answer.error_code is not None",
        _transactions("error_that_passes and False"),
    ),
    Bug(
        "a batch is done with its answer, whatever that says",
        "semel.client.sender:Sender._receive",
        """
        self._under_way[0] = list(left.values())
        if left: ...
        """,
        """
        if left:
            self._under_way.popleft()
            ...
        """,
        _transactions("error_that_passes and False"),
    ),
    Bug(
        "a partition that the leader does not speak of is taken for written",
        "semel.client.sender:Sender._receive",
        "if left: ...",
        "if wrong: ...",
        _transactions("does_not_speak_of"),
    ),
    Bug(
        "a gap that the broker sees passes by itself",
        "semel.client.codes:MOVED",
        "ErrorCode.THROTTLING_QUOTA_EXCEEDED",
        "ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER",
        _transactions("error_that_stays and OUT_OF_ORDER"),
    ),
    Bug(
        "a topic is missing since the last progress",
        "semel.client.patience:Patience.wait",
        "now - self._missing_since",
        "waited",
        (_PATIENCE, "-k", "first_said_to_be"),
    ),
    Bug(
        "an empty answer is the end, whoever gives it",
        "semel.client.client:_Fetching._is_empty_to_the_end",
        "answer.last_stable_offset >= self._wanted.end",
        "answer.last_stable_offset >= 0",
        ("tests/client/test_empty_end.py",),
    ),
    Bug(
        "a change whose answer is lost is sent to the next broker as well",
        "semel.client.cluster:Cluster.ask_once",
        "connection = self.lease(address)",
        "return self.ask(address, request)",
        ("tests/client/test_client_cluster.py",),
    ),
    Bug(
        "a number of another writer's is taken for the claim",
        "semel.spark.tables.delta_claims:app_ids",
        'f"{APP_ID_PREFIX}{sink}"',
        "sink",
        ("tests/spark/tables/test_delta_sink.py", "-k", "users_own"),
    ),
    Bug(
        "a Delta table takes files wherever they lie",
        "semel.spark.tables.delta_files:files_of",
        "[partition_of(name)[0] for name in path.relative_to(directory).parts[:-1]] == wanted",
        "True",
        ("tests/spark/tables/test_delta_sink.py", "-k", "too_late"),
    ),
    Bug(
        "a column of SQLite may change what it gets",
        "semel.spark.tables.affinities:check_affinities",
        "change is not None",
        "False",
        ("tests/spark/tables/test_sql_sink.py", "-k", "would_change_a_value"),
    ),
    Bug(
        "a claim in a Delta table outlives the rows that RESTORE took away",
        "semel.spark.tables.delta_claims:standing",
        "restored is None",
        "True",
        ("tests/spark/tables/test_delta_sink.py", "-k", "restored"),
    ),
    Bug(
        "a claim in an Iceberg table outlives the rows that a rollback took away",
        "semel.spark.tables.iceberg_claims:standing",
        "(oldest.sequence_number or 0) > noted.sequence",
        "True",
        (_ICEBERG, "-k", "nobody_can_tell"),
    ),
    Bug(
        "a line of snapshots without a parent is taken for the whole of it",
        "semel.spark.tables.iceberg_claims:standing",
        "oldest.sequence_number == FIRST_SEQUENCE",
        "oldest.parent_snapshot_id is None",
        (_ICEBERG, "-k", "outlives"),
    ),
    Bug(
        "the library repeats a lost commit to an Iceberg table by itself",
        "semel.spark.tables.iceberg_sink:IcebergFiles.committed",
        "transaction._snapshot_producers.clear()",
        "pass",
        (_ICEBERG, "-k", "next_one_after"),
    ),
    Bug(
        "files are committed to a table whose columns or partitions have changed since",
        "semel.spark.tables.files:OpenedTable.commit",
        "self.table.form(self.version) != form",
        "False",
        (_ICEBERG, "-k", "no_file_is_committed"),
    ),
    Bug(
        "two branches of an Iceberg table share a claim",
        "semel.spark.tables.iceberg_claims:key_of",
        "branch == MAIN",
        "True",
        (_ICEBERG, "-k", "claims_of_their_own"),
    ),
    Bug(
        "a store in which commits vanish is written to",
        "semel.spark.tables.delta_objects:commits_once",
        "not _commits(first) or _commits(second)",
        "not _commits(first)",
        (_OBJECTS, "-k", "vanish"),
    ),
    Bug(
        "the upper bound of a file's times is below its rows",
        "semel.spark.tables.delta_files:bound",
        "above and rest",
        "False",
        (_OBJECTS, "-k", "leave_no_row"),
    ),
    Bug(
        "rows without a value in their partition are in no file",
        "semel.spark.tables.delta_objects:parted",
        "compute.is_null(column) if value is None else compute.equal(column, value)",
        "compute.equal(column, value)",
        (_OBJECTS, "-k", "whatever_text"),
    ),
    Bug(
        "a restore that was taken back counts",
        "semel.spark.tables.delta_claims:restored_below",
        'version < entry["version"] <= newest',
        'version < entry["version"]',
        ("tests/spark/tables/test_delta_sink.py", "-k", "itself_taken_back"),
    ),
    Bug(
        "a mark lets in a query that has lost its state",
        "semel.spark.tables.claims:judge",
        "held is not None and held.query_id != claim.query_id and state",
        "False",
        ("tests/spark/tables/test_sink_claims.py",),
    ),
    Bug(
        "totals are added to totals",
        "semel.spark.tables.output_modes:gives_results_again",
        'batch.output_mode == "update" and is_aggregated',
        "False",
        ("tests/spark/tables/test_output_modes.py", "-k", "counted_again"),
    ),
    Bug(
        "a sink writes the rows that its where leaves out",
        "semel.spark.tables.sink:Choice.of",
        "self.where is None",
        "True",
        ("tests/spark/tables/test_fan_out.py", "-k", "of_its_where"),
    ),
    Bug(
        "a query whose checkpoint Spark deletes is not warned",
        "semel.spark.tables.micro_batch:batch_of",
        "batch_id == 0 and is_temporary(str(query.resolvedCheckpointRoot()))",
        "False",
        ("tests/spark/tables/test_micro_batch.py", "-k", "warned"),
    ),
    Bug(
        "two drivers read the claim of one sink in MySQL before either has written",
        "semel.spark.tables.mysql:MysqlConnection.commit",
        'self.claim("FOR UPDATE")',
        'self.claim("")',
        ("tests/spark/tables/test_table_commits.py", "-k", "two_drivers and mariadb"),
    ),
    Bug(
        "MySQL replaces a row that is like the new one outside of its key",
        "semel.spark.tables.mysql:MysqlConnection.look_at_columns",
        "self.check_unique(table, self.target.write) > 1",
        "False",
        ("tests/spark/tables/test_mysql_sink.py", "-k", "only_outside_of_its_key"),
    ),
    Bug(
        "two sinks into MySQL share a claim whose collation somebody changed",
        "semel.spark.tables.mysql:MysqlConnection.make_own",
        "check_key(table, key, columns, self.collation)",
        "pass",
        ("tests/spark/tables/test_mysql_sink.py", "-k", "never_share_a_claim"),
    ),
    Bug(
        "MySQL takes long keys that begin alike for one",
        "semel.spark.tables.mysql_rows",
        "4 * SORTED_BYTES_MAX",
        "1024",
        ("tests/spark/tables/test_mysql_sink.py", "-k", "differ_only_at_their_ends"),
    ),
    Bug(
        "MySQL gives a stored row the key null, which is a number in some columns",
        "semel.spark.tables.statements:by_duplicate_key",
        "_TWO_ROWS",
        "'NULL'",
        ("tests/spark/tables/test_mysql_sink.py", "-k", "whatever_null_means"),
    ),
    Bug(
        "a table of MySQL that rolls nothing back takes rows with a claim",
        "semel.spark.tables.mysql:MysqlConnection.check_engine",
        "engine != ENGINE",
        "False",
        ("tests/spark/tables/test_mysql_sink.py", "-k", "rolls_nothing_back"),
    ),
    Bug(
        "MySQL takes a key for another one that its collation joins with it",
        "semel.spark.tables.mysql_columns:Column.is_bytewise",
        "self.collation is None or self.collation.endswith(_BYTEWISE)",
        "True",
        ("tests/spark/tables/test_mysql_sink.py", "-k", "refused_with_the_remedy"),
    ),
    Bug(
        "MERGE finds a row by the first column of its key",
        "semel.spark.tables.statements:upsert_by_merge",
        '" AND ".join(f"target.{quoted(name)} = semel_newest.{quoted(name)}" for name in write.key)',
        '" AND ".join(f"target.{quoted(name)} = semel_newest.{quoted(name)}" for name in write.key[:1])',
        ("tests/spark/tables/test_table_commits.py", "-k", "share_a_part or both_ways"),
    ),
)
