"""The planted bugs of what stands between a decision and the journal, and of what is forgotten in time."""

from typing import Final

from saboteurs.planting import Bug

_DAMAGE: Final = "tests/damage/test_damage.py"
_CLEANING: Final = "tests/compaction/test_cleaning.py"
_STARTING: Final = "tests/storage/test_starting_again.py"
_TORN: Final = "tests/broker/test_torn_log.py"

JOURNAL_BUGS: Final[tuple[Bug, ...]] = (
    # -- an entry is judged before it is written, and one that broke off stops everything ---------------------------
    Bug(
        "an entry that cannot follow gets into the journal",
        "semel.storage.log:Log.commit",
        "self.state.check(entry)",
        "",
        ("tests/broker/test_torn_log.py::test_what_could_not_be_applied_is_not_written",),
    ),
    Bug(
        "a torn log makes a checkpoint of what memory holds",
        "semel.storage.log:Log.begin_checkpoint",
        "self._check_whole()",
        "",
        ("tests/broker/test_torn_log.py::test_a_torn_log_vouches_for_nothing",),
    ),
    Bug(
        "a torn log lets what it has be read",
        "semel.storage.log:Log.settle",
        "self._check_whole()",
        "",
        ("tests/broker/test_torn_log.py::test_a_torn_log_vouches_for_nothing",),
    ),
    Bug(
        "a broker serves on with a torn log",
        "semel.broker.journal_pump:JournalPump.follow",
        "self._log.torn is not None",
        "False",
        (_TORN,),
    ),
    # -- one member for each instance, one owner for each partition -------------------------------------------------
    Bug(
        "a member joins as a second instance",
        "semel.core.groups.consumer:ConsumerGroup._said_to_be",
        "instance_id not in (None, same.subscription.instance_id)",
        "False",
        ("tests/core/groups/test_consumer_confusion.py",),
    ),
    Bug(
        "a member of the classic protocol goes away for a while",
        "semel.core.groups.consumer:ConsumerGroup.decide_leave",
        "member.is_classic",
        "False",
        ("tests/core/groups/test_consumer.py::test_a_member_of_the_classic_protocol_is_never_away",),
    ),
    Bug(
        "a group that goes back gives out an epoch again that somebody had who left",
        "semel.core.groups.consumer_migration:downgrade",
        "max(group.target_epoch, *(member.epoch for member in members))",
        "max(member.epoch for member in members)",
        ("tests/core/groups/test_consumer_migration.py",),
    ),
    # -- downtime is nobody's silence -------------------------------------------------------------------------------
    Bug(
        "the absence of a broker counts as silence",
        "semel.core.silence:Silence.note_time",
        "self._add(now_ms - absent_ms, now_ms)",
        "pass",
        ("tests/core/test_silence.py",),
    ),
    Bug(
        "a marker alone tells of a first number",
        "semel.core.producers:is_bare",
        "state[9] >> 7 == 1",
        "False",
        ("tests/core/test_partition_transactions.py", "tests/core/test_producers.py"),
    ),
    # -- identity outlives a loss of power, whatever the durability -------------------------------------------------
    Bug(
        "a reservation of producer ids is lost with the power",
        "semel.storage.log:Log.commit",
        "isinstance(entry, ProducerIdsReserved | TransactionalIdClaimed)",
        "isinstance(entry, TransactionalIdClaimed)",
        ("tests/broker/test_lost_power.py",),
    ),
    Bug(
        "a claim of a transactional id is lost with the power",
        "semel.storage.log:Log.commit",
        "isinstance(entry, ProducerIdsReserved | TransactionalIdClaimed)",
        "isinstance(entry, ProducerIdsReserved)",
        ("tests/broker/test_lost_power.py::test_whoever_was_fenced_stays_fenced",),
    ),
    Bug(
        "what administrators have changed is lost with the power",
        "semel.storage.log:Log.commit",
        "isinstance(entry, AccessChange)",
        "False",
        ("tests/broker/test_lost_administration.py",),
    ),
    Bug(
        "an epoch that may have been handed out is handed out again",
        "semel.core.transaction_rules:TransactionRules.decide_init",
        "self._known.is_doubted(producer_id)",
        "False",
        ("tests/broker/test_lost_power.py",),
    ),
    Bug(
        "the leader's epoch stays where records may be lost",
        "semel.storage.recovery:recover",
        "state.partitions.leader_epoch += 1",
        "",
        ("tests/broker/test_lost_power.py::test_a_consumer_beyond_the_cut_can_tell",),
    ),
    # -- a deletion stays as long as there is something to delete ---------------------------------------------------
    Bug(
        "a mark of deletion goes though a batch before it was not looked at",
        "semel.compaction.passes:Pass._kept",
        "self.unopened_from == _NOWHERE",
        "True",
        (_CLEANING,),
    ),
    Bug(
        "a segment goes without a look though a batch in it was not noted",
        "semel.compaction.passes:Pass._survey_keys",
        "noted_bytes == segment.size > 0",
        "noted_bytes > 0",
        (_CLEANING,),
    ),
    Bug(
        "a mark of deletion goes whose key was not noted",
        "semel.compaction.rewrite:_surviving",
        "last_offset == base_offset + offset_delta",
        "True",
        (_CLEANING,),
    ),
    Bug(
        "who waits for a generation that cannot follow is never answered",
        "semel.broker.classic_groups:ClassicGroupCoordinator._carry_out",
        "(OSError, ValueError)",
        "(OSError, KeyError)",
        ("tests/broker/apis/test_classic_groups.py", "-k", "follow_on"),
    ),
    Bug(
        "an overdue transaction that breaks off starves those after it",
        "semel.broker.alarm:Deadlines.pass_time",
        "Exception",
        "KeyError",
        ("tests/broker/test_transaction_timeouts.py", "-k", "behind"),
        seconds_max=15,
    ),
    Bug(
        "what is set on a group is not in the checkpoint",
        "semel.core.groups.groups:Groups.restore",
        'snapshot.get("configs", {})',
        "{}",
        ("tests/broker/apis/test_configuration_apis.py", "-k", "outlives"),
    ),
    # -- room for producers: shared out, and given back by time alone ------------------------------------------------
    Bug(
        "an address gets all the room that there is",
        "semel.core.shares:Shares.check",
        "taken + 2 * count - 1 > free",
        "False",
        (
            "tests/core/test_shares_of_addresses.py",
            "tests/broker/test_shares.py",
            "-k",
            "room or stranger or greed or address",
        ),
    ),
    Bug(
        "an address gets all the groups that there may be",
        "semel.broker.members:Members.founding",
        "self._shares.charge(1, address, now_ms, horizon_ms)",
        "pass",
        ("tests/broker/test_shares.py", "-k", "very_many_groups"),
    ),
    Bug(
        "an address gets all the transactional ids that there may be",
        "semel.broker.transactions:TransactionCoordinator.claim_in_steps",
        "self._ids.charge(1, address, now_ms, horizon_ms)",
        "pass",
        ("tests/broker/test_shares.py", "-k", "claims_very_many"),
    ),
    Bug(
        "partitions that are announced are charged to nobody",
        "semel.broker.transactions:TransactionCoordinator.add_partitions",
        "self._state.producer_shares.charge(new_states, address, now_ms, self._state.silence.horizon_ms)",
        "pass",
        ("tests/broker/test_shares.py", "-k", "stranger"),
    ),
    Bug(
        "a checkpoint forgets who took the room for producers",
        "semel.core.state:State.restore",
        'snapshot.get("producer_room", ())',
        "()",
        ("tests/storage/test_shares_after_restart.py",),
    ),
    # -- on macOS a sync reaches the disk, and one that failed stays failed -------------------------------------------
    Bug(
        "a sync on macOS leaves the bytes in the cache of the drive",
        "semel.storage.files:_sync_fully",
        "fcntl.fcntl(descriptor, _F_FULLFSYNC)",
        "os.fsync(descriptor)",
        ("tests/storage/test_macos.py",),
    ),
    Bug(
        "a sync on macOS that failed is tried another way",
        "semel.storage.files:_sync_fully",
        "error.errno not in _NO_FULL_SYNC",
        "False",
        ("tests/storage/test_macos.py",),
    ),
    # -- what others do to the directory ----------------------------------------------------------------------------
    Bug(
        "a spare file that is not there keeps the journal from going on",
        "semel.storage.journal:Journal._spare_at",
        "(FileNotFoundError, IsADirectoryError)",
        "BlockingIOError",
        ("tests/storage/test_journal.py", "-k", "two_spares_of_one or to_make_space"),
    ),
    # -- a start misses what is gone ---------------------------------------------------------------------------------
    Bug(
        "a start does not ask how far the journal was durable",
        "semel.storage.journal:missing_after",
        "note.durable - position",
        "0",
        (_DAMAGE,),
    ),
    Bug(
        "a sync is not noted beside the journal",
        "semel.storage.journal:SyncJob.run",
        "self.notes.note(self.target, is_synced=has_new_file)",
        "pass",
        (_DAMAGE,),
    ),
    Bug(
        "a journal file that ends too early is no damage, although no power was lost",
        "semel.storage.journal:_refuse_loss",
        "goes_on.kind == _KIND_ROLL",
        "False",
        (_DAMAGE,),
    ),
    Bug(
        "a missing journal is that of a young log",
        "semel.storage.journal:read",
        "position == 0 and not starts and not note.has_log",
        "not starts",
        (_DAMAGE,),
    ),
    Bug(
        "an older checkpoint of a clean stop is taken for the newest",
        "semel.storage.recovery:entries_after",
        "journal.missing_after(note, bookmark.position)",
        "''",
        (_DAMAGE,),
    ),
    Bug(
        "the entries of another broker are taken for those of this one",
        "semel.storage.recovery:recover",
        "crc32c(new_cluster_id.encode())",
        "0",
        (_DAMAGE,),
    ),
    Bug(
        "a start does not compare the segments with the checkpoint",
        "semel.storage.verification:_fault_in",
        "digest == segment.digest",
        "True",
        (_DAMAGE,),
    ),
    Bug(
        "a start deletes the files that no state claims",
        "semel.storage.aside:Aside.move",
        "self._files.rename(path, target)",
        "self._files.remove(path)",
        (_DAMAGE,),
    ),
    Bug(
        "the note of a log is not durable before its first checkpoint",
        "semel.storage.end_notes:begin_notes",
        "notes.note(0, is_synced=True)",
        "pass",
        ("tests/crash/test_matrix.py",),
    ),
    Bug(
        "an empty log hides the records whose checkpoint is gone, and the note beside the journal with it",
        "semel.storage.recovery:refuse_lost_checkpoint",
        "any(_partition_directories(files, topic) for topic in _topic_directories(files))",
        "False",
        (_STARTING, "-k", "checkpoint_is_gone"),
    ),
    Bug(
        "a start puts away what others put into the directory",
        "semel.storage.recovery:put_away_strangers",
        "_OWN_FILE.fullmatch(name)",
        "True",
        (_STARTING, "-k", "others_put"),
    ),
    Bug(
        "whoever writes gets the space that is kept for a checkpoint",
        "semel.storage.checkpoint:write",
        "files.rename(_RESERVE, _UNFINISHED)",
        "files.remove(_RESERVE)",
        ("tests/storage/test_checkpoint.py", "-k", "nobody_else"),
    ),
    Bug(
        "a large checkpoint has no more space kept for it than a small one",
        "semel.storage.checkpoint:_keep_reserve",
        "checkpoint_bytes + RESERVE_BYTES",
        "RESERVE_BYTES",
        ("tests/storage/test_checkpoint.py", "-k", "large_one"),
    ),
    Bug(
        "a second broker writes where somebody removed the file of the lock",
        "semel.storage.tree_lock:TreeLock.take",
        "((f'{root}/lock', os.O_RDWR | os.O_CREAT), (root, os.O_RDONLY))",
        "((f'{root}/lock', os.O_RDWR | os.O_CREAT),)",
        ("tests/storage/test_files.py", "-k", "stays_locked"),
    ),
    Bug(
        "the files of the program around a broker are not counted",
        "semel.broker.open_files:shares_of_open_files",
        "allowed - _open_now()",
        "allowed",
        ("tests/broker/test_open_files.py", "-k", "leave_files"),
    ),
    Bug(
        "a file that cannot be opened now counts as a failed sync",
        "semel.storage.files:sync",
        "error.errno in OUT_OF_FILES",
        "False",
        ("tests/broker/test_open_files.py",),
    ),
)
