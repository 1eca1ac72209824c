"""How a transaction ends: as its owner wishes, as the tables say, or because its time is up."""

from itertools import product

import pytest
from coordinating import ORDERS, PAYMENTS, Coordinator, at_epoch, error_of

from semel.log.core.entries import TransactionalIdsForgotten, TransactionEnded
from semel.log.core.transaction_rules import (
    END_VERSION_1,
    END_VERSION_2,
    EPOCH_GIVEN_MAX,
    EPOCH_MAX,
    FORGOTTEN_PER_ENTRY,
    End,
    Ending,
    IdClaim,
)
from semel.log.core.transactions import State
from semel.wire import refusals
from semel.wire.refusals import Refused

# -- ending -----------------------------------------------------------------------------------------------------------


def in_state(state: State, version: int) -> tuple[Coordinator, int]:
    """A coordinator whose id "a" has come into a state by requests of this version; and its epoch."""
    coordinator = Coordinator()
    coordinator.claim()
    epoch = 0
    if state is not State.EMPTY:
        coordinator.add(7000, epoch, ORDERS)
    if state in (State.COMPLETE_ABORT, State.COMPLETE_COMMIT):
        epoch = coordinator.end(7000, 0, committed=state is State.COMPLETE_COMMIT, version=version).producer_epoch
    elif version == 2:
        # So that there is an epoch before the current one.
        coordinator = Coordinator()
        coordinator.claim()
        epoch = coordinator.claim().producer_epoch
        if state is State.ONGOING:
            coordinator.add(7000, epoch, ORDERS)
    assert coordinator.state() is state
    return coordinator, epoch


NUMBERS = {Ending.INVALID: refusals.INVALID_TXN_STATE, Ending.FENCED: refusals.PRODUCER_FENCED}

# As Apache Kafka has it; EB: a new epoch and an abort of nothing.
KAFKAS_TABLE = """
                 abort-retry  abort-current  commit-retry  commit-current
EMPTY            90           EB             90            48
ONGOING          90           end            90            end
COMPLETE_ABORT   NONE         EB             48            48
COMPLETE_COMMIT  48           EB             NONE          48
"""


def test_the_table_of_version_2_is_kafkas() -> None:
    header, *rows = (line.split() for line in KAFKAS_TABLE.strip().splitlines())
    meanings = {
        "90": Ending.FENCED,
        "48": Ending.INVALID,
        "EB": Ending.ENDS_NOTHING,
        "end": Ending.ENDS,
        "NONE": Ending.REPEATED,
    }
    expected = {
        (State[state], column.startswith("commit"), column.endswith("retry")): meanings[cell]
        for state, *cells in rows
        for column, cell in zip(header, cells, strict=True)
    }
    assert expected == END_VERSION_2


@pytest.mark.parametrize(("state", "committed", "retry"), list(product(State, (False, True), (False, True))))
def test_an_end_of_version_2_does_what_the_table_says(state: State, committed: bool, retry: bool) -> None:
    coordinator, epoch = in_state(state, 2)
    before = coordinator.known.snapshot()
    ending = END_VERSION_2[state, committed, retry]
    if ending in NUMBERS:
        with pytest.raises(Refused) as refused:
            coordinator.end(7000, epoch - retry, committed=committed)
        assert error_of(refused) == NUMBERS[ending]
        assert coordinator.known.snapshot() == before
        return
    end = coordinator.end(7000, epoch - retry, committed=committed)
    if ending is Ending.REPEATED:
        assert end == End(None, 7000, epoch)
        assert coordinator.known.snapshot() == before
        return
    partitions = (ORDERS,) if ending is Ending.ENDS else ()
    assert end.entry == TransactionEnded(
        7000, epoch + 1, 7000, epoch + 1, committed, partitions, (), coordinator.now_ms, False
    )
    assert end[1:] == (7000, epoch + 1)
    assert coordinator.state() is (State.COMPLETE_COMMIT if committed else State.COMPLETE_ABORT)


def test_version_1_repeats_an_end_only_in_its_own_direction() -> None:
    """Kafka's rule: nothing open is nothing to end, but who says again what was done hears that it is done."""
    repeated = {(State.COMPLETE_COMMIT, True), (State.COMPLETE_ABORT, False)}
    for place, ending in END_VERSION_1.items():
        state, _ = place
        expected = Ending.ENDS if state is State.ONGOING else Ending.REPEATED if place in repeated else Ending.INVALID
        assert ending is expected, place
    assert END_VERSION_1.keys() == set(product(State, (False, True)))


@pytest.mark.parametrize(("state", "committed"), list(product(State, (False, True))))
def test_an_end_of_version_1_does_what_the_table_says(state: State, committed: bool) -> None:
    coordinator, epoch = in_state(state, 1)
    before = coordinator.known.snapshot()
    ending = END_VERSION_1[state, committed]
    if ending in NUMBERS:
        with pytest.raises(Refused) as refused:
            coordinator.end(7000, epoch, committed=committed, version=1)
        assert error_of(refused) == NUMBERS[ending]
        assert coordinator.known.snapshot() == before
    elif ending is Ending.REPEATED:
        assert coordinator.end(7000, epoch, committed=committed, version=1) == End(None, 7000, epoch)
        assert coordinator.known.snapshot() == before
    else:
        entry = coordinator.end(7000, epoch, committed=committed, version=1).entry
        assert entry == TransactionEnded(7000, epoch, 7000, epoch, committed, (ORDERS,), (), 1_000, False)


def test_an_end_of_version_1_with_the_epoch_before_is_fenced() -> None:
    coordinator = Coordinator()
    coordinator.claim()
    coordinator.claim(supplied=(7000, 0))
    coordinator.add(7000, 1, ORDERS)
    with pytest.raises(Refused) as refused:
        coordinator.end(7000, 0, version=1)
    assert error_of(refused) == refusals.PRODUCER_FENCED


def test_a_delayed_end_of_version_2_never_ends_a_later_transaction() -> None:
    coordinator = Coordinator()
    coordinator.claim()
    coordinator.send(7000, 0, ORDERS, joins=True)
    coordinator.end(7000, 0)
    coordinator.send(7000, 1, PAYMENTS, joins=True)
    for committed in (False, True):
        with pytest.raises(Refused) as refused:
            coordinator.end(7000, 0, committed=committed)
        assert error_of(refused) == refusals.PRODUCER_FENCED
    assert coordinator.known.is_open(7000)


def test_a_delayed_batch_of_version_2_never_opens_a_transaction_again() -> None:
    coordinator = Coordinator()
    coordinator.claim()
    coordinator.send(7000, 0, ORDERS, joins=True)
    coordinator.end(7000, 0)
    with pytest.raises(Refused) as refused:
        coordinator.send(7000, 0, ORDERS, joins=True)
    assert error_of(refused) == refusals.INVALID_PRODUCER_EPOCH
    assert not coordinator.known.is_open(7000)


def test_where_the_epochs_are_used_up_an_end_hands_out_a_new_producer_id_and_its_retry_hears_of_it() -> None:
    coordinator, producer_id = at_epoch(EPOCH_GIVEN_MAX)
    coordinator.send(producer_id, EPOCH_GIVEN_MAX, ORDERS, joins=True)
    end = coordinator.end(producer_id, EPOCH_GIVEN_MAX)
    assert end.entry is not None
    assert (end.entry.marker_epoch, end[1:]) == (EPOCH_MAX, (producer_id + 1, 0))
    assert coordinator.end(producer_id, EPOCH_GIVEN_MAX) == End(None, producer_id + 1, 0)
    coordinator.send(producer_id + 1, 0, ORDERS, joins=True)
    with pytest.raises(Refused) as refused:
        coordinator.end(producer_id, EPOCH_GIVEN_MAX)
    assert error_of(refused) == refusals.PRODUCER_FENCED


def test_a_producer_whose_end_went_unanswered_may_claim_with_the_epoch_it_knows() -> None:
    coordinator = Coordinator()
    coordinator.claim()
    coordinator.send(7000, 0, ORDERS, joins=True)
    coordinator.end(7000, 0)
    assert coordinator.claim(supplied=(7000, 0)) == IdClaim((), 7000, 1)


# -- time -------------------------------------------------------------------------------------------------------------


def test_every_open_transaction_has_a_deadline_of_its_own() -> None:
    coordinator = Coordinator()
    coordinator.claim("slow", timeout_ms=50_000)
    coordinator.claim("fast", timeout_ms=10_000)
    assert list(coordinator.known.deadlines()) == []
    coordinator.add(7000, 0, ORDERS, name="slow")
    assert list(coordinator.known.deadlines()) == [(7000, 51_000)]
    coordinator.now_ms = 2_000
    coordinator.add(7001, 0, ORDERS, name="fast")
    assert list(coordinator.known.deadlines()) == [(7000, 51_000), (7001, 12_000)]
    coordinator.end(7001, 0, name="fast")
    assert list(coordinator.known.deadlines()) == [(7000, 51_000)]
    coordinator.end(7000, 0, name="slow")
    assert list(coordinator.known.deadlines()) == []


def test_a_transaction_that_grows_does_not_get_more_time() -> None:
    coordinator = Coordinator()
    coordinator.claim(timeout_ms=10_000)
    coordinator.add(7000, 0, ORDERS)
    coordinator.now_ms = 9_000
    coordinator.add(7000, 0, PAYMENTS)
    assert list(coordinator.known.deadlines()) == [(7000, 11_000)]


def test_what_takes_too_long_is_aborted_in_a_new_epoch() -> None:
    coordinator = Coordinator()
    coordinator.claim(timeout_ms=10_000)
    coordinator.add(7000, 0, ORDERS)
    coordinator.now_ms = 10_999
    assert coordinator.overdue() == []
    coordinator.now_ms = 11_000
    (end,) = coordinator.overdue()
    assert end == TransactionEnded(7000, 1, 7000, 1, False, (ORDERS,), (), 11_000)
    coordinator.known.apply(end)
    with pytest.raises(Refused) as refused:
        coordinator.send(7000, 0, ORDERS, joins=True)
    assert error_of(refused) == refusals.INVALID_PRODUCER_EPOCH
    assert coordinator.claim()[1:] == (7000, 2)


def test_who_took_too_long_is_fenced_in_version_1_and_in_version_2_may_abort_and_go_on() -> None:
    coordinator = Coordinator()
    coordinator.claim(timeout_ms=10_000)
    coordinator.add(7000, 0, ORDERS)
    coordinator.now_ms = 11_000
    (end,) = coordinator.overdue()
    coordinator.known.apply(end)
    for version, committed, error in (
        (1, True, refusals.PRODUCER_FENCED),
        (1, False, refusals.PRODUCER_FENCED),
        (2, True, refusals.INVALID_TXN_STATE),
    ):
        with pytest.raises(Refused) as refused:
            coordinator.end(7000, 0, committed=committed, version=version)
        assert error_of(refused) == error
    assert coordinator.end(7000, 0, committed=False) == End(None, 7000, 1)
    assert coordinator.claim(supplied=(7000, 0)) == IdClaim((), 7000, 1)


def test_nobody_is_ever_told_the_last_epoch_of_all() -> None:
    coordinator, producer_id = at_epoch(EPOCH_GIVEN_MAX)
    coordinator.add(producer_id, EPOCH_GIVEN_MAX, ORDERS)
    coordinator.now_ms = 100_000
    (end,) = coordinator.overdue()
    coordinator.known.apply(end)
    for committed in (False, True):
        with pytest.raises(Refused) as refused:
            coordinator.end(producer_id, EPOCH_GIVEN_MAX, committed=committed)
        assert error_of(refused) == refusals.PRODUCER_FENCED
    with pytest.raises(Refused):
        coordinator.claim(supplied=(producer_id, EPOCH_GIVEN_MAX))
    assert coordinator.claim()[1:] == (producer_id + 1, 0)


def test_ids_that_were_silent_for_too_long_are_forgotten_unless_their_transaction_is_open() -> None:
    coordinator = Coordinator()
    coordinator.claim("silent")
    coordinator.claim("open")
    coordinator.add(7001, 0, ORDERS, name="open")
    coordinator.now_ms = 1_500
    coordinator.claim("young")
    assert list(coordinator.silent(1_999, 1_000)) == []
    (forgotten,) = coordinator.silent(2_000, 1_000)
    assert forgotten == TransactionalIdsForgotten(("silent",))
    coordinator.known.apply(forgotten)
    assert coordinator.known.described("silent") is None
    with pytest.raises(Refused) as refused:
        coordinator.check_batch(7000, 0, ORDERS, joins=True)
    assert error_of(refused) == refusals.INVALID_PRODUCER_ID_MAPPING


def test_no_checkpoint_keeps_the_doubt_about_an_id_that_is_forgotten() -> None:
    """The ids of a year would be in it."""
    coordinator = Coordinator()
    coordinator.claim("silent")
    coordinator.known.doubt()
    (forgotten,) = coordinator.silent(2_000, 1_000)
    coordinator.known.apply(forgotten)
    assert coordinator.known.snapshot()["doubted"] == []


def test_an_id_in_daily_use_is_not_forgotten_a_week_after_its_claim() -> None:
    coordinator = Coordinator()
    coordinator.claim("daily")
    coordinator.now_ms = 1_500
    coordinator.add(7000, 0, ORDERS, name="daily")
    coordinator.now_ms = 1_800
    coordinator.end(7000, 0, name="daily")
    assert list(coordinator.silent(2_799, 1_000)) == []
    (forgotten,) = coordinator.silent(2_800, 1_000)
    assert forgotten == TransactionalIdsForgotten(("daily",))


def test_an_id_whose_transaction_has_just_begun_is_shown_as_in_use_since_then() -> None:
    for joins in (False, True):
        coordinator = Coordinator()
        coordinator.claim("daily")
        coordinator.now_ms = 1_500
        if joins:
            coordinator.send(7000, 0, ORDERS, joins=True)
        else:
            coordinator.add(7000, 0, ORDERS, name="daily")
        described = coordinator.known.described("daily")
        assert described is not None
        assert described.owner.changed_at_ms == described.began_at_ms == 1_500


def test_an_id_that_is_used_while_others_are_forgotten_is_kept() -> None:
    coordinator = Coordinator()
    for number in range(FORGOTTEN_PER_ENTRY + 2):
        coordinator.claim(str(number))
    claimed, opened = str(FORGOTTEN_PER_ENTRY), str(FORGOTTEN_PER_ENTRY + 1)
    entries = coordinator.silent(10_000, 1)
    coordinator.known.apply(next(entries))
    coordinator.now_ms = 10_000
    coordinator.claim(claimed)
    coordinator.add(7000 + FORGOTTEN_PER_ENTRY + 1, 0, ORDERS, name=opened)
    for forgotten in entries:
        coordinator.known.check(forgotten)
        coordinator.known.apply(forgotten)
    assert [owner.transactional_id for owner in coordinator.known.owners()] == [opened, claimed]


def test_very_many_ids_are_forgotten_in_entries_of_a_bounded_size() -> None:
    coordinator = Coordinator()
    for number in range(FORGOTTEN_PER_ENTRY + 1):
        coordinator.claim(str(number))
    sizes = []
    for forgotten in coordinator.silent(10_000, 1):
        coordinator.known.apply(forgotten)
        sizes.append(len(forgotten.transactional_ids))
    assert sizes == [FORGOTTEN_PER_ENTRY, 1]
    assert len(coordinator.known) == 0


def test_the_last_epoch_is_nobodys_whatever_a_client_says() -> None:
    coordinator, producer_id = at_epoch(EPOCH_GIVEN_MAX)
    coordinator.add(producer_id, EPOCH_GIVEN_MAX, ORDERS)
    coordinator.now_ms += 60_000
    for entry in coordinator.overdue():
        coordinator.known.apply(entry)
    said = producer_id, EPOCH_MAX
    for attempt in (
        lambda: coordinator.end(*said, committed=False),
        lambda: coordinator.end(*said, committed=True),
        lambda: coordinator.add(*said, ORDERS),
        lambda: coordinator.claim(supplied=said),
    ):
        with pytest.raises(Refused) as refused:
            attempt()
        assert error_of(refused) == refusals.PRODUCER_FENCED
    with pytest.raises(Refused) as refused:
        coordinator.send(*said, ORDERS, joins=True)
    assert error_of(refused) == refusals.INVALID_PRODUCER_EPOCH
    assert coordinator.claim().producer_epoch == 0
