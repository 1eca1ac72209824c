"""The table of keys takes no more memory than it may, and calls nothing superseded that it has not noted."""

from semel.log.compaction.keys import _LEFT_OUT_MAX, BYTES_PER_KEY, LastOffsets


def test_a_batch_fits_the_table_if_all_of_its_keys_do() -> None:
    table = LastOffsets(10 * BYTES_PER_KEY, 100)
    table.offsets = {b"%d" % number: number for number in range(3)}
    assert [table.has_space(records) for records in (7, 8)] == [True, False]


def test_so_many_batches_that_cannot_be_read_are_remembered_and_where_there_are_more_none_is_superseded() -> None:
    table = LastOffsets(10 * BYTES_PER_KEY, 1_000_000)
    for offset in range(_LEFT_OUT_MAX):
        table.leave_out(offset)
    assert [table.has_none_of(offset, offset + 1) for offset in (0, _LEFT_OUT_MAX)] == [False, True]
    for offset in range(_LEFT_OUT_MAX, _LEFT_OUT_MAX + 10):
        table.leave_out(offset)
    assert len(table._left_out) == _LEFT_OUT_MAX
    assert not table.has_none_of(999_998, 999_999)
