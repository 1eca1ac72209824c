"""The planted bugs of the table of producers: who is at rest in a page stays on record, once and unchanged."""

from typing import Final

from saboteurs.planting import Bug

_TABLE = ("tests/core/test_producer_table.py",)

TABLE_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "a producer that is heard again stays in its page, too",
        "semel.core.producer_table:Producers._take",
        "self._replace(number, page.without(slot))",
        "pass",
        _TABLE,
    ),
    Bug(
        "a page does not know that one of its producers was silent for longer",
        "semel.core.producer_table:Page.with_one",
        "min(self.oldest_ms, heard_of(packed))",
        "self.oldest_ms",
        _TABLE,
    ),
    Bug(
        "a window with a gap in its numbers is packed as if it had none",
        "semel.core.producer_table:pack",
        "not are_consecutive",
        "False",
        _TABLE,
    ),
    Bug(
        "the distance between two batches leaves out the records of the first",
        "semel.core.producer_table:unpack",
        "numbers[slot - 1] + numbers[count + slot - 1]",
        "numbers[count + slot - 1]",
        _TABLE,
    ),
    Bug(
        "each search for silent producers begins at the first page",
        "semel.core.producer_table:Producers.forget_silent",
        "count == at_most",
        "count == at_most and not setattr(self, '_next_page', 0)",
        (f"{_TABLE[0]}::test_a_search_that_has_found_enough_goes_on_where_it_stopped",),
    ),
    Bug(
        "a new producer has to split a page that is full",
        "semel.core.producer_table:Producers._put",
        "slot == len(page)",
        "False",
        (f"{_TABLE[0]}::test_pages_of_producers_that_came_one_after_the_other_are_full",),
    ),
    Bug(
        "a checkpoint leaves out the producers at rest",
        "semel.storage.checkpoint:pack",
        "[pack_places(pages)] if has_places else []",
        "[]",
        ("tests/storage/test_log_machine.py",),
    ),
)
