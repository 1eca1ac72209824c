"""Mutants of the source and the sinks."""

from typing import Final

from saboteurs.planting import Bug

_COMMITS = "tests/spark/tables/test_table_commits.py"
_SQL = "tests/spark/tables/test_sql_sink.py"
_DELTA = "tests/spark/tables/test_delta_sink.py"
_CUT = "tests/spark/source/test_cut_log.py"
_LOSSES = "tests/spark/source/test_source_losses.py"
_STREAM = "tests/spark/source/test_source_stream.py"
_MARKERS = "tests/spark/lanes/test_lane_markers.py"
_ROWS = "tests/spark/lanes/test_lane_rows.py"
_LAYOUTS = "tests/spark/dedup/test_kept_layouts.py"
_JUDGES = "tests/spark/dedup/test_id_and_version_judges.py"
_ORDER = "tests/spark/dedup/test_operator_order.py"

PIPELINE_MUTANTS: Final[tuple[Bug, ...]] = (
    # -- tables: rows and claim are one commit, and a key is all of its columns -------------------------------------
    Bug(
        "a batch is committed to PostgreSQL without a transaction",
        "semel.spark.tables.postgres:PostgresConnection.commit",
        "with self.connection.transaction(): ...",
        "if True: ...",
        (_COMMITS, "-k", "claim_fails or rows_fail"),
    ),
    Bug(
        "the rows of a batch are committed to SQLite before its claim",
        "semel.spark.tables.sqlite:SqliteConnection.commit",
        "self.aside = move(self, self.target, list(self.types), staged, claim)",
        """
        self.aside = move(self, self.target, list(self.types), staged, claim)
        self.connection.execute("COMMIT")
        self.connection.execute("BEGIN IMMEDIATE")
        """,
        (_COMMITS, "-k", "claim_fails"),
    ),
    Bug(
        "others may write to a file of SQLite after the claim was read",
        "semel.spark.tables.sqlite:SqliteConnection.commit",
        '"BEGIN IMMEDIATE"',
        '"BEGIN"',
        (_COMMITS, "-k", "nobody_writes"),
    ),
    Bug(
        "the greatest version is sought for the first column of a key",
        "semel.spark.tables.statements:newest",
        "listed(write.key)",
        "listed(write.key[:1])",
        (_COMMITS, "-k", "share_a_part"),
    ),
    Bug(
        "two rows that share the first column of their key are taken for doubled",
        "semel.spark.tables.statements:doubled_keys",
        "listed(write.key)",
        "listed(write.key[:1])",
        (_COMMITS, "-k", "share_a_part or whole_key"),
    ),
    Bug(
        "a null in one of two columns of a key passes",
        "semel.spark.tables.statements:has_null",
        '" OR "',
        '" AND "',
        (_COMMITS, "-k", "null_in_any_part"),
    ),
    Bug(
        "only the first column of a key is looked at for nulls",
        "semel.spark.tables.statements:has_null",
        "write.key",
        "write.key[:1]",
        (_COMMITS, "-k", "null_in_any_part"),
    ),
    Bug(
        "of rows of one version any may stay",
        "semel.spark.tables.statements:by_age",
        "[quoted(str(write.version)), *begins, *hashes]",
        "[quoted(str(write.version))]",
        (_COMMITS, "-k", "in_any_order"),
    ),
    Bug(
        "a batch whose staged rows are fewer is committed",
        "semel.spark.tables.connection:SqlConnection.check_whole",
        "count != staged.count + staged.bad_count",
        "count > staged.count + staged.bad_count",
        (_COMMITS, "-k", "all_of_its_staged_rows"),
    ),
    Bug(
        "a table that would take two rows of one key is merged into",
        "semel.spark.tables.postgres:PostgresConnection.move",
        'self.run(f"EXPLAIN {statement}")',
        "",
        (_COMMITS, "-k", "two_rows_of_one_key_is_refused"),
    ),
    Bug(
        "a commit to SQLite returns before it is on the disk",
        "semel.spark.tables.sqlite:opened",
        'connection.execute("PRAGMA synchronous = FULL")',
        'connection.execute("PRAGMA synchronous = OFF")',
        (_COMMITS, "-k", "on_the_disk"),
    ),
    Bug(
        "a type that names a text and a blob is taken for a blob",
        "semel.spark.tables.affinities:_WORDS",
        '("TEXT", ("CHAR", "CLOB", "TEXT")), ("BLOB", ("BLOB",))',
        '("BLOB", ("BLOB",)), ("TEXT", ("CHAR", "CLOB", "TEXT"))',
        (_COMMITS, "-k", "affinity"),
    ),
    Bug(
        "a batch that was committed to SQLite since it was staged is stored again",
        "semel.spark.tables.sqlite:SqliteConnection.commit",
        "outcome is Outcome.ACCEPTED",
        "True",
        (_COMMITS, "-k", "since_it_was_staged"),
    ),
    Bug(
        "moments reach SQLite in the zone of the session",
        "semel.spark.tables.sqlite:plain",
        'column.cast(pyarrow.timestamp("us", "UTC"))',
        "column",
        (_COMMITS, "-k", "stored_in_sqlite_in_utc"),
    ),
    Bug(
        "moments reach PostgreSQL in the zone of the session",
        "semel.spark.tables.postgres_copy:as_csv",
        'column.cast(pyarrow.timestamp("us", "UTC")) if pyarrow.types.is_timestamp(column.type) else column',
        "column",
        (_COMMITS, "-k", "in_utc"),
    ),
    Bug(
        "a backtick ends the name of a column",
        "semel.spark.tables.columns:travelling",
        "field.name.replace('`', '``')",
        "field.name",
        (_SQL, "-k", "each_type_arrives"),
    ),
    Bug(
        "a dot in the name of a column means a part of it",
        "semel.spark.tables.columns:travelling",
        "rows[_]",
        "rows[field.name]",
        (_SQL, "-k", "each_type_arrives"),
    ),
    Bug(
        "the mark of a sink that begins lets any batch follow at any time",
        "semel.spark.tables.claims:judge",
        "(_mark(held),)",
        "(NOTHING, _mark(held))",
        ("tests/spark/tables/test_sink_claims.py", "-k", "lets_nothing_follow"),
    ),
    # -- Delta: tables whose rows another writer would make otherwise ------------------------------------------------
    Bug(
        "a Delta table with generated columns is written to",
        "semel.spark.tables.delta_schema:PROMISES",
        '("delta.invariants", "delta.generationExpression", "delta.identity.start")',
        '("delta.invariants", "delta.identity.start")',
        (_DELTA, "-k", "compute_or_rename"),
    ),
    Bug(
        "a Delta table with identity columns is written to",
        "semel.spark.tables.delta_schema:PROMISES",
        '("delta.invariants", "delta.generationExpression", "delta.identity.start")',
        '("delta.invariants", "delta.generationExpression")',
        (_DELTA, "-k", "compute_or_rename"),
    ),
    Bug(
        "a Delta table whose columns have other names in its files is written to",
        "semel.spark.tables.delta_schema:check_promises",
        'configuration.get("delta.columnMapping.mode", "none") != "none"',
        "False",
        (_DELTA, "-k", "compute_or_rename"),
    ),
    Bug(
        "a Delta table may be partitioned by moments",
        "semel.spark.tables.delta_schema:PARTITION_TYPES",
        '{"string", "boolean", "byte", "short", "integer", "long", "date"}',
        '{"string", "boolean", "byte", "short", "integer", "long", "date", "timestamp"}',
        (_DELTA, "-k", "do_not_fit"),
    ),
    Bug(
        "a file is added without the number of its rows",
        "semel.spark.tables.delta_files:statistics_of",
        '"numRecords": metadata.num_rows, ',
        "",
        (_DELTA, "-k", "rows_counted"),
    ),
    Bug(
        "the directory of nulls is taken for a text",
        "semel.spark.tables.delta_files:NULL_PARTITION",
        '"__HIVE_DEFAULT_PARTITION__"',
        '"__NULL__"',
        (_DELTA, "-k", "directory_of_nulls"),
    ),
    Bug(
        "a session of old settings writes moments in another calendar",
        "semel.spark.tables.delta_files:PARQUET_SETTINGS",
        '"spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED"',
        "",
        (_DELTA, "-k", "read_as_they_were_written"),
    ),
    Bug(
        "a session of old settings writes moments that Delta does not know",
        "semel.spark.tables.delta_files:PARQUET_SETTINGS",
        '"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"',
        "",
        (_DELTA, "-k", "read_as_they_were_written"),
    ),
    Bug(
        "the numbers of a claim have fewer digits than those that tables hold",
        "semel.spark.tables.delta_claims:number_of",
        "int(hashlib.sha256(text.encode()).hexdigest()[:15], 16)",
        "int(hashlib.sha256(text.encode()).hexdigest()[:7], 16)",
        ("tests/spark/tables/test_delta_sink.py::test_the_numbers_of_a_claim_are_those_that_tables_hold_already",),
    ),
    # -- the source: a loss is looked at again, and told of a single record ------------------------------------------
    Bug(
        "a task takes the first short end of a log for the true one",
        "semel.spark.source.reader:read",
        "looks < options.looks_again",
        "False",
        (_CUT, "-k", "for_a_moment"),
    ),
    Bug(
        "a query takes the first short end of a log for the true one",
        "semel.spark.source.stream:SemelStreamReader._look",
        "looks == self._options.looks_again",
        "True",
        (_CUT, "-k", "looks_again"),
    ),
    Bug(
        "a replay leaves out topics that are gone",
        "semel.spark.source.stream:SemelStreamReader._begins_again",
        "reader.report(losses.gone(until, now), self._options)",
        "",
        (_STREAM, "-k", "gone_when_a_batch_is_replayed"),
    ),
    Bug(
        "the loss of one record at the beginning of a log is none",
        "semel.spark.source.losses:truncated",
        "log_starts.get(place, 0) > offset",
        "log_starts.get(place, 0) > offset + 1",
        (_LOSSES,),
    ),
    Bug(
        "the loss of one record at the end of a log is none",
        "semel.spark.source.losses:behind_the_end",
        "reached[place] > end",
        "reached[place] > end + 1",
        (_LOSSES,),
    ),
    Bug(
        "a query that is one record ahead of its log is not looked at",
        "semel.spark.source.losses:ahead",
        "offset > now.at[place]",
        "offset > now.at[place] + 1",
        (_LOSSES,),
    ),
    Bug(
        "a batch begins where the plan of another one did",
        "semel.spark.source.stream:SemelStreamReader.partitions",
        "plan is not None and (plan.start, plan.end) == (start, end)",
        "plan is not None",
        (_STREAM, "-k", "its_own_plan"),
    ),
    # -- lanes: the marker is found, and is the lane's own -----------------------------------------------------------
    Bug(
        "a marker is looked for in the last offsets only",
        "semel.spark.lanes.progress:_last_marker",
        "begin == start",
        "True",
        (_MARKERS, "-k", "aborted_records"),
    ),
    Bug(
        "lanes without a task get no marker",
        "semel.spark.lanes.writer:LaneSink._close",
        "missing and lane_messages",
        "False",
        (_MARKERS, "-k", "one_lane_only"),
    ),
    Bug(
        "the marker of another lane is taken for the lane's own",
        "semel.spark.lanes.progress:_checked",
        "(marker.sink_id, marker.lane) != (sink_id, lane)",
        "marker.sink_id != sink_id",
        (_MARKERS, "-k", "of_another_sink"),
    ),
    Bug(
        "the progress topic that a user names is passed over",
        "semel.spark.lanes.options:read_options",
        'texts.get("progressTopic") or PROGRESS_PREFIX + sink_id',
        "PROGRESS_PREFIX + sink_id",
        (_ROWS, "-k", "progress_topic"),
    ),
    Bug(
        "what is behind the open transaction of somebody else is not waited for",
        "semel.spark.lanes.progress:_stable_end",
        "client.offsets([where], LATEST, Isolation.READ_COMMITTED)[where] < end",
        "False",
        (_MARKERS, "-k", "waited_for"),
    ),
    Bug(
        "a digest leaves out the topic that an option names",
        "semel.spark.lanes.digest:_columns",
        "_hash_of(rows.topics.encode())",
        '_hash_of(b"")',
        (_ROWS, "-k", "digest"),
    ),
    Bug(
        "a digest leaves out the topics of the rows",
        "semel.spark.lanes.digest:_columns",
        "yield _hashes(*fields_of(rows.topics))",
        'yield _hash_of(b"")',
        (_ROWS, "-k", "digest"),
    ),
    Bug(
        "a digest leaves out the partitions of the rows",
        "semel.spark.lanes.digest:_columns",
        "yield rows.partitions.astype(np.uint64) if rows.partitions is not None else _number(BY_KEY)",
        "yield _number(BY_KEY)",
        (_ROWS, "-k", "digest"),
    ),
    Bug(
        "rows go into lanes by their values though they have keys",
        "semel.spark.lanes.assignment:lanes",
        '("key", "value")',
        '("value", "key")',
        ("tests/spark/lanes/test_lane_batch_writes.py", "-k", "share_a_lane"),
    ),
    # -- deduplication: what is kept is forgotten in time, read as it was written, and judged in its order -----------
    Bug(
        "an aggregate that is silent is never forgotten",
        "semel.spark.dedup.version_judge:VersionJudge.judge",
        "known = known[is_remembered]",
        "",
        (_JUDGES, "-k", "newer_than_the_last"),
    ),
    Bug(
        "pieces are judged in the order in which a shuffle brings them",
        "semel.spark.dedup.operator:_rows_of",
        "sorted(_)",
        "list(_)",
        (_ORDER,),
    ),
    Bug(
        "pieces of a batch are judged in the order in which a shuffle brings them",
        "semel.spark.dedup.operator:_stateless",
        "pieces.sort_by(PLACE)",
        "pieces",
        (_ORDER,),
    ),
    Bug(
        "the first number that no producer can have is taken for number 0",
        "semel.spark.dedup.sequence_judge:SequenceJudge._claims",
        "(number <= SEQUENCE_MASK)",
        "(number <= SEQUENCE_MASK + 1)",
        ("tests/spark/dedup/test_sequence_judge.py", "-k", "wraps_to"),
    ),
    Bug(
        "what is gathered for pieces is sent again with the next ones",
        "semel.spark.dedup.pieces:Packer._gathered",
        "gathered, rows, size_bytes = [], 0, 0",
        "rows, size_bytes = 0, 0",
        ("tests/spark/dedup/test_pieces.py",),
    ),
    Bug(
        "the last row of each piece is left out",
        "semel.spark.dedup.pieces:sliced",
        "rows.slice(begin, step)",
        "rows.slice(begin, step - 1)",
        ("tests/spark/dedup/test_pieces.py",),
    ),
    Bug(
        "wide rows are gathered until there are many",
        "semel.spark.dedup.pieces:Packer._gathered",
        "size_bytes >= self._bytes_max",
        "False",
        ("tests/spark/dedup/test_pieces.py",),
    ),
    Bug(
        "the halves of a key are kept in the other order",
        "semel.spark.dedup.key_table:keyed",
        '(HIGH, "<i8"), (LOW, "<i8")',
        '(LOW, "<i8"), (HIGH, "<i8")',
        (_LAYOUTS, "-k", "read_by_each"),
    ),
    Bug(
        "the time of an aggregate is kept before its version",
        "semel.spark.dedup.version_judge:_LAYOUT",
        'keyed(**{_LAST: "<i8", _HEARD: "<i8"})',
        'keyed(**{_HEARD: "<i8", _LAST: "<i8"})',
        (_LAYOUTS, "-k", "read_by_each"),
    ),
    Bug(
        "the expiry of an id is kept in another order of bytes",
        "semel.spark.dedup.id_judge:_LAYOUT",
        '"<u4"',
        '">u4"',
        (_LAYOUTS, "-k", "read_by_each"),
    ),
    Bug(
        "the time of a producer is kept behind its state",
        "semel.spark.dedup.producer_states:_LAYOUT",
        'keyed(**{_HEARD: "<i8", _STATE: _})',
        'keyed(**{_STATE: _, _HEARD: "<i8"})',
        (_LAYOUTS, "-k", "read_by_each"),
    ),
    Bug(
        "the second half of a key has another seed",
        "semel.spark.dedup.keys:_SECOND_SEED",
        "1",
        "2",
        (_LAYOUTS, "-k", "same_key_in_each"),
    ),
    Bug(
        "a key is made of another hash",
        "semel.spark.dedup.keys:_HASH_BITS",
        "256",
        "224",
        (_LAYOUTS, "-k", "same_key_in_each"),
    ),
    Bug(
        "ids that are kept for another time are gone on with",
        "semel.spark.dedup.by_id:pinned_of",
        '"within_ms": within_ms',
        '"within_ms": 0',
        (_LAYOUTS, "-k", "is_pinned"),
    ),
    Bug(
        "ids of another kind are gone on with",
        "semel.spark.dedup.by_id:pinned_of",
        "kinds(df, [id])",
        "None",
        (_LAYOUTS, "-k", "another_kind"),
    ),
    Bug(
        "aggregates of another kind are gone on with",
        "semel.spark.dedup.by_version:pinned_of",
        "kinds(df, [aggregate])",
        "None",
        (_LAYOUTS, "-k", "another_kind"),
    ),
    Bug(
        "producers that begin with another number are gone on with",
        "semel.spark.dedup.by_sequence:pinned_of",
        '"first": first',
        '"first": 0',
        (_LAYOUTS, "-k", "is_pinned"),
    ),
)
