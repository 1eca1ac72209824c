"""The planted bugs of the table of producers: who is at rest in a page stays on record, once and unchanged."""

from typing import Final

from saboteurs.planting import Bug

_TABLE = ("tests/log/core/test_producer_table.py",)
_PAGES = ("tests/log/storage/test_producer_pages.py",)

TABLE_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "a producer that is heard again stays in its page, too",
        "semel.log.core.producer_table:Producers._take",
        "self._replace(number, page.without(slot))",
        "pass",
        _TABLE,
    ),
    Bug(
        "a page does not know that one of its producers was silent for longer",
        "semel.log.core.producer_table:Page.with_one",
        "min(self.oldest_ms, heard_of(packed))",
        "self.oldest_ms",
        _TABLE,
    ),
    Bug(
        "a window with a gap in its numbers is packed as if it had none",
        "semel.log.core.producer_table:pack",
        "not are_consecutive",
        "False",
        _TABLE,
    ),
    Bug(
        "the distance between two batches leaves out the records of the first",
        "semel.log.core.producer_table:unpack",
        "numbers[slot - 1] + numbers[count + slot - 1]",
        "numbers[count + slot - 1]",
        _TABLE,
    ),
    Bug(
        "each search for silent producers begins at the first page",
        "semel.log.core.producer_table:Producers.forget_silent",
        "count == at_most",
        "count == at_most and not setattr(self, '_next_page', 0)",
        (f"{_TABLE[0]}::test_a_search_that_has_found_enough_goes_on_where_it_stopped",),
    ),
    Bug(
        "a new producer has to split a page that is full",
        "semel.log.core.producer_table:Producers._put",
        "slot == len(page)",
        "False",
        (f"{_TABLE[0]}::test_pages_of_producers_that_came_one_after_the_other_are_full",),
    ),
    Bug(
        "each producer that comes with a falling id has a page of its own",
        "semel.log.core.producer_table:Producers._put_first",
        "following is not None and len(following) < self._bounds.page",
        "False",
        (f"{_TABLE[0]}::test_producers_that_come_with_falling_ids_share_pages",),
    ),
    Bug(
        "a checkpoint leaves out the producers at rest",
        "semel.log.storage.checkpoint:pack",
        "[pack_places(pages)] if has_places else []",
        "[]",
        ("tests/log/storage/test_log_machine.py",),
    ),
    Bug(
        "a page of producers is taken for another that lies elsewhere",
        "semel.log.storage.producer_pages:_checksum",
        "crc32c(_PLACE.pack(*place))",
        "0",
        _PAGES,
    ),
    Bug(
        "a checkpoint names pages of producers that were not synced",
        "semel.log.storage.producer_pages:ProducerPages._write",
        "number, True",
        "number, False",
        ("tests/crash/test_matrix.py",),
    ),
    Bug(
        "half a page takes the last space of a disk, and keeps it",
        "semel.log.storage.producer_pages:cut_on_error",
        "file.truncate(size)",
        "pass",
        (f"{_PAGES[0]}::test_pages_for_which_there_is_no_space_do_not_keep_the_last_of_it",),
    ),
    Bug(
        "the reserve of a full disk is not for pages of producers",
        "semel.log.storage.checkpoint:CheckpointJob.run",
        "with_reserve(self.files, lambda: on_disk.put(pages), lambda: self.files.remove(_RESERVE))",
        "on_disk.put(pages)",
        (f"{_PAGES[0]}::test_on_a_full_disk_the_reserve_makes_room_for_pages",),
    ),
    Bug(
        "files of which nearly nothing is needed stay",
        "semel.log.storage.producer_pages:ProducerPages._empty_wasteful_files",
        "2 * size < self._size_of(number)",
        "False",
        _PAGES,
    ),
    Bug(
        "a file of producers that no checkpoint names any more stays",
        "semel.log.storage.checkpoint:CheckpointJob.run",
        "self.unnamed.extend(self.pages.unneeded(pages))",
        "pass",
        _PAGES,
    ),
    Bug(
        "a file of producers goes that the next start needs",
        "semel.log.storage.recovery:put_away_strangers",
        "ProducerPages(files).unneeded(pages)",
        "ProducerPages(files).unneeded([])",
        ("tests/log/storage/test_log_machine.py",),
    ),
    Bug(
        "a start writes over pages that another process wrote before it ended",
        "semel.log.storage.producer_pages:ProducerPages._write",
        "max(self._file, *numbers_in(self._files), 0)",
        "self._file",
        _PAGES,
    ),
)
