"""The planted bugs of the journal in a store: what would lose something acknowledged over a takeover, have two brokers
serve at once, or keep a standby from going on."""

from typing import Final

from saboteurs.planting import Bug

_CHECKPOINTS: Final = "tests/replica/test_store_checkpoints.py"
_STARTS: Final = "tests/replica/test_store_starts.py"
_MOVE: Final = "tests/replica/test_move.py"
_CONTENTS: Final = "tests/replica/test_contents.py"
_BROKER: Final = "tests/replica/test_broker_on_store.py"
_HISTORY: Final = "tests/replica/test_slot_history.py"
_LEASE: Final = "tests/replica/test_lease.py"
_WRITER: Final = "tests/replica/test_slot_writer.py"

REPLICA_BUGS: Final[tuple[Bug, ...]] = (
    # -- what a client may hear ---------------------------------------------------------------------------------------
    Bug(
        "a client hears that a partition takes part in its transaction before a takeover would know it",
        "semel.broker.apis.add_partitions_to_txn:handle",
        "after=broker.pump.end_to_outlive_kills",
        "",
        (f"{_BROKER}::test_no_client_is_told_of_a_part_of_its_transaction_that_a_kill_would_take",),
    ),
    Bug(
        "a client hears that offsets take part in its transaction before a takeover would know it",
        "semel.broker.apis.add_offsets_to_txn:handle",
        "after=broker.pump.end_to_outlive_kills",
        "",
        (f"{_BROKER}::test_no_client_is_told_of_a_part_of_its_transaction_that_a_kill_would_take",),
    ),
    # -- slots and fences ---------------------------------------------------------------------------------------------
    Bug(
        "a slot counts before those before it are there",
        "semel.replica.writer:SlotWriter._settle",
        "next(iter(self._under_way.items()))",
        "min(self._under_way.items(), key=lambda item: not item[1][2])",
        (f"{_WRITER}::test_a_slot_counts_when_all_before_it_are_there",),
    ),
    Bug(
        "a broker takes whatever lies in its slot for its own",
        "semel.replica.writer:create_surely",
        "(await store.get(key)).body == content",
        "True",
        (f"{_WRITER}::test_all_that_a_fenced_broker_has_under_way_is_lost_together",),
    ),
    Bug(
        "a broker takes a lost request for a takeover",
        "semel.replica.writer:create_surely",
        "except Exists: pass",
        "except (Exists, Unsure): pass",
        (f"{_WRITER}::test_a_lost_answer_is_no_fence_and_no_second_slot",),
    ),
    Bug(
        "a broker has more slots under way than are closed behind a fence",
        "semel.replica.writer:SlotWriter.is_busy",
        "len(self._under_way) >= DEPTH",
        "len(self._under_way) > DEPTH",
        (f"{_WRITER}::test_a_slot_counts_when_all_before_it_are_there",),
    ),
    Bug(
        "a broker that was fenced sends its next slot",
        "semel.replica.writer:SlotWriter._settle",
        "self._failed = True",
        "pass",
        (f"{_WRITER}::test_all_that_a_fenced_broker_has_under_way_is_lost_together",),
    ),
    Bug(
        "a broker that stands by sends slots",
        "semel.replica.writer:SlotWriter.is_busy",
        "not self._is_open",
        "False",
        (f"{_WRITER}::test_who_stands_by_writes_nothing",),
    ),
    Bug(
        "a broker is active before its fence is there",
        "semel.replica.reader:SlotReader.take_over",
        "await create_surely(self._store, key_of(head.slot), encoded)",
        "asyncio.ensure_future(create_surely(self._store, key_of(head.slot), encoded))",
        (f"{_WRITER}::test_of_two_that_take_over_at_once_each_has_an_epoch_of_its_own",),
    ),
    Bug(
        "a takeover does not raise the epoch",
        "semel.core.slots:History.fence",
        "self.epoch + 1",
        "max(self.epoch, 1)",
        (f"{_WRITER}::test_of_two_that_take_over_at_once_each_has_an_epoch_of_its_own",),
    ),
    Bug(
        "the log is not told of the epoch of a takeover",
        "semel.replica.reader:SlotReader.take_over",
        "self._log.enter_epoch(head.epoch)",
        "pass",
        (f"{_WRITER}::test_all_that_a_fenced_broker_has_under_way_is_lost_together",),
    ),
    Bug(
        "the slots behind a fence are read",
        "semel.core.slots:History.take",
        "DEPTH if is_fence else 1",
        "1",
        (f"{_HISTORY}::test_behind_a_fence_as_many_slots_are_closed_as_a_writer_may_have_under_way",),
    ),
    Bug(
        "the nonce of a slot is not compared",
        "semel.core.slots:History.take",
        "head.nonce != self._nonce",
        "False",
        (f"{_HISTORY}::test_two_brokers_that_believe_to_have_the_same_epoch_are_told_apart",),
    ),
    Bug(
        "a reader believes an older broker behind a fence",
        "semel.core.slots:History.take",
        "head.epoch < self.epoch",
        "False",
        (f"{_HISTORY}::test_an_older_broker_is_not_believed_behind_a_fence",),
    ),
    Bug(
        "a slot does not say what came before it",
        "semel.core.slots:History.take",
        "head.previous != self.last",
        "False",
        (f"{_HISTORY}::test_a_history_that_was_replaced_is_noticed_at_its_next_slot",),
    ),
    Bug(
        "a reader believes the entries of a damaged slot",
        "semel.replica.slot:decode",
        "digest_of([body]) != head.body_digest",
        "False",
        (f"{_HISTORY}::test_a_damaged_byte_anywhere_is_found",),
    ),
    Bug(
        "what waits for the store is not bounded",
        "semel.replica.journal:SlotJournal.append",
        "pending + len(entry) > self._pending_bytes_max",
        "False",
        (f"{_WRITER}::test_what_waits_for_the_store_is_bounded",),
    ),
    Bug(
        "a broker uses a store in which more slots are closed behind a fence",
        "semel.replica.membership:read_cluster_id",
        "(version, depth) != (VERSION, DEPTH)",
        "version != VERSION",
        (f"{_BROKER}::test_a_store_of_another_version_or_depth_is_refused",),
    ),
    # -- the lease ----------------------------------------------------------------------------------------------------
    Bug(
        "the lease follows the date",
        "semel.replica.lease:boot_seconds",
        'time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))',
        "time.time()",
        (f"{_LEASE}::test_nobody_can_set_the_clock_of_the_lease",),
    ),
    Bug(
        "a standby counts the time in which it did not look",
        "semel.replica.lease:LeaseWatch.look",
        "min(now - looked_at, 2 * self.pause_seconds)",
        "now - looked_at",
        (f"{_LEASE}::test_time_in_which_a_standby_did_not_look_does_not_count",),
    ),
    Bug(
        "two standbys get the lease of one",
        "semel.replica.lease:LeaseHolder._put",
        "return False",
        "pass",
        (f"{_LEASE}::test_of_two_standbys_one_gets_the_lease",),
    ),
    Bug(
        "a lost answer is the loss of the lease",
        "semel.replica.lease:LeaseHolder.renew",
        "decode_lease(content).nonce == self._next.nonce and await self._put(now)",
        "False",
        (f"{_LEASE}::test_a_lost_answer_is_not_the_loss_of_the_lease",),
    ),
    Bug(
        "a broker serves on after it has released its lease",
        "semel.replica.lease:LeaseHolder._put",
        "not self._next.is_released",
        "True",
        (f"{_LEASE}::test_a_lease_that_was_released_is_over_at_once",),
    ),
    Bug(
        "a standby takes over while the lease is held",
        "semel.replica.membership:Membership._follow",
        "watch.is_over",
        "True",
        (f"{_BROKER}::test_what_was_acknowledged_is_there_again_on_an_empty_disk",),
    ),
    Bug(
        "a broker goes on when another one has its lease",
        "semel.replica.membership:Membership.keep_lease",
        "not is_ours",
        "False",
        (f"{_BROKER}::test_a_broker_whose_lease_is_somebody_elses_ends_as_fenced",),
        10.0,
    ),
    # -- what a standby answers ---------------------------------------------------------------------------------------
    Bug(
        "a standby answers Produce and Fetch",
        "semel.broker.broker:Broker.serve",
        "exchange.api_key in ANSWERED",
        "True",
        (f"{_BROKER}::test_who_stands_by_takes_and_shows_no_records",),
    ),
    Bug(
        "a broker answers after its lease has ended",
        "semel.broker.role:Role.may_serve",
        "self._membership.may_serve",
        "True",
        (f"{_BROKER}::test_a_broker_that_cannot_keep_its_lease_serves_nobody_until_it_can",),
        10.0,
    ),
    # -- checkpoints and deletion -------------------------------------------------------------------------------------
    Bug(
        "what the floor will allow is deleted before the floor is raised",
        "semel.replica.checkpoints:StoreCheckpoints._keep",
        "pieces = await self._uploads.state(job, history, contents)",
        "pieces = await self._uploads.state(job, history, contents)\n"
        'await self._clear(Floor(epoch, slot, floor.slot, ()), history["fences"], {*contents.objects})',
        (f"{_CHECKPOINTS}::test_a_store_does_not_grow_with_what_was_written_and_is_gone",),
    ),
    Bug(
        "slots are deleted that only the newest checkpoint covers",
        "semel.replica.checkpoints:StoreCheckpoints._keep",
        "max(floor.deleted_below, floor.slot)",
        "slot",
        (f"{_STARTS}::test_a_standby_that_keeps_up_is_not_overtaken",),
    ),
    Bug(
        "slots are deleted that no checkpoint covers",
        "semel.replica.checkpoints:StoreCheckpoints._waste",
        "slot < floor.deleted_below",
        "slot <= floor.slot",
        (f"{_CHECKPOINTS}::test_a_crash_between_any_two_calls_loses_nothing_and_leaves_garbage_that_goes_later",),
    ),
    Bug(
        "fences are deleted",
        "semel.replica.checkpoints:StoreCheckpoints._waste",
        "slot not in fences",
        "True",
        (f"{_CHECKPOINTS}::test_a_store_does_not_grow_with_what_was_written_and_is_gone",),
    ),
    Bug(
        "objects are deleted that a checkpoint names",
        "semel.replica.checkpoints:StoreCheckpoints._keep",
        "*contents.objects, *before.objects",
        "*(), *()",
        (f"{_CHECKPOINTS}::test_what_the_checkpoint_before_names_stays_until_there_is_another",),
    ),
    Bug(
        "the checkpoint before loses its objects while newcomers read it",
        "semel.replica.checkpoints:StoreCheckpoints._keep",
        "(piece.key for piece in raised.pieces + floor.pieces)",
        "(piece.key for piece in raised.pieces)",
        (f"{_CHECKPOINTS}::test_what_the_checkpoint_before_names_stays_until_there_is_another",),
    ),
    Bug(
        "a broker that was replaced deletes the objects of its successor",
        "semel.replica.checkpoints:StoreCheckpoints._waste",
        "_epoch_of(key) <= floor.epoch",
        "True",
        (f"{_CHECKPOINTS}::test_a_broker_that_was_replaced_deletes_nothing_of_its_successor",),
    ),
    Bug(
        "a broker that was replaced puts back an older floor",
        "semel.replica.checkpoints:StoreCheckpoints._check",
        "floor.epoch > epoch",
        "False",
        (
            f"{_CHECKPOINTS}::test_a_broker_that_was_replaced_in_the_middle_of_a_checkpoint_takes_nothing_from_its_successor",
        ),
    ),
    Bug(
        "a broker whose floor was refused believes that it is there",
        "semel.replica.checkpoints:StoreCheckpoints._raise",
        "(await answered(lambda: read_floor(self._store)))[0] == raised",
        "True",
        (f"{_CHECKPOINTS}::test_a_broker_that_was_replaced_may_still_raise_the_floor_before_its_successor_does",),
    ),
    Bug(
        "a checkpoint is named before what it covers is durable",
        "semel.replica.writer:SlotWriter.history_at",
        "self._journal.synced < cut",
        "self._journal.taken < cut",
        (f"{_CHECKPOINTS}::test_the_floor_waits_until_all_that_the_checkpoint_covers_is_durable",),
    ),
    Bug(
        "a slot holds what is before a checkpoint and what is behind it",
        "semel.replica.journal:SlotJournal.take",
        "self.taken + size != self.cut",
        "True",
        (f"{_CHECKPOINTS}::test_what_is_appended_while_a_checkpoint_is_begun_is_in_a_slot_behind_it",),
    ),
    Bug(
        "a checkpoint is named before its objects are whole",
        "semel.replica.uploads:Uploads.contents",
        "await asyncio.gather(*(self._batch(job.files, batch, contents, epoch) for batch in some))",
        "asyncio.gather(*(self._batch(job.files, batch, contents, epoch) for batch in some))",
        (f"{_STARTS}::test_a_new_machine_starts_from_the_checkpoint_and_what_came_after",),
    ),
    Bug(
        "a newcomer begins one slot behind the checkpoint",
        "semel.core.slots:History.from_record",
        'record["next_slot"]',
        'record["next_slot"] + 1',
        (f"{_STARTS}::test_a_new_machine_starts_from_the_checkpoint_and_what_came_after",),
    ),
    Bug(
        "the digest of what is fetched is not compared",
        "semel.replica.restore:_part",
        "digest_of([part]).hex() != extent.digest",
        "False",
        (f"{_STARTS}::test_a_damaged_or_lost_object_is_named_and_refused",),
    ),
    Bug(
        "the digest of a checkpoint is not compared",
        "semel.replica.restore:read_checkpoint",
        "digest_of([body]).hex() != digest",
        "False",
        (f"{_STARTS}::test_a_damaged_or_lost_object_is_named_and_refused",),
    ),
    Bug(
        "a cache is believed without a look at its bytes",
        "semel.replica.restore:has",
        "digest_of([content]).hex() == extent.digest",
        "True",
        (f"{_STARTS}::test_a_broker_that_starts_again_on_its_cache_fetches_only_what_it_lacks",),
    ),
    Bug(
        "files of the predecessor are believed to be one's own",
        "semel.replica.checkpoints:StoreCheckpoints._contents_of",
        'await self._uploads.same(files, Contents.from_record(state["contents"]))',
        'Contents.from_record(state["contents"])',
        (f"{_STARTS}::test_files_that_differ_from_those_of_the_broker_before_are_uploaded_again",),
    ),
    Bug(
        "a reader that was overtaken takes over",
        "semel.replica.reader:SlotReader._verify",
        "floor.deleted_below > self._verified",
        "False",
        (f"{_STARTS}::test_a_reader_that_a_deletion_has_overtaken_says_so_and_never_takes_over",),
    ),
    Bug(
        "a lost floor is taken for a new store",
        "semel.replica.floor:read_floor",
        'raise BrokenHistory(f"{store.describe()}: the object {FLOOR_KEY!r} was there and is gone") from None',
        'return FIRST_FLOOR, ""',
        (f"{_STARTS}::test_a_store_that_has_lost_what_stands_in_it_from_the_beginning_is_refused",),
    ),
    Bug(
        "an object is kept for the smallest part of it",
        "semel.replica.contents:kept",
        "2 * needed[key] >= size",
        "True",
        (f"{_CONTENTS}::test_an_object_of_which_less_than_half_is_needed_is_given_up",),
    ),
    Bug(
        "what a checkpoint keeps is uploaded again",
        "semel.replica.contents:missing",
        "extent.position > end",
        "True",
        (f"{_CONTENTS}::test_what_has_grown_is_uploaded_and_what_was_there_is_not",),
    ),
    # -- moving a log -------------------------------------------------------------------------------------------------
    Bug(
        "a log is given up in its directory before it is in the store",
        "semel.replica.move:move_to_store",
        "await _check_empty(store)",
        "await _check_empty(store); files.remove(checkpoint.NAME)",
        (f"{_MOVE}::test_a_move_that_is_refused_anywhere_leaves_the_log_where_it_is",),
    ),
    Bug(
        "a log is moved over another one",
        "semel.replica.move:_check_empty",
        'raise BrokenHistory(f"{where}: holds a log already")',
        "pass",
        (f"{_MOVE}::test_what_cannot_be_moved_is_named",),
    ),
    Bug(
        "a log that was moved can go on in its directory",
        "semel.replica.move:move_to_store",
        "files.remove(checkpoint.NAME)",
        "pass",
        (f"{_MOVE}::test_the_directory_of_a_log_that_was_moved_is_its_cache_and_can_begin_no_other",),
    ),
    Bug(
        "what a move has put into a store is not compared",
        "semel.replica.restore:check_objects",
        '_part(path, extent, body, f"{store.describe()}: {key}")',
        "pass",
        (f"{_MOVE}::test_a_store_that_has_changed_a_byte_of_a_moved_log_does_not_get_it",),
    ),
)
