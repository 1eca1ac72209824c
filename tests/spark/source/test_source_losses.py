"""What counts as lost: offsets held against what the log holds, with ids and without."""

from uuid import UUID

from semel.client.places import NO_ID, TopicPartition
from semel.spark.source.losses import ahead, behind_the_end, expected_begins, going_on, gone, truncated
from semel.spark.source.offsets import Offsets

PAYMENTS, OTHER = UUID(int=1), UUID(int=2)
FIRST, SECOND = TopicPartition("payments", 0), TopicPartition("payments", 1)


def offsets(topic_id: UUID, **at: int) -> Offsets:
    return Offsets({"payments": topic_id}, {TopicPartition("payments", int(name[1:])): at[name] for name in at})


def test_nothing_is_lost_of_a_log_that_only_grew() -> None:
    known, now = offsets(PAYMENTS, p0=5), offsets(PAYMENTS, p0=9, p1=3)
    assert gone(known, now) == ahead(known, now) == []
    assert expected_begins(known, now) == {FIRST: 5, SECOND: 0}
    assert truncated({FIRST: 5, SECOND: 0}, {FIRST: 5, SECOND: 0}) == []


def test_a_log_that_ends_before_the_query_has_lost_its_end() -> None:
    known, now = offsets(PAYMENTS, p0=5, p1=1), offsets(PAYMENTS, p0=4, p1=1)
    assert ahead(known, now) == [FIRST]
    [said] = behind_the_end(known, {FIRST: 4}).values()
    assert said.startswith("payments-0 ends at offset 4, and the query has come to 5: its last records were lost")
    assert behind_the_end(known, {FIRST: 5}) == {}


def test_no_offset_goes_back_while_the_topic_is_the_same() -> None:
    known, now = offsets(PAYMENTS, p0=5, p1=1), offsets(PAYMENTS, p0=4)
    on = going_on(known, now)
    assert (on.at, on.gone) == ({FIRST: 5}, {SECOND: 1})
    back = going_on(on, offsets(PAYMENTS, p0=4, p1=7))
    assert (back.at, back.gone) == ({FIRST: 5, SECOND: 7}, {})
    assert expected_begins(on, back) == {FIRST: 5, SECOND: 1}
    without = going_on(on, Offsets({}, {}))
    assert (without.ids, without.at, without.gone) == ({"payments": PAYMENTS}, {}, {FIRST: 5, SECOND: 1})
    assert Offsets.from_json(without.to_json()) == without
    # It was said when it went.
    assert gone(without, Offsets({}, {})) == []
    other = going_on(without, offsets(OTHER, p0=2))
    assert (other.ids, other.at, other.gone) == ({"payments": OTHER}, {FIRST: 2}, {})
    assert expected_begins(without, other) == {FIRST: 0}


def test_another_topic_of_the_same_name_is_told_once_and_read_from_its_beginning() -> None:
    known, now = offsets(PAYMENTS, p0=5), offsets(OTHER, p0=4)
    [said] = gone(known, now)
    assert said.startswith(f"topic payments was deleted and created again: its id was {PAYMENTS} and is {OTHER}")
    assert ahead(known, now) == []
    assert expected_begins(known, now) == {FIRST: 0}


def test_nothing_is_said_of_ids_where_brokers_have_none() -> None:
    for known, now in [(NO_ID, PAYMENTS), (PAYMENTS, NO_ID), (NO_ID, NO_ID)]:
        assert gone(offsets(known, p0=5), offsets(now, p0=5)) == []
        assert expected_begins(offsets(known, p0=5), offsets(now, p0=9)) == {FIRST: 5}
        assert ahead(offsets(known, p0=5), offsets(now, p0=4)) == [FIRST]


def test_a_log_that_begins_behind_the_query_says_how_many_offsets_are_gone() -> None:
    [said] = truncated({FIRST: 5, SECOND: 0}, {FIRST: 12, SECOND: 0})
    assert said.startswith("payments-0 begins at offset 12 now, and the query has come to 5: 7 offsets were deleted")


def test_the_loss_of_a_single_record_is_a_loss() -> None:
    [deleted] = truncated({FIRST: 5, SECOND: 0}, {FIRST: 5, SECOND: 1})
    assert deleted.startswith("payments-1 begins at offset 1 now, and the query has come to 0: 1 offsets were deleted")
    known, now = offsets(PAYMENTS, p0=5, p1=1), offsets(PAYMENTS, p0=5, p1=0)
    assert ahead(known, now) == [SECOND]
    assert list(behind_the_end(known, {FIRST: 5, SECOND: 0})) == [SECOND]
