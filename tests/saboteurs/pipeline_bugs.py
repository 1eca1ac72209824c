"""The planted bugs of the proof, of the source, of deduplication and of the tables."""

from typing import Final

from saboteurs.planting import Bug

PIPELINE_BUGS: Final[tuple[Bug, ...]] = (
    # -- audit: what is lost or doubled is named, whatever else is wrong --------------------------------------------
    Bug(
        "hashes are combined by an exclusive or",
        "semel.audit.tally:_sums",
        "np.add.at(sums, slots, values)",
        "np.bitwise_xor.at(sums, slots, values)",
        ("tests/audit/test_auditing.py", "-k", "pair"),
    ),
    Bug(
        "the hash has no key",
        "semel.audit.hashes:_compressed",
        'int.from_bytes(key[:8], "little"), int.from_bytes(key[8:KEY_BYTES], "little")',
        "0, 0",
        ("tests/audit/test_audit_hashes.py",),
    ),
    Bug(
        "the audit reads another table than the address's options mean",
        "semel.audit.places.postgres:PostgresTable._connection",
        'make_conninfo("", **parts)',
        'make_conninfo("", **parts, options="-cTimeZone=UTC")',
        ("tests/audit/test_strange_values.py", "-k", "options_lead_to"),
    ),
    Bug(
        "a text that is half a character is an id",
        "semel.audit.rows:_text",
        "value if _is_encodable(value) else None",
        "value.encode(errors='replace').decode()",
        ("tests/audit/test_strange_values.py", "-k", "row_without_one"),
    ),
    Bug(
        "an amount that cannot be read is none, and nobody hears of it",
        "semel.audit.rows:_read",
        "pa.nulls(1, kind), pa.array([True])",
        "pa.nulls(1, kind), pa.array([False])",
        ("tests/audit/test_strange_values.py", "-k", "told_from_its_neighbours"),
    ),
    Bug(
        "an absence of the query is everybody's silence",
        "semel.spark.dedup.silence:last_heard",
        "at_ms + absent_ms",
        "at_ms",
        ("tests/spark/dedup/test_sequence_judge.py", "-k", "absence"),
    ),
    Bug(
        "every audit has the same key",
        "semel.audit.run:_key",
        "secrets.token_bytes(KEY_BYTES)",
        "bytes(KEY_BYTES)",
        ("tests/audit/test_auditing.py", "-k", "key"),
    ),
    Bug(
        "windows go by arrival",
        "semel.audit.tally:Grid.windows_of",
        "np.where(times == NO_TIME, NO_TIME, times // self.window_ms * self.window_ms)",
        "np.arange(len(times)) // self.window_ms * self.window_ms",
        ("tests/audit/test_auditing.py", "-k", "order"),
    ),
    Bug(
        "a sum loses what is carried to its upper half",
        "semel.audit.tally:Cells.add",
        "high + (self.low < low)",
        "high",
        ("tests/audit/test_tally.py",),
    ),
    Bug(
        "a row that changed between two readings is taken for lost",
        "semel.audit.run:_Audit._divide",
        "not agree_in(first, again, division.chosen)",
        "again.grid is None",
        ("tests/audit/test_auditing.py", "-k", "changes"),
    ),
    Bug(
        "a file counts as committed because it is there",
        "semel.audit.places.parquet:files_of",
        "is_directory(path / METADATA)",
        "path.is_symlink()",
        ("tests/audit/test_file_sink_log.py",),
    ),
    Bug(
        "rows that a policy of PostgreSQL hides are left out",
        "semel.audit.places.postgres:_SETTINGS",
        '"off"',
        '"on"',
        ("tests/audit/test_strange_values.py", "-k", "are_hidden"),
    ),
    Bug(
        "the files of a Delta table are taken for its rows",
        "semel.audit.places.parquet:visible_files",
        "is_directory(path / _DELTA_LOG)",
        "path.is_symlink()",
        ("tests/audit/test_audit_places.py", "-k", "not_its_rows"),
    ),
    Bug(
        "what a link leads to is left out",
        "semel.audit.places.parquet:_files_below",
        "entry.is_dir()",
        "entry.is_dir(follow_symlinks=False)",
        ("tests/audit/test_audit_places.py", "-k", "links_lead"),
    ),
    Bug(
        "damaged JSON is an event without a time, and in no span",
        "semel.audit.rows:_look",
        "return _NO_JSON",
        "return None",
        ("tests/audit/test_strange_values.py", "-k", "damaged_json"),
    ),
    Bug(
        "a batch that is missing from the log of a file sink committed nothing",
        "semel.audit.file_sink:_batches_to_read",
        "batch != expected",
        "batch < expected",
        ("tests/audit/test_file_sink_log.py", "-k", "one_of_its_batches"),
    ),
    # -- tables: a batch that is there already is run all the same ---------------------------------------------------
    Bug(
        "a batch that the sink has is passed over",
        "semel.spark.tables.sink:take",
        "sink.write(rows, batch) is Outcome.DUPLICATE",
        "sink.write(rows, batch) is None",
        ("tests/spark/tables/test_stateful_replay.py", "-k", "all_of_several"),
    ),
    # -- the source: no offset of the same topic goes back -----------------------------------------------------------
    Bug(
        "a query goes back to the last stable offset",
        "semel.spark.source.losses:going_on",
        "max(offset, reached.get(place, 0)) if is_same_topic(known, now, place.topic) else offset",
        "offset",
        ("tests/spark/source/test_source_going_on.py", "-k", "last_stable_offset or lost_its_end"),
    ),
    Bug(
        "what is not committed is taken for lost",
        "semel.spark.source.view:Observer.log_ends",
        "Isolation.READ_UNCOMMITTED",
        "Isolation.READ_COMMITTED",
        ("tests/spark/source/test_source_going_on.py", "-k", "last_stable_offset"),
    ),
    Bug(
        "a topic that comes back is read from its beginning",
        "semel.spark.source.losses:expected_begins",
        "reached.get(place, 0) if is_same_topic(known, now, place.topic) else 0",
        "known.at.get(place, 0)",
        ("tests/spark/source/test_source_going_on.py", "-k", "goes_on_where_it_was"),
    ),
    Bug(
        "a task whose slice was cut goes on at the beginning of the log",
        "semel.spark.source.reader:_resumed",
        "error.offset > error.log_end",
        "error.log_end < piece.start",
        ("tests/spark/source/test_cut_log.py",),
    ),
    # -- deduplication: a name is the same one as long as its state lives -------------------------------------------
    Bug(
        "the kinds of a key are not pinned",
        "semel.spark.dedup.by_sequence:dedup",
        "kinds(df, named)",
        "None",
        ("tests/spark/dedup/test_dedup_queries.py", "-k", "another_type"),
    ),
    Bug(
        "nothing says where one part of a key ends",
        "semel.spark.dedup.keys:_marked_off",
        'F.concat(F.length(value).cast("string").cast("binary"), F.lit(b":"), value)',
        "value",
        ("tests/spark/dedup/test_keys.py", "-k", "ends"),
    ),
    Bug(
        "a column of PostgreSQL may round what is written into it",
        "semel.spark.tables.postgres_columns:_change",
        "numeric is not None or type_name == _MONEY",
        "kind is None",
        ("tests/spark/tables/test_sql_sink.py", "-k", "round_a_value"),
    ),
    Bug(
        "PostgreSQL may cut off the last spaces of a text",
        "semel.spark.tables.postgres_columns:staging_types",
        "limited is not None",
        "limited is not None and staged is types",
        ("tests/spark/tables/test_sql_sink.py", "-k", "last_spaces"),
    ),
    Bug(
        "a moment is named as the session's zone writes it",
        "semel.spark.dedup.keys:_as_bytes",
        "F.unix_micros(column)",
        "column",
        ("tests/spark/dedup/test_keys.py", "-k", "zone"),
    ),
    # -- the session ------------------------------------------------------------------------------------------------
    Bug(
        "a socket's path may have any length",
        "semel.spark.session:_unix_sockets",
        "_SOCKET_PATH_BYTES_MAX",
        "9999",
        ("tests/spark/test_session.py", "-k", "too_long"),
    ),
    Bug(
        "another PySpark than that of the Spark that runs is taken",
        "semel.spark.python:_is_the_installed_pyspark",
        "pyspark == Path(_find_spark_home()).resolve()",
        "True",
        ("tests/spark/test_python.py", "-k", "another_spark"),
    ),
)
