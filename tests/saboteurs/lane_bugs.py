"""The planted bugs of rows on their way into the log: columns as records, their partitions, lanes and their markers."""

from typing import Final

from saboteurs.planting import Bug

_ATTEMPTS: Final = "tests/spark/lanes/test_lane_attempts.py"
_IDS: Final = "tests/spark/lanes/test_lane_ids.py"
_ENCODING: Final = "tests/client/test_encoding.py"
_PARTITIONER: Final = "tests/client/test_partitioner.py"
_PROTOCOL: Final = "tests/spark/lanes/test_lane_protocol.py"
_ROWS: Final = "tests/spark/lanes/test_lane_rows.py"
_TRANSACTIONS: Final = "tests/client/test_transaction.py"

LANE_BUGS: Final[tuple[Bug, ...]] = (
    # -- columns as records: all of them, as they were --------------------------------------------------------------
    Bug(
        "offsets count on from batch to batch",
        "semel.client.arrow.encoding:encoded",
        "np.arange(count) - np.repeat(starts, lengths)",
        "np.arange(count)",
        (_TRANSACTIONS, "-k", "numbers"),
    ),
    Bug(
        "the length of a record does not count",
        "semel.client.arrow.encoding:encoded",
        "largest + len(varint(int(largest.max())))",
        "largest",
        (_ENCODING, "-k", "length_of_a_record"),
    ),
    Bug(
        "no key is an empty key",
        "semel.client.arrow.encoding",
        "_NULL_LENGTH: Final = -1",
        "_NULL_LENGTH: Final = 0",
        (_ENCODING, "-k", "without_any_value"),
    ),
    Bug(
        "all records of a batch have the time of the first",
        "semel.client.arrow.encoding:encoded",
        "times_ms - np.repeat(times_ms[starts], lengths)",
        "np.zeros_like(times_ms)",
        (_ENCODING, "-k", "times_may_fall"),
    ),
    Bug(
        "the last row is dropped where it would be a batch of its own",
        "semel.client.arrow.encoding:_edges",
        "edges[-1] < len(ends)",
        "edges[-1] < len(ends) - 1",
        (_ENCODING, "-k", "offsets_are_counted"),
    ),
    Bug(
        "the last time of a batch is taken for its latest",
        "semel.client.arrow.encoding:encoded",
        "times_ms[start:stop].max()",
        "times_ms[stop - 1]",
        (_ENCODING, "-k", "times_may_fall"),
    ),
    Bug(
        "records with headers say that they have none",
        "semel.client.arrow.encoding:encoded",
        "0 if headers is None else headers.counts",
        "0",
        (_ENCODING, "-k", "where_a_row_has_null"),
    ),
    Bug(
        "a column that is cut out of another begins where that one does",
        "semel.client.arrow.encoding:fields_of",
        "np.frombuffer(places, kind, count + 1, column.offset * kind.itemsize)",
        "np.frombuffer(places, kind, count + 1)",
        (_ENCODING, "-k", "where_a_row_has_null"),
    ),
    # -- which partition: that of the key, as everybody else has it -------------------------------------------------
    Bug(
        "a hash is made positive by its upper bit",
        "semel.client.arrow.partitioner:_PLACE_MASK",
        "0x7FFFFFFF",
        "0xFFFFFFFF",
        (_PARTITIONER, "-k", "javas_clients"),
    ),
    Bug(
        "the last bytes of a key are not mixed",
        "semel.client.arrow.partitioner:_finished",
        "(hashes ^ rests) * _FACTOR",
        "hashes ^ rests",
        (_PARTITIONER, "-k", "kafka_gives_it"),
    ),
    Bug(
        "hashes are brought into the order of the lengths once more",
        "semel.client.arrow.partitioner:Words.in_order",
        "ordered[self._order] = hashes",
        "ordered[:] = hashes[self._order]",
        (_PARTITIONER, "-k", "all_keys"),
    ),
    Bug(
        "it is always the same partition's turn",
        "semel.client.arrow.partitioner:Turns.places",
        "(first + -(-rows // run)) % count",
        "first",
        (_PARTITIONER, "-k", "each_topic"),
    ),
    Bug(
        "a key is heard where the row names its partition",
        "semel.spark.lanes.rows:_places",
        "is_open & is_valid(rows.keys)",
        "is_valid(rows.keys)",
        (_ROWS, "-k", "goes_to_its_partition"),
    ),
    Bug(
        "the rows of a partition are in any order",
        "semel.client.arrow.partitioner:order_of",
        'kind="stable"',
        'kind="quicksort"',
        (_ATTEMPTS, "-k", "in_their_order"),
    ),
    Bug(
        "the keys stay where they were when rows are put in order",
        "semel.spark.lanes.rows:_selected",
        "None if columns.keys is None else columns.keys.take(indices)",
        "columns.keys",
        (_ATTEMPTS, "-k", "in_their_order"),
    ),
    Bug(
        "the first partition of a topic is the last one of the topic before",
        "semel.spark.lanes.rows:placed",
        'int(np.searchsorted(firsts, place, "right")) - 1',
        'max(int(np.searchsorted(firsts, place, "left")) - 1, 0)',
        (_ROWS, "-k", "goes_to_its_partition"),
    ),
    Bug(
        "rows of another lane are written if the first lane among them is right",
        "semel.spark.lanes.rows:RowReader._check_lane",
        '(ends["min"], ends["max"]) != (self._lane, self._lane)',
        'ends["min"] != self._lane',
        (_ROWS, "-k", "another_lane"),
    ),
    # -- lanes: what was written is known, and nobody writes who was replaced ---------------------------------------
    Bug(
        "a digest takes null for empty",
        "semel.spark.lanes.digest:_hashes",
        "hashes[fields.lengths < 0] = _NULL",
        "",
        (_ROWS, "-k", "without_a_key or other_rows"),
    ),
    Bug(
        "a digest depends on the order of batches",
        "semel.spark.lanes.digest:RunningDigest.add",
        "self._sum + int(hashes.sum(dtype=np.uint64))",
        "self._sum * 31 + int(hashes.sum(dtype=np.uint64))",
        (_ROWS, "-k", "does_not_depend"),
    ),
    Bug(
        "rows that are there twice cancel out in a digest",
        "semel.spark.lanes.digest:RunningDigest.add",
        "hashes.sum(dtype=np.uint64)",
        "np.bitwise_xor.reduce(hashes)",
        (_ATTEMPTS, "-k", "alike"),
    ),
    Bug(
        "a digest does not look at times",
        "semel.spark.lanes.digest:_columns",
        "rows.timestamps_ms.astype(np.uint64) if rows.timestamps_ms is not None else _number(TIME_OF_WRITING)",
        "_number(TIME_OF_WRITING)",
        (_ATTEMPTS, "-k", "made_again"),
    ),
    Bug(
        "a marker keeps the oldest batches",
        "semel.spark.lanes.protocol:advance",
        "(*before, Written(claim.query_id, claim.batch_id, digest))[-HISTORY_MAX:]",
        "(*before, Written(claim.query_id, claim.batch_id, digest))[:HISTORY_MAX]",
        (_PROTOCOL,),
    ),
    Bug(
        "lanes may become more or fewer",
        "semel.spark.lanes.protocol:misfit",
        "marker.lane_count != claim.lane_count",
        "marker.lane_count is Ellipsis",
        (_PROTOCOL,),
    ),
    Bug(
        "whose lane it is shows only after the fence",
        "semel.spark.lanes.lane:LaneWriter.write",
        """
        self._look(client, claim)
        transaction = self._fence(client, claim, fence_of(claim))
        """,
        "transaction = self._fence(client, claim, fence_of(claim))",
        (_ATTEMPTS, "-k", "disturbs_nobody"),
    ),
    Bug(
        "lanes may be added between the batches of a query",
        "semel.spark.lanes.writer:LaneSink.__init__",
        "brought_into is None and order is not Order.CONSECUTIVE",
        "brought_into is None",
        ("tests/spark/lanes/test_lane_batch_writes.py", "-k", "number_of_lanes"),
    ),
    Bug(
        "who may not look at the progress topic goes on without",
        "semel.spark.lanes.progress:_check_kept",
        "raise ProgressRefused(_) from None",
        "return",
        ("tests/client/test_rights.py", "-k", "how_the_progress_topic_is_kept"),
    ),
    Bug(
        "who may not read the markers begins all the same",
        "semel.spark.lanes.progress:_check_readable",
        "raise ProgressRefused(_) from None",
        "return",
        ("tests/client/test_rights.py", "-k", "before_its_first_batch"),
    ),
    Bug(
        "what a former leader shows is believed",
        "semel.spark.lanes.lane:LaneWriter._look_again",
        "last != believed",
        "last is Ellipsis",
        ("tests/spark/lanes/test_former_leader.py",),
    ),
    Bug(
        "any batch of a query is a duplicate of its last one",
        "semel.spark.lanes.protocol:_find",
        "(written.query_id, written.batch_id) == (claim.query_id, claim.batch_id)",
        "written.query_id == claim.query_id",
        (_PROTOCOL,),
    ),
    Bug(
        "another query's batch of the same number is a duplicate",
        "semel.spark.lanes.protocol:_find",
        "(written.query_id, written.batch_id) == (claim.query_id, claim.batch_id)",
        "written.batch_id == claim.batch_id",
        (_PROTOCOL,),
    ),
    Bug(
        "a mark lets a batch follow wherever the lane stands",
        "semel.spark.lanes.protocol:_may_follow",
        "claim.accept_after == _mark(marker)",
        "claim.accept_after is not None",
        (_PROTOCOL,),
    ),
    Bug(
        "after what a person accepted, batches of the history before are duplicates",
        "semel.spark.lanes.protocol:advance",
        "marker is not None and not _may_follow(marker, claim)",
        "marker is not None",
        (_PROTOCOL,),
    ),
    Bug(
        "a batch that was forgotten is written again",
        "semel.spark.lanes.protocol:_decide_next",
        "claim.batch_id <= newest.batch_id",
        "claim.batch_id == newest.batch_id",
        (_PROTOCOL,),
    ),
    Bug(
        "a duplicate needs only as many rows",
        "semel.spark.lanes.protocol:check",
        "expected == actual",
        "expected.rows == actual.rows",
        (_ATTEMPTS, "-k", "made_again"),
    ),
    Bug(
        "a batch that was planned again does not say that the checkpoint is an old one",
        "semel.spark.lanes.protocol:check",
        "claim.order is Order.CONSECUTIVE",
        "claim.order is Order.SINGLE",
        (_PROTOCOL, "-k", "with_other_rows"),
    ),
    Bug(
        "the marker is read before the fence is up",
        "semel.spark.lanes.lane:LaneWriter.write",
        """
        transaction = self._fence(client, claim, fence_of(claim))
        marker = _
        """,
        """
        marker = _
        transaction = self._fence(client, claim, fence_of(claim))
        """,
        (_ATTEMPTS, "-k", "overtaken"),
    ),
    Bug(
        "each batch of a lane has a transactional id of its own",
        "semel.spark.lanes.lane:LaneWriter.write",
        "self._fence(client, claim, fence_of(claim))",
        'self._fence(client, claim, f"{fence_of(claim)}-{time.time_ns()}")',
        (_ATTEMPTS, "-k", "overtaken"),
    ),
    Bug(
        "a lane has the transactional id of a worker of the user's",
        "semel.spark.lanes.protocol:fence_of",
        'f"semel-lane-{claim.sink_id}-{claim.lane}"',
        'f"{claim.sink_id}-{claim.lane}"',
        (_IDS, "-k", "no_producer_of_the_user"),
    ),
    Bug(
        "the marker comes after the commit",
        "semel.spark.lanes.lane:LaneWriter.write",
        """
        rows.mark(where, key, _)
        self._look_again(client, claim, marker, transaction.last_offset(where))
        transaction.commit()
        """,
        """
        transaction.commit()
        rows.mark(where, key, _)
        """,
        (_ATTEMPTS, "-k", "made_again"),
    ),
    Bug(
        "an aborted marker is believed",
        "semel.spark.lanes.progress:_last_value",
        "Isolation.READ_COMMITTED",
        "Isolation.READ_UNCOMMITTED",
        (_ATTEMPTS, "-k", "leaves_no_marker"),
    ),
    Bug(
        "the first marker that is found is taken for the last one",
        "semel.spark.lanes.progress:_last_value",
        "if batch.num_rows: value = batch.column(0)[-1].as_py()",
        "if batch.num_rows and value is None: value = batch.column(0)[0].as_py()",
        (_ATTEMPTS, "-k", "made_again"),
    ),
    Bug(
        "a lane's marker outlives the topic with its rows",
        "semel.spark.lanes.protocol:is_made_anew",
        "ids[0] != ids[1]",
        "False",
        ("tests/spark/lanes/test_lane_attempts.py", "-k", "made_anew"),
    ),
    Bug(
        "the marker of another sink is taken for the lane's own",
        "semel.spark.lanes.progress:_checked",
        "(marker.sink_id, marker.lane) != (sink_id, lane)",
        "marker.lane != lane",
        ("tests/spark/lanes/test_lane_markers.py", "-k", "of_another_sink"),
    ),
)
