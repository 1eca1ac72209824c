"""The planted bugs of reads: nobody waits for the disk; and as a cache of a store, what goes comes again."""

from typing import Final

from saboteurs.planting import Bug

_CACHE: Final = "tests/log/replica/test_cache.py"
_COLD: Final = "tests/log/replica/test_cold_fetch.py"
_CONTENTS: Final = "tests/log/replica/test_contents.py"

CACHE_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "what an earlier life has left on the disk is read unseen",
        "semel.log.replica.cached_files:CachedFiles.check",
        "part.state != HERE",
        "part.state == GONE",
        (f"{_CACHE}::test_nothing_on_the_disk_is_believed_before_its_digest_was_compared",),
    ),
    Bug(
        "what has just come is freed with what is next to it",
        "semel.log.replica.cached_files:Row.to_free_with",
        "before.extent.position in coming",
        "False",
        (f"{_CACHE}::test_what_comes_is_not_freed_together_with_its_neighbour",),
    ),
    Bug(
        "what is being compared is freed",
        "semel.log.replica.cached_files:CachedFiles.choose",
        "part.extent.position not in self.coming.get(path, ())",
        "True",
        (f"{_CACHE}::test_what_is_compared_with_its_digest_is_not_freed_meanwhile",),
    ),
    Bug(
        "what was read last is freed first",
        "semel.log.replica.cached_files:CachedFiles.choose",
        "sorted(known)",
        "sorted(known, reverse=True)",
        (f"{_CACHE}::test_what_was_read_last_stays",),
    ),
    Bug(
        "a standby leaves in the store what is about to be deleted there",
        "semel.log.replica.checkpoints:StoreCheckpoints._contents_of",
        "self._cache.files.unnamed(contents)",
        "[]",
        (f"{_CACHE}::test_a_standby_fetches_what_it_has_freed_before_its_object_is_deleted",),
    ),
    Bug(
        "one object that is damaged keeps a broker from its checkpoints",
        "semel.log.replica.uploads:Uploads.contents",
        "error.key in self._unreadable",
        "True",
        (f"{_CACHE}::test_an_object_that_is_damaged_or_gone_is_named_and_keeps_nobody_from_a_checkpoint",),
    ),
    Bug(
        "small parts stay as many as they are",
        "semel.log.replica.contents:_merged",
        "2 * max(sizes) <= sum(sizes)",
        "False",
        (f"{_CONTENTS}::test_small_extents_become_one_and_no_byte_is_uploaded_often",),
    ),
    Bug(
        "a consumer of what the store has lost is sent to another offset",
        "semel.log.broker.apis.lookup:refused_read",
        "ErrorCode.NOT_LEADER_OR_FOLLOWER",
        "ErrorCode.OFFSET_OUT_OF_RANGE",
        (f"{_COLD}::test_what_the_store_does_not_have_any_more_is_an_error_after_which_a_consumer_goes_on",),
    ),
    Bug(
        "a fetch waits for the store as long as that takes",
        "semel.log.broker.apis.fetch:_ParkedFetch.serve",
        "wait_ms > 0",
        "True",
        (f"{_COLD}::test_a_fetch_that_would_wait_too_long_for_the_store_is_answered_with_nothing",),
    ),
    Bug(
        "what a producer appends makes a fetch read what the thread has not brought yet",
        "semel.log.broker.apis.harvest:WaitingFetch.bring",
        "self._next_patience = harvest.next_patience",
        "self._patience = self._next_patience = harvest.next_patience",
        ("tests/log/broker/test_cold_reads.py", "-k", "another_partition"),
    ),
    Bug(
        "old records are not brought for a fetch that waits for more than it has",
        "semel.log.broker.apis.fetch:_ParkedFetch.wait",
        "harvest.cold and self._watched",
        "harvest.cold and self._watched and not harvest.bytes",
        ("tests/log/broker/test_cold_reads.py", "-k", "more_than_it_has"),
    ),
    Bug(
        "an object that the store does not hand out keeps all others from coming",
        "semel.log.replica.cache:Cache._fetch",
        "await self._read(path, extent)",
        "await answered(partial(self._read, path, extent))",
        (f"{_CACHE}::test_objects_that_the_store_does_not_hand_out_keep_no_others_from_coming",),
    ),
    Bug(
        "a standby frees what is about to be deleted while it fetches the rest",
        "semel.log.replica.cached_files:CachedFiles.unnamed",
        "not covering.covers(part.extent.size, part.extent.position)",
        "part.state != HERE and not covering.covers(part.extent.size, part.extent.position)",
        (f"{_CACHE}::test_a_standby_frees_nothing_that_is_about_to_be_deleted_while_it_fetches_the_rest",),
    ),
    Bug(
        "what no checkpoint names any more counts as a part of the cache for ever",
        "semel.log.replica.cached_files:CachedFiles.name",
        "self._forget(path)",
        "pass",
        (_CONTENTS, "-k", "no_checkpoint_names"),
    ),
    Bug(
        "what is on the disk of an extent that is half there is not counted",
        "semel.log.replica.cached_files:CachedFiles._part",
        "GONE if states == {GONE} else UNSEEN",
        "GONE",
        (f"{_CACHE}::test_an_extent_that_is_half_here_counts_as_space_that_may_be_freed",),
    ),
    Bug(
        "a write on a full disk takes nothing of the cache",
        "semel.log.broker.journal_pump:JournalPump.write_refused",
        "self._checkpoints.make_room()",
        "None",
        (f"{_COLD}::test_a_write_that_finds_no_space_takes_some_of_the_cache",),
    ),
    Bug(
        "the index of an old segment is read from the disk on the event loop",
        "semel.log.storage.segment_files:SegmentFiles.cold_index",
        "segment.index is not None or segment.path in self._indexes",
        "True",
        ("tests/log/broker/test_cold_reads.py",),
    ),
    Bug(
        "the batches before the offset that a consumer begins at are read from the disk on the event loop",
        "semel.log.storage.partition_log:PartitionLog.cold_stretch",
        "self._known_place_of(segment, offset) is None",
        "False",
        ("tests/log/broker/test_cold_reads.py",),
    ),
    Bug(
        "a broker that stood still calls damage what its successor has deleted",
        "semel.log.broker.compactor:Compactor._break_off",
        "isinstance(error, Unreadable) and error.is_gone",
        "False",
        (f"{_COLD}::test_a_pass_that_does_not_get_its_records_from_the_store_is_made_later",),
    ),
)
