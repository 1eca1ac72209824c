"""The planted bugs of the sink into the log, as those of the broker in `bugs.py`.

Each loses, doubles, reorders or misplaces records, lets a writer go on that was replaced, or never comes to an end.
"""

from typing import Final

from bugs import Bug

TRANSACTIONS: Final = "tests/spark/log/test_transaction.py"
ENDS: Final = "tests/spark/log/test_transaction_ends.py"
PATIENCE: Final = "tests/spark/log/test_patience.py"
ATTEMPTS: Final = "tests/spark/lanes/test_lane_attempts.py"
ENCODING: Final = "tests/spark/log/test_encoding.py"
PLACING: Final = "tests/spark/log/test_placing.py"
ROWS: Final = "tests/spark/lanes/test_lane_rows.py"
PROTOCOL: Final = ("tests/spark/lanes/test_lane_protocol.py",)


def transactions(named: str) -> tuple[str, ...]:
    return TRANSACTIONS, "-k", named


SINK_BUGS: Final[tuple[Bug, ...]] = (
    # -- a transaction: each batch once, under its numbers -----------------------------------------------------------
    Bug(
        "all batches of a partition have the numbers of the first",
        "semel.spark.log.transaction",
        "        self._sequences[where] = (sequence + records.count) & _SEQUENCE_MASK",
        "        self._sequences[where] = sequence",
        transactions("there_once_and_in_order"),
    ),
    Bug(
        "batches are numbered, not records",
        "semel.spark.log.transaction",
        "        self._sequences[where] = (sequence + records.count) & _SEQUENCE_MASK",
        "        self._sequences[where] = (sequence + 1) & _SEQUENCE_MASK",
        transactions("numbers"),
    ),
    Bug(
        "the numbers of records do not wrap",
        "semel.spark.log.transaction",
        "_SEQUENCE_MASK: Final = (1 << 31) - 1",
        "_SEQUENCE_MASK: Final = (1 << 32) - 1",
        transactions("numbers"),
    ),
    Bug(
        "the numbers of records go on over a claim",
        "semel.spark.log.transaction",
        "        self._sequences.update(dict.fromkeys(new, 0))",
        "        self._sequences.update(dict.fromkeys(new, 100 * self._claim[1]))",
        (ENDS, "-k", "what_was_aborted"),
    ),
    Bug(
        "batches are written outside of their transaction",
        "semel.spark.log.transaction",
        "            attributes=codec | TRANSACTIONAL_BIT,",
        "            attributes=codec,",
        transactions("there_once_and_in_order"),
    ),
    Bug(
        "a commit does not wait for the last answers",
        "semel.spark.log.transaction",
        "        self._send(wait_for_all=True)",
        "        self._send(wait_for_all=False)",
        transactions("followed_at_once"),
    ),
    Bug(
        "what waits is forgotten when what was sent is taken back",
        "semel.spark.log.transaction",
        "        self._waiting = unanswered + self._waiting\n",
        "        self._waiting = unanswered\n",
        transactions("without_a_leader"),
    ),
    Bug(
        "what is taken back is sent behind what waits",
        "semel.spark.log.transaction",
        "        self._waiting = unanswered + self._waiting\n",
        "        self._waiting = self._waiting + unanswered\n",
        transactions("without_a_leader"),
    ),
    Bug(
        "who led a partition is remembered when it moves",
        "semel.spark.log.transaction",
        "            self._client.forget(topic)",
        "            pass",
        transactions("followed_at_once"),
    ),
    Bug(
        "a coordinator that moved is asked where it was",
        "semel.spark.log.transaction",
        "        if code in _ELSEWHERE:\n            self._coordinator = None\n",
        "",
        transactions("looked_for_again"),
    ),
    Bug(
        "only the first of several partitions takes part",
        "semel.spark.log.transaction",
        "        for where in new:\n",
        "        for where in new[:1]:\n",
        transactions("all_at_once"),
    ),
    Bug(
        "a partition that may not take part yet counts as one that does",
        "semel.spark.log.transaction",
        "            if code != ErrorCode.OPERATION_NOT_ATTEMPTED:\n"
        '                self._check(code, f"partition {where}")\n'
        "        if not of_partitions or any(code for _, code in of_partitions):\n",
        "        if not of_partitions:\n",
        transactions("busy_or_elsewhere"),
    ),
    Bug(
        "the end of its time does not end a transaction",
        "semel.spark.log.transaction",
        "            self._check_time()\n            try:\n                self._hand_over()",
        "            try:\n                self._hand_over()",
        transactions("takes_too_long"),
    ),
    Bug(
        "an abort follows a commit that nobody knows of",
        "semel.spark.log.transaction",
        "        if self._ends is None or self._is_fenced or self.is_committing:",
        "        if self._ends is None or self._is_fenced:",
        transactions("claims_nothing"),
    ),
    Bug(
        "a commit is remembered when it is answered",
        "semel.spark.log.transaction",
        "        self.is_committing = True\n"
        '        self._patiently(self._end, Patience(self._client.settings, left_ms, "what is left of its time"))\n',
        '        self._patiently(self._end, Patience(self._client.settings, left_ms, "what is left of its time"))\n'
        "        self.is_committing = True\n",
        transactions("claims_nothing"),
    ),
    Bug(
        "an abort leaves the epoch as it is",
        "semel.spark.log.transaction",
        "            self._claim_id(self._claim)\n",
        "            names = 'transactional_id', 'producer_id', 'producer_epoch', 'committed'\n"
        "            values = dict(zip(names, (self._id, *self._claim, False)))\n"
        "            self._check(self._ask_coordinator(END_TXN, **values).error_code)\n",
        (ENDS, "-k", "opens_no_transaction_again"),
    ),
    Bug(
        "an abort takes the id from whoever has it by now",
        "semel.spark.log.transaction",
        "            self._claim_id(self._claim)\n",
        "            self._claim_id(_NO_CLAIM)\n",
        (ENDS, "-k", "who_comes_during_an_abort"),
    ),
    Bug(
        "an abort does not look whether the id is still ours",
        "semel.spark.log.transaction",
        "            self._patiently(lambda: self._announce(self._opened_by), patience)\n",
        "",
        (ENDS, "-k", "who_gives_up_aborts_nothing"),
    ),
    Bug(
        "who is fenced asks for an abort all the same",
        "semel.spark.log.transaction",
        "        if self._ends is None or self._is_fenced or self.is_committing:",
        "        if self._ends is None or self.is_committing:",
        (ENDS, "-k", "nothing_more_is_asked"),
    ),
    Bug(
        "who is fenced claims the id again and goes on",
        "semel.spark.log.transaction",
        "            self._check_time()\n            raise\n",
        "            self._claim = self._claim_id(_NO_CLAIM)\n            attempt()\n",
        (ENDS, "-k", "who_is_fenced"),
    ),
    # -- the line to a leader: what it was sent, what it said, how long it is waited for -------------------------------
    Bug(
        "one more request is under way than brokers remember batches",
        "semel.spark.log.line",
        "REQUESTS_UNDER_WAY_MAX: Final = 5",
        "REQUESTS_UNDER_WAY_MAX: Final = 6",
        transactions("than_a_broker_remembers"),
    ),
    Bug(
        "a request has two batches of one partition",
        "semel.spark.log.line",
        "        if where in there or (request and",
        "        if (request and",
        transactions("one_batch_of_a_partition"),
    ),
    Bug(
        "a request is under way from when it was sent as a whole",
        "semel.spark.log.line",
        "        self._under_way.append(self._to_send.popleft())\n        try:\n"
        "            self.connection.send_produce(self._under_way[-1], self._id, self._settings.request_timeout_ms)\n",
        "        request = self._to_send.popleft()\n        try:\n"
        "            self.connection.send_produce(request, self._id, self._settings.request_timeout_ms)\n"
        "            self._under_way.append(request)\n",
        transactions("breaks_off"),
    ),
    Bug(
        "answers that came before a connection broke are not heard",
        "semel.spark.log.line",
        "                while self._under_way:\n                    self._receive()\n",
        "                pass\n",
        transactions("before_a_connection_broke"),
    ),
    Bug(
        "what was not sent yet is not taken back",
        "semel.spark.log.line",
        "chain.from_iterable((*self._under_way, *self._to_send))",
        "chain.from_iterable(self._under_way)",
        transactions("breaks_off or lost_answers"),
    ),
    Bug(
        "what was sent without an answer is not taken back",
        "semel.spark.log.line",
        "chain.from_iterable((*self._under_way, *self._to_send))",
        "chain.from_iterable(self._to_send)",
        transactions("breaks_off or lost_answers"),
    ),
    Bug(
        "what is taken back has the later ones first",
        "semel.spark.log.line",
        "chain.from_iterable((*self._under_way, *self._to_send))",
        "chain.from_iterable((*self._to_send, *self._under_way))",
        transactions("breaks_off or lost_answers"),
    ),
    Bug(
        "the last answer is not waited for",
        "semel.spark.log.line",
        "        while self._to_send or (wait_for_all and self._under_way):",
        "        while self._to_send or (wait_for_all and len(self._under_way) > 1):",
        transactions("than_a_broker_remembers"),
    ),
    Bug(
        "every answer says that the batch is there",
        "semel.spark.log.line",
        "            if answer.error_code == ErrorCode.NONE:",
        "            if answer.error_code is not None:",
        transactions("error_that_passes and False"),
    ),
    Bug(
        "a batch is done with its answer, whatever that says",
        "semel.spark.log.line",
        "        self._under_way[0] = list(left.values())\n        if left:\n",
        "        if left:\n            self._under_way.popleft()\n",
        transactions("error_that_passes and False"),
    ),
    Bug(
        "a partition that the leader does not speak of is taken for written",
        "semel.spark.log.line",
        "        if left:\n",
        "        if wrong:\n",
        transactions("does_not_speak_of"),
    ),
    Bug(
        "a gap that the broker sees passes by itself",
        "semel.spark.log.codes",
        "        ErrorCode.THROTTLING_QUOTA_EXCEEDED,\n",
        "        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,\n",
        transactions("error_that_stays and OUT_OF_ORDER"),
    ),
    Bug(
        "a topic is missing since the last progress",
        "semel.spark.log.patience",
        "        elif now - self._missing_since >= MISSING_SECONDS_MAX:",
        "        elif waited >= MISSING_SECONDS_MAX:",
        (PATIENCE, "-k", "first_said_to_be"),
    ),
    # -- columns as records: all of them, as they were -----------------------------------------------------------------
    Bug(
        "offsets count on from batch to batch",
        "semel.spark.log.encoding",
        "    offset_deltas = _Varints(np.arange(count) - np.repeat(starts, lengths))",
        "    offset_deltas = _Varints(np.arange(count))",
        transactions("numbers"),
    ),
    Bug(
        "the length of a record does not count",
        "semel.spark.log.encoding",
        "    edges = _edges(largest + len(varint(int(largest.max()))), bytes_max)",
        "    edges = _edges(largest, bytes_max)",
        (ENCODING, "-k", "length_of_a_record"),
    ),
    Bug(
        "no key is an empty key",
        "semel.spark.log.encoding",
        "_NULL_LENGTH: Final = -1",
        "_NULL_LENGTH: Final = 0",
        (ENCODING, "-k", "without_any_value"),
    ),
    Bug(
        "all records of a batch have the time of the first",
        "semel.spark.log.encoding",
        "    timestamp_deltas = _Varints(times_ms - np.repeat(times_ms[starts], lengths))",
        "    timestamp_deltas = _Varints(np.zeros_like(times_ms))",
        (ENCODING, "-k", "times_may_fall"),
    ),
    Bug(
        "the last row is dropped where it would be a batch of its own",
        "semel.spark.log.encoding",
        "    while edges[-1] < len(ends):",
        "    while edges[-1] < len(ends) - 1:",
        (ENCODING, "-k", "offsets_are_counted"),
    ),
    Bug(
        "the last time of a batch is taken for its latest",
        "semel.spark.log.encoding",
        "            int(times_ms[start:stop].max()),",
        "            int(times_ms[stop - 1]),",
        (ENCODING, "-k", "times_may_fall"),
    ),
    Bug(
        "records with headers say that they have none",
        "semel.spark.log.encoding",
        "    header_counts = _Varints(0 if headers is None else headers.counts)",
        "    header_counts = _Varints(0)",
        (ENCODING, "-k", "where_a_row_has_null"),
    ),
    Bug(
        "a column that is cut out of another begins where that one does",
        "semel.spark.log.encoding",
        "    ends = np.frombuffer(places, kind, count + 1, column.offset * kind.itemsize).astype(np.int64)",
        "    ends = np.frombuffer(places, kind, count + 1).astype(np.int64)",
        (ENCODING, "-k", "where_a_row_has_null"),
    ),
    # -- which partition: that of the key, as everybody else has it ----------------------------------------------------
    Bug(
        "a hash is made positive by its upper bit",
        "semel.spark.log.placing",
        "_PLACE_MASK: Final = np.uint32(0x7FFFFFFF)",
        "_PLACE_MASK: Final = np.uint32(0xFFFFFFFF)",
        (PLACING, "-k", "javas_clients"),
    ),
    Bug(
        "the last bytes of a key are not mixed",
        "semel.spark.log.placing",
        "np.where(rest_lengths > 0, (hashes ^ rests) * _FACTOR, hashes)",
        "np.where(rest_lengths > 0, hashes ^ rests, hashes)",
        (PLACING, "-k", "kafka_gives_it"),
    ),
    Bug(
        "hashes are brought into the order of the lengths once more",
        "semel.spark.log.placing",
        "        ordered[self._order] = hashes\n",
        "        ordered[:] = hashes[self._order]\n",
        (PLACING, "-k", "all_keys"),
    ),
    Bug(
        "it is always the same partition's turn",
        "semel.spark.log.placing",
        "        self._next[topic] = (first + -(-rows // run)) % count",
        "        self._next[topic] = first",
        (PLACING, "-k", "each_topic"),
    ),
    Bug(
        "a key is heard where the row names its partition",
        "semel.spark.lanes.rows",
        "        by_key = is_open & is_valid(rows.keys) if rows.keys.null_count else is_open",
        "        by_key = is_valid(rows.keys) if rows.keys.null_count else is_open",
        (ROWS, "-k", "goes_to_its_partition"),
    ),
    Bug(
        "the rows of a partition are in any order",
        "semel.spark.lanes.rows",
        'places, kind="stable")',
        'places, kind="quicksort")',
        (ATTEMPTS, "-k", "in_their_order"),
    ),
    Bug(
        "the keys stay where they were when rows are put in order",
        "semel.spark.lanes.rows",
        "        None if columns.keys is None else columns.keys.take(indices),",
        "        columns.keys,",
        (ATTEMPTS, "-k", "in_their_order"),
    ),
    Bug(
        "the first partition of a topic is the last one of the topic before",
        "semel.spark.lanes.rows",
        '        topic = int(np.searchsorted(firsts, place, "right")) - 1',
        '        topic = max(int(np.searchsorted(firsts, place, "left")) - 1, 0)',
        (ROWS, "-k", "goes_to_its_partition"),
    ),
    Bug(
        "rows of another lane are written if the first lane among them is right",
        "semel.spark.lanes.rows",
        '(ends["min"], ends["max"]) != (self._lane, self._lane)',
        'ends["min"] != self._lane',
        (ROWS, "-k", "another_lane"),
    ),
    # -- lanes: what was written is known, and nobody writes who was replaced ------------------------------------------
    Bug(
        "a digest takes null for empty",
        "semel.spark.lanes.digest",
        "    hashes[fields.lengths < 0] = _NULL",
        "    pass",
        (ROWS, "-k", "without_a_key or other_rows"),
    ),
    Bug(
        "a digest depends on the order of batches",
        "semel.spark.lanes.digest",
        "        self._sum = (self._sum + int(",
        "        self._sum = (self._sum * 31 + int(",
        (ROWS, "-k", "does_not_depend"),
    ),
    Bug(
        "rows that are there twice cancel out in a digest",
        "semel.spark.lanes.digest",
        "int(hashes.sum(dtype=np.uint64))",
        "int(np.bitwise_xor.reduce(hashes))",
        (ATTEMPTS, "-k", "alike"),
    ),
    Bug(
        "a digest does not look at times",
        "semel.spark.lanes.digest",
        "    yield rows.timestamps_ms.astype(np.uint64) if rows.timestamps_ms is not None else",
        "    yield",
        (ATTEMPTS, "-k", "made_again"),
    ),
    Bug(
        "a marker keeps the oldest batches",
        "semel.spark.lanes.protocol",
        "Written(claim.query_id, claim.batch_id, digest))[-HISTORY_MAX:]",
        "Written(claim.query_id, claim.batch_id, digest))[:HISTORY_MAX]",
        PROTOCOL,
    ),
    Bug(
        "lanes may become more or fewer",
        "semel.spark.lanes.protocol",
        "    if marker.lane_count != claim.lane_count:",
        "    if marker.lane_count is Ellipsis:",
        PROTOCOL,
    ),
    Bug(
        "any batch of a query is a duplicate of its last one",
        "semel.spark.lanes.protocol",
        "        if (written.query_id, written.batch_id) == (claim.query_id, claim.batch_id):",
        "        if written.query_id == claim.query_id:",
        PROTOCOL,
    ),
    Bug(
        "another query's batch of the same number is a duplicate",
        "semel.spark.lanes.protocol",
        "        if (written.query_id, written.batch_id) == (claim.query_id, claim.batch_id):",
        "        if written.batch_id == claim.batch_id:",
        PROTOCOL,
    ),
    Bug(
        "a batch that was forgotten is written again",
        "semel.spark.lanes.protocol",
        "    if claim.batch_id <= newest.batch_id:",
        "    if claim.batch_id == newest.batch_id:",
        PROTOCOL,
    ),
    Bug(
        "a duplicate needs only as many rows",
        "semel.spark.lanes.protocol",
        "    if expected == found:",
        "    if expected.rows == found.rows:",
        (ATTEMPTS, "-k", "made_again"),
    ),
    Bug(
        "the marker is read before the fence is up",
        "semel.spark.lanes.lane",
        "            transaction = self._fence(client, claim)\n"
        "            marker = progress.read_marker(client, self.progress_topic, claim.lane, claim.sink_id)\n",
        "            marker = progress.read_marker(client, self.progress_topic, claim.lane, claim.sink_id)\n"
        "            transaction = self._fence(client, claim)\n",
        (ATTEMPTS, "-k", "overtaken"),
    ),
    Bug(
        "each batch of a lane has a transactional id of its own",
        "semel.spark.lanes.lane",
        'f"{claim.sink_id}-{claim.lane}"',
        'f"{claim.sink_id}-{claim.lane}-{time.time_ns()}"',
        (ATTEMPTS, "-k", "overtaken"),
    ),
    Bug(
        "the marker comes behind the commit",
        "semel.spark.lanes.lane",
        "                rows.mark(where, key, progress.encode(advance(marker, claim, digest)))\n"
        "                transaction.commit()\n",
        "                transaction.commit()\n"
        "                rows.mark(where, key, progress.encode(advance(marker, claim, digest)))\n",
        (ATTEMPTS, "-k", "made_again"),
    ),
    Bug(
        "an aborted marker is believed",
        "semel.spark.lanes.progress",
        '["value"], Isolation.READ_COMMITTED):',
        '["value"], Isolation.READ_UNCOMMITTED):',
        (ATTEMPTS, "-k", "leaves_no_marker"),
    ),
    Bug(
        "the first marker that is found is taken for the last one",
        "semel.spark.lanes.progress",
        "        if batch.num_rows:\n            found = batch.column(0)[-1].as_py()",
        "        if batch.num_rows and found is None:\n            found = batch.column(0)[0].as_py()",
        (ATTEMPTS, "-k", "made_again"),
    ),
)
