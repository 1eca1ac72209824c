"""Planted in what finds and names damage and outages: each serves what is wrong, or tells nobody."""

from __future__ import annotations

from typing import Final

from saboteurs.planting import Bug

_OUTAGE: Final = "tests/log/replica/test_store_outage.py"
_SCRUB: Final = "tests/log/broker/test_scrub.py"
_OBJECTS: Final = "tests/log/replica/test_object_scrub.py"
_BACKUP: Final = "tests/log/replica/test_backup.py"
_SALVAGE: Final = "tests/ui/cli/test_salvage.py"
_UPLOADS: Final = "tests/log/replica/test_checked_uploads.py"
_CHECKPOINTS: Final = "tests/log/broker/test_checked_checkpoints.py"
_REPAIR: Final = "tests/log/storage/test_repair.py"
_COLD: Final = "tests/log/replica/test_cold_fetch.py"

DAMAGE_BUGS: Final = (
    Bug(
        "a start on a store begins again and again over what is no file",
        "semel.log.store.directory:DirectoryStore.create",
        "path.is_dir() or (path.is_symlink() and not path.exists())",
        "False",
        ("tests/log/store/test_directory.py::test_what_is_no_object_in_the_place_of_one_is_refused_in_one_line",),
    ),
    Bug(
        "a backup that has lost a part of an object is refused from then on",
        "semel.log.replica.backup:_Copy._put",
        "slot is not None and _is_slot(slot, there.body)",
        "True",
        (f"{_BACKUP}::test_what_a_backup_has_lost_comes_from_the_log_again",),
    ),
    Bug(
        "a damaged checkpoint stays in a backup",
        "semel.log.replica.backup:_Copy._copy_pieces",
        "there is None or digest_of([there]).hex() != digest",
        "there is None",
        (f"{_BACKUP}::test_what_a_backup_has_lost_comes_from_the_log_again",),
    ),
    Bug(
        "a backup takes slots that a checkpoint has deleted for the end of the log",
        "semel.log.replica.backup:_Copy.run",
        "now.deleted_below > end",
        "False",
        (f"{_BACKUP}::test_checkpoints_that_replace_what_is_being_copied_leave_no_gap",),
    ),
    Bug(
        "a backup names a checkpoint before it has its objects",
        "semel.log.replica.backup:_Copy.run",
        "contents = await self._contents_of(floor)",
        "contents = await self._contents_of(floor); await self._set_floor(backup)",
        (
            f"{_BACKUP}::test_a_copy_that_ends_between_any_two_calls_leaves_the_log_of_an_earlier_moment_and_goes_on_later",
        ),
    ),
    Bug(
        "a log that has gone another way is copied over the backup",
        "semel.log.replica.backup:_Copy._check_follows",
        "mine == theirs",
        "True",
        (f"{_BACKUP}::test_a_log_that_went_back_or_another_way_does_not_replace_what_the_backup_has",),
    ),
    Bug(
        "who asks for the topics waits for all that the store has not acknowledged",
        "semel.log.broker.apis.answers:shown_end",
        "broker.log.shown_end",
        "broker.log.end",
        (f"{_OUTAGE}::test_while_a_record_waits_for_the_store_the_topics_are_told_at_once",),
    ),
    Bug(
        "a topic is told before it is durable",
        "semel.log.broker.apis.answers:shown_end",
        "broker.log.shown_end",
        "0",
        (f"{_OUTAGE}::test_a_topic_is_told_only_when_it_is_durable",),
    ),
    Bug(
        "the end of an outage is told when only the lease can be written again",
        "semel.log.replica.health:StoreHealth._note_answer",
        "not self._failing_since",
        "True",
        (f"{_OUTAGE}::test_an_outage_is_told_after_a_second_and_at_ever_longer_intervals_and_so_is_its_end",),
    ),
    Bug(
        "a damaged segment is served up to its end",
        "semel.log.storage.partition_log:PartitionLog._locate",
        "position < min(end, right_end)",
        "position < end",
        (f"{_SCRUB}::test_readers_of_a_damaged_segment_are_told_and_all_others_are_served",),
    ),
    Bug(
        "a fetch goes on after the damage as if it had read it",
        "semel.log.storage.partition_log:PartitionLog._read",
        "files.right_until(segment)[1]",
        "segment.next_offset",
        (f"{_SCRUB}::test_a_reader_is_not_led_over_the_damage",),
    ),
    Bug(
        "a reader gets the batches of another place",
        "semel.log.storage.segment:whole_batches",
        "base < offset or delta < 0 or base + delta >= end_offset",
        "False",
        ("tests/log/broker/test_damage_met_by_readers.py",),
    ),
    Bug(
        "an empty page in a large answer is not looked for",
        "semel.log.storage.segment:look_right",
        "_EMPTY_PAGE not in bytes(data[::_SAMPLED_BYTES])",
        "True",
        ("tests/log/broker/test_damage_met_by_readers.py",),
    ),
    Bug(
        "a large answer has the batches of another place",
        "semel.log.storage.segment:look_right",
        "magic != MAGIC or base != offsets[slot]",
        "False",
        ("tests/log/broker/test_damage_met_by_readers.py",),
    ),
    Bug(
        "what a reader met on the disk is not fetched again",
        "semel.log.replica.cached_files:CachedFiles.doubt",
        "part.is_named and part.state == HERE",
        "False",
        ("tests/log/broker/test_damage_met_by_readers.py",),
    ),
    Bug(
        "a directory that is not mounted has nothing in it",
        "semel.log.store.directory:DirectoryStore._check_mounted",
        "not is_same",
        "False",
        ("tests/log/replica/test_refusing_store.py",),
    ),
    Bug(
        "a pass begins anew with each start",
        "semel.log.broker.scrubber:Scrubber.begin",
        "known or Scrub(self._runtime.clock.now_ms())",
        "Scrub(self._runtime.clock.now_ms())",
        (_SCRUB,),
    ),
    Bug(
        "a segment that was brought back stays marked",
        "semel.log.broker.scrubber:Scrubber._mark",
        "damaged.pop(segment.path, None)",
        "pass",
        (f"{_SCRUB}::test_damage_is_known_after_a_restart_until_the_segment_is_brought_back",),
    ),
    Bug(
        "what lies behind damage is taken for whole although its headers are others",
        "semel.log.storage.verification:proven_after",
        "digest == segment.digest",
        "True",
        (f"{_SALVAGE}::test_batches_behind_a_changed_header_are_not_proven",),
    ),
    Bug(
        "a repair keeps the damaged batch as well",
        "semel.log.storage.verification:proven_after",
        "crc32c(batch[CHECKED_FROM:]) == header.checksum",
        "True",
        (f"{_SALVAGE}::test_a_flipped_byte_costs_the_batch_that_has_it_and_no_other",),
    ),
    Bug(
        "readers are led over what a repair has given up",
        "semel.log.storage.verification:Verification.passed",
        "span[0] < span[1]",
        "False",
        (f"{_SCRUB}::test_readers_are_told_of_what_a_repair_has_given_up_and_read_on_behind_it",),
    ),
    Bug(
        "a damaged object is kept by the next checkpoint although the disk has its bytes",
        "semel.log.replica.uploads:Uploads.contents",
        "self.damaged - self._unreadable",
        "set()",
        (f"{_OBJECTS}::test_a_damaged_object_is_told_of_and_written_again_from_the_disk",),
    ),
    Bug(
        "a checkpoint uploads what the disk has, whatever that is",
        "semel.log.storage.verification:refuse",
        'raise Damaged(f"{files.describe(walk.path)}: {what}")',
        "pass",
        (f"{_UPLOADS}::test_what_the_disk_lost_before_a_checkpoint_is_not_lost_in_the_store",),
    ),
    Bug(
        "whole batches of an earlier write are uploaded",
        "semel.log.storage.verification:Walk.end",
        "self._digest != segment.digest",
        "False",
        (f"{_UPLOADS}::test_what_the_disk_lost_before_a_checkpoint_is_not_lost_in_the_store",),
    ),
    Bug(
        "which transactions were aborted is uploaded as the disk has it",
        "semel.log.storage.aborted_blocks:BlockWalk.take",
        "not _is_block(self._file.number + place // size, data[at : at + size])",
        "False",
        (f"{_UPLOADS}::test_which_transactions_were_aborted_is_not_lost_in_the_store_either",),
    ),
    Bug(
        "readers of committed records are not helped by the store, which knows what was aborted",
        "semel.log.storage.aborted_blocks:AbortedBlocks._read_for_reader",
        "not damage.doubt(lost.path, lost.position)",
        "True",
        (f"{_UPLOADS}::test_which_transactions_were_aborted_comes_from_the_store_again_if_the_disk_has_lost_it",),
    ),
    Bug(
        "a repair takes commits for aborts",
        "semel.log.storage.verification:aborted_in",
        "first is not None and not commits(batch)",
        "first is not None",
        (f"{_REPAIR}::test_which_transactions_were_aborted_is_found_again_in_the_records",),
    ),
    Bug(
        "a block of another place in the file is taken for the one that was written",
        "semel.log.storage.aborted_blocks:_checksum",
        "crc32c(content, crc32c(_NUMBER.pack(number)))",
        "crc32c(content)",
        (f"{_UPLOADS}::test_which_transactions_were_aborted_is_not_lost_in_the_store_either",),
    ),
    Bug(
        "a checkpoint of a directory frees the journal although the disk has lost what only the journal has",
        "semel.log.storage.checkpoint:CheckpointJob._check_written",
        "segment.path in self.damaged",
        "False",
        (f"{_CHECKPOINTS}::test_what_a_reader_has_met_is_not_lost_with_the_next_checkpoint",),
    ),
    Bug(
        "a checkpoint of a directory does not miss a file that somebody has cut or replaced",
        "semel.log.storage.verification:check_on_disk",
        "only_if_short and size >= walk.size",
        "only_if_short",
        (f"{_CHECKPOINTS}::test_a_file_that_nobody_has_read_and_that_is_shorter_or_gone_is_missed",),
    ),
    Bug(
        "damage that no journal can mend ends the broker with its next checkpoint",
        "semel.log.storage.checkpoint:CheckpointJob._check_written",
        "self.before.get(segment.path, Proven(0, segment.base_offset, 0))",
        "Proven(0, segment.base_offset, 0)",
        (f"{_CHECKPOINTS}::test_what_a_checkpoint_has_already_keeps_no_broker_from_the_next_one",),
    ),
    Bug(
        "readers are told of damage that a start has written again",
        "semel.log.broker.scrubber:Scrubber._note",
        "not log.is_written_again(path)",
        "True",
        (f"{_CHECKPOINTS}::test_what_a_look_at_sealed_segments_has_found_is_not_lost_either",),
    ),
    Bug(
        "what the disk has lost of an object is uploaded again, and the object is given up",
        "semel.log.replica.uploads:Uploads._compare",
        "extent not in same",
        "False",
        (f"{_UPLOADS}::test_what_is_uploaded_again_comes_from_the_store_if_the_disk_has_lost_it",),
    ),
    Bug(
        "a checkpoint names no more of a segment than the disk has",
        "semel.log.replica.uploads:_planned",
        "max(sizes[segment.path], segment.size)",
        "sizes[segment.path]",
        (f"{_UPLOADS}::test_a_file_that_the_disk_has_cut_stays_whole_in_the_store",),
    ),
    Bug(
        "compaction copies a damaged batch that the store has whole",
        "semel.log.compaction.passes:Pass._rewrite_segment",
        "self.refuses_damage and not _is_intact(header, batch)",
        "False",
        (f"{_COLD}::test_a_pass_copies_no_damage_of_the_disk_but_what_the_store_has",),
    ),
    Bug(
        "compaction takes the offsets that the disk has",
        "semel.log.compaction.passes:Pass._batches",
        "digest != segment.digest",
        "False",
        (f"{_COLD}::test_a_pass_copies_no_damage_of_the_disk_but_what_the_store_has",),
    ),
    Bug(
        "what is damaged on the disk is served although the store has it whole",
        "semel.log.replica.cache:Cache.doubt_if_damaged",
        "self.files.note_unseen(path, extent)",
        "pass",
        (f"{_OBJECTS}::test_what_is_damaged_on_the_disk_alone_comes_from_the_store",),
    ),
    Bug(
        "who looks for a time at a damaged place tries again until its timeout",
        "semel.log.broker.apis.lookup:refused_read",
        "isinstance(error, Corrupt | Unreadable)",
        "isinstance(error, Unreadable)",
        ("tests/log/broker/test_damage_met_by_readers.py", "-k", "looks_for_a_time"),
    ),
    Bug(
        "a search that meets damage ends in a traceback",
        "semel.log.broker.apis.lookup:reading",
        "(OSError, Damaged, StoreError)",
        "OSError",
        ("tests/log/broker/test_damage_met_by_readers.py", "-k", "begins_at_a_damaged_time"),
    ),
    # -- where a person looks -----------------------------------------------------------------------------------------
    Bug(
        "what is lost is named where only the copy is",
        "semel.ui.cli.salvage:_mend",
        "lost.append(named(line))",
        "lost.append(line)",
        (f"{_SALVAGE}::test_a_flipped_byte_costs_the_batch_that_has_it_and_no_other",),
    ),
    Bug(
        "a way on is shown where nothing can be read",
        "semel.log.storage.examination:_examine_once",
        "isinstance(error, Lost | Misfit)",
        "True",
        ("tests/ui/cli/test_repair_command.py::test_damaged_bytes_are_not_set_aside",),
    ),
)
