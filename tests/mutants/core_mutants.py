"""Mutants of the rules that were chosen without a look at the tests, and that no test noticed then."""

from typing import Final

from saboteurs.planting import Bug

CORE_MUTANTS: Final[tuple[Bug, ...]] = (
    # -- transactions and producer ids --------------------------------------------------------------------------------
    Bug(
        "a transaction that goes on growing has no end",
        "semel.log.broker.transactions:TransactionCoordinator.note_grown",
        "producer_id not in self._due_ms",
        "True",
        ("tests/log/broker/test_transaction_timeouts.py", "-k", "goes_on_growing"),
    ),
    Bug(
        "a restart gives a transaction its time anew",
        "semel.log.broker.transactions:TransactionCoordinator.begin",
        "min(due_ms, latest_ms)",
        "latest_ms",
        ("tests/log/broker/test_transaction_timeouts.py", "-k", "time_anew"),
    ),
    Bug(
        "a transaction does not begin before it is known where it writes",
        "semel.log.core.transaction_rules:TransactionRules.decide_add_partitions",
        "transaction is not None and not new",
        "not new",
        ("tests/log/core/test_transactions.py",),
    ),
    Bug(
        "an id that is forgotten stays in doubt for ever",
        "semel.log.core.transactions:Transactions.apply",
        "self._doubted.discard(producer_id)",
        "pass",
        ("tests/log/core/test_transactions_ending.py",),
    ),
    Bug(
        "the last block of a range is never given out",
        "semel.log.core.producer_ids:ProducerIds._first_of_next_block",
        "first + BLOCK_IDS <= (number + 1) * RANGE_IDS",
        "first + BLOCK_IDS < (number + 1) * RANGE_IDS",
        ("tests/log/core/test_producer_ids.py",),
    ),
    Bug(
        "a range that is forgotten takes its owner's newer one along",
        "semel.log.core.producer_ids:ProducerIds._forget_range",
        "self._numbers[owner] == number",
        "True",
        ("tests/log/core/test_producer_ids.py",),
    ),
    Bug(
        "a marker of an earlier epoch takes the epoch back",
        "semel.wire.sequences:note_marker",
        "epoch > epoch_of(state)",
        "epoch != epoch_of(state)",
        ("tests/wire/test_sequences.py",),
    ),
    # -- what is looked at in a batch ---------------------------------------------------------------------------------
    Bug(
        "a batch that lacks the last byte of its header is read",
        "semel.log.core.batch_checks:check_sent",
        "size < HEADER_BYTES",
        "size < HEADER_BYTES - 1",
        ("tests/wire/test_batch.py",),
    ),
    Bug(
        "zstd is stored for readers that do not know it",
        "semel.log.core.batch_checks:check_sent",
        "not sender.knows_zstd",
        "False",
        ("tests/wire/test_batch.py",),
    ),
    Bug(
        "what marks compressed records may stand anywhere in them",
        "semel.log.core.batch_checks:_check_fields",
        "batch[HEADER_BYTES : HEADER_BYTES + len(signature)] != signature",
        "signature not in batch",
        ("tests/wire/test_batch.py",),
    ),
    Bug(
        "a zombie hears of its clock",
        "semel.log.core.batch_checks:judge_batch",
        "outcome is DUPLICATE or outcome is FENCED",
        "outcome is DUPLICATE",
        ("tests/log/core/test_batch_checks.py",),
    ),
    Bug(
        "a batch is as late as its first record",
        "semel.log.core.batch_checks:judge_batch",
        "header.base_timestamp if earliest_ms is None else earliest_ms",
        "header.base_timestamp",
        ("tests/log/core/test_batch_checks.py",),
    ),
    Bug(
        "the time of the producer is looked at where the log sets its own",
        "semel.log.core.batch_checks:judge_batch",
        "not configs.log_append_time",
        "True",
        ("tests/log/core/test_batch_checks.py",),
    ),
    # -- values that are just allowed ---------------------------------------------------------------------------------
    Bug(
        "the largest quota is too large",
        "semel.log.core.quotas:_check",
        "value > _WHOLE[key]",
        "value >= _WHOLE[key]",
        ("tests/log/core/test_quotas.py",),
    ),
    Bug(
        "a name one byte too long has quotas",
        "semel.log.core.quotas:_entity_of",
        "len(name.encode()) > NAME_BYTES_MAX",
        "len(name.encode()) > NAME_BYTES_MAX + 1",
        ("tests/log/core/test_quotas.py",),
    ),
    Bug(
        "a record may not have to wait as long as it may",
        "semel.log.core.configs:parse",
        "lag_min_ms > lag_max_ms",
        "lag_min_ms >= lag_max_ms",
        ("tests/log/core/test_configs.py",),
    ),
    # -- rows that Spark deduplicates ---------------------------------------------------------------------------------
    Bug(
        "a second is as long as a millisecond",
        "semel.spark.dedup.parameters:_UNITS_MS",
        '"second": 1_000',
        '"second": 1',
        ("tests/spark/dedup/test_durations.py",),
    ),
    Bug(
        "rows without a key are all in the first bucket",
        "semel.spark.dedup.pieces:Packer._by_bucket",
        "numpy.arange(len(buckets)) % self._buckets",
        "0 * numpy.arange(len(buckets))",
        ("tests/spark/dedup/test_pieces.py", "-k", "spread_over"),
    ),
    Bug(
        "a later epoch goes on with the number of the one before",
        "semel.spark.dedup.claims:_runs",
        "(producer[1:] == producer[:-1]) & (epoch[1:] == epoch[:-1])",
        "producer[1:] == producer[:-1]",
        ("tests/spark/dedup/test_claims.py", "-k", "later_epoch_begins"),
    ),
    # -- tables -------------------------------------------------------------------------------------------------------
    Bug(
        "a row of the same version does not replace the one that is there",
        "semel.spark.tables.statements:not_older",
        "f'target.{version} IS NULL OR {row}.{version} >= target.{version}'",
        "f'target.{version} IS NULL OR {row}.{version} > target.{version}'",
        ("tests/spark/tables/test_table_commits.py", "-k", "any_if_it_has_none"),
    ),
    Bug(
        "the least of all batches is the greatest",
        "semel.spark.tables.statements:COMBINED",
        "'CASE WHEN excluded.{0} < target.{0} THEN excluded.{0} ELSE target.{0} END'",
        "'CASE WHEN excluded.{0} > target.{0} THEN excluded.{0} ELSE target.{0} END'",
        ("tests/spark/tables/test_table_commits.py", "-k", "of_all_batches"),
    ),
    Bug(
        "a quote in the name of a column ends it",
        "semel.spark.tables.statements:quoted",
        "name.replace(quote, quote * 2)",
        "name",
        ("tests/spark/tables/test_table_commits.py", "-k", "with_quotes"),
    ),
    # -- the audit ----------------------------------------------------------------------------------------------------
    Bug(
        "a sum of digests that overflows as it is put together is not carried on",
        "semel.audit.tally:Tally._add_digests",
        "_sums(cells, slots, digests.high) + (second >> _HALF_BITS) + (low < first)",
        "_sums(cells, slots, digests.high) + (second >> _HALF_BITS)",
        ("tests/audit/test_tally.py",),
    ),
    Bug(
        "the high halves of sums are not compared",
        "semel.audit.tally:Cells.differ",
        "(self.counts != other.counts) | (self.low != other.low) | (self.high != other.high)",
        "(self.counts != other.counts) | (self.low != other.low)",
        ("tests/audit/test_tally.py",),
    ),
    Bug(
        "rows without a time are in a window that nobody knows",
        "semel.audit.tally:Grid.windows_of",
        "np.where(times == NO_TIME, NO_TIME, times // self.window_ms * self.window_ms)",
        "times // self.window_ms * self.window_ms",
        ("tests/audit/test_tally.py",),
    ),
    # -- lanes --------------------------------------------------------------------------------------------------------
    Bug(
        "a batch without the id of its topic makes the lane forget it",
        "semel.spark.lanes.protocol:advance",
        "claim.topic_id or (None if marker is None else marker.topic_id)",
        "claim.topic_id",
        ("tests/spark/lanes/test_lane_protocol.py",),
    ),
    # -- errors that pass ---------------------------------------------------------------------------------------------
    Bug(
        "of errors that came together one that passes is enough",
        "semel.database.errors:is_passing",
        "all(_ for single in singly(error))",
        "any(_ for single in singly(error))",
        ("tests/inbox/test_contention.py", "-k", "came_together"),
    ),
    Bug(
        "a chore that takes long is begun again beside itself",
        "semel.log.broker.chores:Chores._every.run",
        "not is_under_way",
        "True",
        ("tests/log/broker/test_keeping_house.py", "-k", "beside_itself"),
    ),
    Bug(
        "a connection whose login has expired is used on",
        "semel.client.cluster:Cluster.lease",
        "connection is not None and connection.has_expired",
        "False",
        ("tests/client/test_client_cluster.py", "-k", "login_has_expired"),
    ),
)
