"""The planted bugs: what each breaks, how it is planted, and which tests must catch it.

Each is a mistake that could be made, or was made in a system of this kind. `caught_by` names the cheapest tests that
fail over it, as arguments for pytest. A change of the code that makes `line` stale has to move the bug along with it.
"""

from typing import Final, NamedTuple


class Bug(NamedTuple):
    """A few characters of a module's source, and what a saboteur would write there."""

    name: str
    module: str
    line: str
    instead: str
    caught_by: tuple[str, ...]


BUGS: Final[tuple[Bug, ...]] = (
    # -- claims: what is new, what is a repetition, what is late ---------------------------------------------------
    Bug(
        "the window holds four batches",
        "semel.core.producers",
        "WINDOW_BATCHES: Final = 5",
        "WINDOW_BATCHES: Final = 4",
        ("tests/core/test_producers.py",),
    ),
    Bug(
        "sequence numbers do not wrap",
        "semel.core.producers",
        "SEQUENCE_MASK: Final = 0x7FFF_FFFF",
        "SEQUENCE_MASK: Final = 0xFFFF_FFFF",
        ("tests/core/test_producers.py",),
    ),
    Bug(
        "a batch that overlaps an old one passes for a repetition",
        "semel.core.producers",
        "        if state.startswith(wanted, position):",
        "        if state.startswith(wanted[:4], position):",
        ("tests/core/test_producers.py",),
    ),
    Bug(
        "a gap is accepted",
        "semel.core.producers",
        "    (DUPLICATE,  ACCEPTED,  GAP,      GAP),       # CURRENT",
        "    (DUPLICATE,  ACCEPTED,  GAP,      ACCEPTED),  # CURRENT",
        ("tests/core/test_producers.py",),
    ),
    Bug(
        "a later epoch may begin with any number",
        "semel.core.producers",
        "    (GAP,        GAP,       ACCEPTED, GAP),       # SUCCESSOR",
        "    (GAP,        GAP,       ACCEPTED, ACCEPTED),  # SUCCESSOR",
        ("tests/core/test_producers.py",),
    ),
    Bug(
        "a zombie one epoch late is not fenced",
        "semel.core.producers",
        "standing = SUCCESSOR if epoch > known_epoch else ZOMBIE",
        "standing = SUCCESSOR if epoch >= known_epoch - 1 else ZOMBIE",
        ("tests/core/test_producers.py",),
    ),
    Bug(
        "a producer nobody has heard of may begin with any number",
        "semel.core.producer_ids",
        "        return block >= 0 and -BLOCK_AGE_MAX_MS < now_ms - self._block_times_ms[block] < expiration_ms",
        "        return False",
        ("tests/core/test_producer_ids.py",),
    ),
    Bug(
        "a crash has producer ids handed out twice",
        "semel.core.producer_ids",
        "        self._next = self._reserved_until = entry.first + entry.count\n",
        "        self._reserved_until = entry.first + entry.count\n        self._next = entry.first\n",
        ("tests/core/test_producer_ids.py",),
    ),
    Bug(
        "the checksum of what a client sends is not looked at",
        "semel.core.batch",
        "    if crc32c(memoryview(batch)[CHECKED_FROM:]) != header.checksum:",
        "    if header.checksum is None:",
        ("tests/core/test_batch.py",),
    ),
    # -- the disk: what was acknowledged is there, once --------------------------------------------------------------
    Bug(
        "answers leave before the sync",
        "semel.broker.connection",
        "            if exchange._after > broker.settled:",
        "            if exchange._after < 0:",
        ("tests/broker/apis/test_durable_answers.py",),
    ),
    Bug(
        "records are shown before the sync",
        "semel.storage.log",
        "        while unsettled and unsettled[0][0] <= position:",
        "        while unsettled:",
        ("tests/storage/test_log.py", "tests/broker/apis/test_durable_answers.py"),
    ),
    Bug(
        "a failed sync is tried again",
        "semel.storage.journal",
        "        for file in self.unsynced:\n            file.sync()\n",
        "        for file in self.unsynced:\n"
        "            try:\n                file.sync()\n"
        "            except OSError:\n                file.sync()\n",
        ("tests/crash/test_matrix.py", "-k", "failed"),
    ),
    Bug(
        "the name of a new journal file is not synced",
        "semel.storage.journal",
        "        if self.names_changed:",
        "        if self.files is None:",
        ("tests/crash/test_matrix.py",),
    ),
    Bug(
        "torn entries of the journal are believed",
        "semel.storage.journal",
        "    if crc32c(content[offset + _CHECKED_FROM : offset + size]) != checksum:",
        "    if checksum is None:",
        ("tests/storage/test_journal.py",),
    ),
    Bug(
        "entries of an earlier life are believed",
        "semel.storage.journal",
        "    if life is not None and kind_and_life >> _KIND_BITS != life % _LIVES:",
        "    if life is not None and kind_and_life < 0:",
        ("tests/storage/test_journal.py", "tests/storage/test_starting_again.py", "tests/crash/test_matrix.py"),
    ),
    Bug(
        "a checkpoint replaces the old one before it is durable",
        "semel.storage.checkpoint",
        "        file.write_at([content], 0)\n        file.sync()\n",
        "        file.write_at([content], 0)\n",
        ("tests/crash/test_matrix.py",),
    ),
    Bug(
        "a checkpoint forgets all of the window but the last batch",
        "semel.storage.checkpoint",
        "    for producer_id, state in states:\n",
        "    for producer_id, state in ((i, s[:10] + s[-24:]) for i, s in states):\n",
        ("tests/crash/test_matrix.py",),
    ),
    Bug(
        "the journal goes round before the checkpoint is durable",
        "semel.storage.log",
        "        self.checkpoint_running = True\n",
        "        self.checkpoint_running = True\n        self._journal.recycle(self.end)\n",
        ("tests/crash/test_matrix.py",),
    ),
    Bug(
        "what lies behind the end of a segment is not cut off",
        "semel.storage.partition_log",
        "            if file.size() > last.size:",
        "            if file.size() < 0:",
        ("tests/storage/test_partition_log.py", "tests/storage/test_log.py", "tests/crash/test_matrix.py"),
    ),
    # -- reading -----------------------------------------------------------------------------------------------------
    Bug(
        "a fetch from the middle of a batch loses the batch",
        "semel.storage.partition_log",
        "                if header.next_offset > offset:\n                    return position + at",
        "                if header.base_offset >= offset:\n                    return position + at",
        ("tests/storage/test_partition_log.py",),
    ),
    # -- transactions in a log: whole or not at all, and shown when they are decided ---------------------------------
    Bug(
        "committed reads go on to where the youngest open transaction begins",
        "semel.storage.partition_log",
        "        for mark in self._opened.values():\n",
        "        for mark in reversed(self._opened.values()):\n",
        ("tests/storage/test_log_transactions.py",),
    ),
    Bug(
        "an aborted transaction that began before the fetch is not named",
        "semel.core.aborted",
        "strict=True) if pair[1] < end]",
        "strict=True) if begin <= pair[1] < end]",
        ("tests/core/test_partition_transactions.py",),
    ),
    Bug(
        "the search for aborted transactions breaks off one too early",
        "semel.core.aborted",
        "            if self._stable_offsets[slot + len(first_offsets) - 1] >= end:",
        "            if self._marker_offsets[slot + len(first_offsets) - 1] >= end:",
        ("tests/core/test_partition_transactions.py",),
    ),
    Bug(
        "a fetch names no aborted transaction",
        "semel.broker.apis.fetch",
        "                aborted = partition.state.aborted.between(asked.fetch_offset, behind)",
        "                aborted = ()",
        ("tests/broker/apis/test_isolation.py",),
    ),
    Bug(
        "a transaction ends in the first of its partitions only",
        "semel.storage.contents",
        "        for number, index in entry.partitions:",
        "        for number, index in entry.partitions[:1]:",
        ("tests/storage/test_log_transactions.py",),
    ),
    Bug(
        "a checkpoint forgets where open transactions begin",
        "semel.storage.partition_log",
        "        self._opened = parts.open_transactions\n",
        "        self._opened = {}\n",
        ("tests/storage/test_log_transactions.py",),
    ),
    Bug(
        "a marker of a later epoch leaves the numbers of the earlier one",
        "semel.core.producers",
        "    if state is None or epoch > epoch_of(state):\n        return _HEAD.pack(now_ms, epoch)",
        "    if state is None:\n        return _HEAD.pack(now_ms, epoch)",
        ("tests/core/test_partition_transactions.py",),
    ),
    Bug(
        "a producer is forgotten in the middle of its transaction",
        "semel.core.partition",
        "        return self.producers.forget_silent(before_ms, self.open_transactions)",
        "        return self.producers.forget_silent(before_ms)",
        ("tests/core/test_partition_transactions.py",),
    ),
    Bug(
        "a plain batch may come between those of its producer's transaction",
        "semel.core.partition",
        "            if header.producer_id in self.open_transactions and not header.attributes & TRANSACTIONAL_BIT:",
        "            if False:",
        ("tests/core/test_partition_transactions.py",),
    ),
    # -- transactional ids: who owns them, and which end is meant ---------------------------------------------------
    Bug(
        "what a predecessor left open stays open",
        "semel.core.transactions",
        "for_successor=supplied is None),) if producer_id in self._open else ()",
        "for_successor=supplied is None),) if producer_id < 0 else ()",
        ("tests/core/test_transactions.py", "tests/broker/apis/test_transaction_apis.py"),
    ),
    Bug(
        "a successor gets the epoch of its predecessor",
        "semel.core.transactions",
        "        next_epoch = epoch + 1\n",
        "        next_epoch = epoch\n",
        ("tests/core/test_transactions.py",),
    ),
    Bug(
        "a late end of the second version ends the next transaction",
        "semel.core.transactions",
        "    (State.ONGOING, True, True): _F,",
        "    (State.ONGOING, True, True): _E,",
        ("tests/core/test_transactions_ending.py",),
    ),
    Bug(
        "an end that is repeated is refused",
        "semel.core.transactions",
        "    (State.COMPLETE_COMMIT, True): _R,",
        "    (State.COMPLETE_COMMIT, True): _I,",
        ("tests/core/test_transactions_ending.py",),
    ),
    Bug(
        "a batch of an earlier epoch joins the transaction",
        "semel.core.transactions",
        "        if producer_epoch != owner.producer_epoch:\n            raise Refused(\n"
        "                refusals.INVALID_PRODUCER_EPOCH,",
        "        if producer_epoch > owner.producer_epoch:\n            raise Refused(\n"
        "                refusals.INVALID_PRODUCER_EPOCH,",
        ("tests/core/test_transactions.py", "tests/core/test_transactions_machine.py"),
    ),
    Bug(
        "a restart forgets the deadlines of open transactions",
        "semel.broker.transactions",
        "        for producer_id, due_ms in broker.log.transactions.deadlines():",
        "        for producer_id, due_ms in ():",
        ("tests/broker/test_transaction_timeouts.py", "-k", "before_a_restart", "--timeout=10"),
    ),
    Bug(
        "a producer that found its transaction timed out may go on in its epoch",
        "semel.core.transactions",
        "        epoch = min(owner.producer_epoch + 1, EPOCH_MAX)",
        "        epoch = owner.producer_epoch",
        ("tests/core/test_transactions.py",),
    ),
    # -- groups of the classic protocol: who may read what, and who comes late -------------------------------------
    Bug(
        "a member of an earlier generation is heard",
        "semel.core.groups.classic_state",
        "        if generation != self.generation:",
        "        if generation > self.generation:",
        ("tests/core/groups/test_classic.py",),
    ),
    Bug(
        "a generation has the number of the one before",
        "semel.core.groups.classic",
        "        self.generation += 1",
        "        self.generation = max(self.generation, 1)",
        ("tests/core/groups/test_classic.py",),
    ),
    Bug(
        "who does not join again in time stays in the group",
        "semel.core.groups.classic",
        '            self._expire(member, "did not join again in time", step)',
        "            pass",
        ("tests/core/groups/test_classic.py",),
    ),
    Bug(
        "a request that a later one replaces is never answered",
        "semel.core.groups.classic",
        "            step.answer(member.join_waiter, JoinAnswer(refusals.REBALANCE_IN_PROGRESS, member.member_id))",
        "            pass",
        ("tests/core/groups/test_classic.py",),
    ),
    Bug(
        "whoever had an instance id before is not fenced",
        "semel.core.groups.classic_state",
        "            if owner is not None and owner.member_id != member_id:",
        "            if False:",
        ("tests/core/groups/test_classic.py",),
    ),
    Bug(
        "a restart leaves members no time to show that they are there",
        "semel.core.groups.classic_state",
        "        for member in self.members:\n            self.hear(member, now_ms)",
        "        pass",
        ("tests/core/groups/test_classic.py",),
    ),
    Bug(
        "an assignment is handed out that the disk did not take",
        "semel.broker.coordinator",
        "                proposal.refused()",
        "                proposal.kept()",
        ("tests/broker/apis/test_classic_groups.py",),
    ),
    # -- groups of the new protocol: each partition has one owner at a time -------------------------------------------
    Bug(
        "a partition is given away before its owner has let go of it",
        "semel.core.groups.consumer",
        "        return name not in self._owner_of",
        "        return True",
        ("tests/core/groups/test_consumer.py", "tests/core/groups/test_consumer_machine.py"),
    ),
    Bug(
        "a member takes its new epoch before it has let go",
        "semel.core.groups.consumer_members",
        "    if _still_reads(owned, to_revoke):\n",
        "    if _still_reads(owned, to_revoke) and not to_revoke:\n",
        ("tests/core/groups/test_consumer.py", "tests/core/groups/test_consumer_machine.py"),
    ),
    Bug(
        "a member that missed more than one answer is believed",
        "semel.core.groups.consumer_members",
        "    missed_one = epoch == member.position.previous_epoch and epoch < member.epoch",
        "    missed_one = epoch < member.epoch",
        ("tests/core/groups/test_consumer.py", "tests/core/groups/test_consumer_machine.py"),
    ),
    Bug(
        "who does not let go in time is left alone",
        "semel.core.groups.consumer_members",
        "            self.revoke_deadline_ms = at_ms + self.subscription.rebalance_timeout_ms",
        "            self.revoke_deadline_ms = None",
        ("tests/core/groups/test_consumer.py", "tests/core/groups/test_consumer_machine.py"),
    ),
    Bug(
        "a commit in an epoch that has passed is taken",
        "semel.core.groups.consumer_members",
        "not self.is_classic and all(first_epoch <= epoch for first_epoch in since)",
        "True",
        ("tests/core/groups/test_consumer.py", "tests/broker/apis/test_members_offsets.py"),
    ),
    # -- connections that are lost: who died is missed soon, and nobody else ------------------------------------------
    Bug(
        "a connection that a member has left takes its session with it",
        "semel.broker.member_connections",
        "        self.forget(member)\n        self._connection_of[member]",
        "        self._connection_of[member]",
        ("tests/broker/apis/test_lost_connections.py",),
    ),
    Bug(
        "a lost connection makes a session longer",
        "semel.core.groups.classic",
        "        if deadline_ms >= member.deadline_ms:\n            return None\n",
        "",
        ("tests/core/groups/test_shortened_sessions.py",),
    ),
    Bug(
        "a static consumer that starts anew is too late",
        "semel.core.groups.consumer_members",
        "        if self.session_deadline_ms is None or self.subscription.instance_id is not None:\n",
        "        if self.session_deadline_ms is None:\n",
        ("tests/core/groups/test_shortened_sessions.py", "tests/broker/apis/test_lost_connections.py"),
    ),
    # -- offsets of groups: which counts, and from when on ---------------------------------------------------------
    Bug(
        "the offsets of an aborted transaction count",
        "semel.core.groups.offsets",
        "        if committed:\n            for name, offset in ended:",
        "        if True:\n            for name, offset in ended:",
        ("tests/core/groups/test_offsets.py",),
    ),
    Bug(
        "the end of a transaction undoes a later commit",
        "semel.core.groups.offsets",
        "                if known is None or known.order < offset.order:",
        "                if known is None or known is not offset:",
        ("tests/core/groups/test_offsets.py",),
    ),
    Bug(
        "pending offsets pass for stable ones",
        "semel.broker.apis.offset_fetch",
        "    if stable and group.offsets.is_pending(name):",
        "    if stable and offset is None and group.offsets.is_pending(name):",
        ("tests/broker/apis/test_offset_apis.py",),
    ),
    Bug(
        "forgotten offsets come back with the end of a transaction",
        "semel.core.groups.offsets",
        "            for table in self._tables():\n                table.discard(PartitionName(number, partition))",
        "            self.committed.discard(PartitionName(number, partition))",
        ("tests/core/groups/test_offsets.py",),
    ),
    Bug(
        "a commit changes a checkpoint that is being written",
        "semel.core.groups.offsets",
        "        if partitions is None or number in self._shared:",
        "        if partitions is None:",
        ("tests/core/groups/test_offsets.py",),
    ),
    Bug(
        "late offsets get into the next transaction",
        "semel.broker.apis.txn_offset_commit",
        '        broker.transactions.note_heard(request.producer_id, exchange.connection_number, "offsets")',
        "        pass",
        ("tests/broker/apis/test_offset_apis.py",),
    ),
    Bug(
        "an offset is shown before it is durable",
        "semel.broker.apis.answered",
        "        answer(exchange, fields, after=broker.log.end)",
        "        answer(exchange, fields)",
        ("tests/broker/apis/test_durable_offsets.py",),
    ),
    # -- compaction: a consumer ends up with the same ----------------------------------------------------------------
    Bug(
        "compaction keeps the first record of a key",
        "semel.compaction.cleaning",
        "offsets[digest(key)] = base_offset + offset_delta",
        "offsets.setdefault(digest(key), base_offset + offset_delta)",
        ("tests/compaction/test_cleaning.py",),
    ),
    Bug(
        "an aborted record supersedes a committed one",
        "semel.compaction.cleaning",
        "or self._supersedes_nothing(header):",
        "or header.is_control:",
        ("tests/compaction/test_cleaning.py",),
    ),
    Bug(
        "a checkpoint names a segment whose own name may be lost",
        "semel.storage.contents",
        "        self._segment_files.grown.add(partition.directory)\n",
        "",
        ("tests/crash/test_compaction_crashes.py",),
    ),
)
