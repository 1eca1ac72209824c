"""Who owns a transactional id, what takes part in its transaction, and what there is at most."""

import json
from collections.abc import Callable

import pytest
from coordinating import OFFSETS, ORDERS, PAYMENTS, Coordinator, at_epoch, error_of

from semel.log.core.entries import (
    TopicDeleted,
    TransactionalIdClaimed,
    TransactionalIdsForgotten,
    TransactionEnded,
    TransactionGrew,
)
from semel.log.core.transaction_rules import (
    EPOCH_GIVEN_MAX,
    EPOCH_MAX,
    IdClaim,
    TransactionBounds,
    TransactionRules,
)
from semel.log.core.transactions import State, Transactions
from semel.wire import refusals
from semel.wire.refusals import Refused

# -- claiming ---------------------------------------------------------------------------------------------------------


def test_the_first_claim_of_an_id_gets_a_new_producer_id_with_epoch_0() -> None:
    assert Coordinator().claim()[1:] == (7000, 0)


def test_every_process_that_claims_an_id_gets_the_next_epoch_and_fences_the_one_before() -> None:
    coordinator = Coordinator()
    coordinator.claim()
    assert coordinator.claim()[1:] == (7000, 1)
    with pytest.raises(Refused) as refused:
        coordinator.add(7000, 0, ORDERS)
    assert error_of(refused) == refusals.PRODUCER_FENCED


def test_a_claim_aborts_what_the_zombie_left_open_before_it_is_granted() -> None:
    coordinator = Coordinator()
    coordinator.claim()
    coordinator.add(7000, 0, ORDERS, PAYMENTS)
    end, _ = coordinator.claim().entries
    assert end == TransactionEnded(7000, 1, 7000, 1, False, (ORDERS, PAYMENTS), (), 1_000, True)
    assert not coordinator.known.is_open(7000)
    assert coordinator.state() is State.EMPTY


def test_a_zombie_is_refused_though_the_claim_after_the_abort_was_lost() -> None:
    coordinator = Coordinator()
    coordinator.claim()
    coordinator.add(7000, 0, ORDERS)
    end, _ = coordinator.decide_init("a", 60_000, None, lambda: 1, 1_000).entries
    coordinator.known.apply(end)
    for version in (1, 2):
        with pytest.raises(Refused) as refused:
            coordinator.end(7000, 0, version=version)
        assert error_of(refused) == refusals.PRODUCER_FENCED
    assert coordinator.claim()[1:] == (7000, 2)


def test_a_producer_that_goes_on_after_an_error_shows_what_it_has_and_gets_the_next_epoch() -> None:
    coordinator = Coordinator()
    coordinator.claim()
    assert coordinator.claim(supplied=(7000, 0))[1:] == (7000, 1)


def test_a_retry_of_a_claim_gets_the_same_answer_and_writes_nothing() -> None:
    coordinator = Coordinator()
    coordinator.claim()
    coordinator.claim(supplied=(7000, 0))
    assert coordinator.claim(supplied=(7000, 0)) == IdClaim((), 7000, 1)


def test_a_retry_of_a_claim_is_recognised_though_its_first_half_alone_was_written() -> None:
    coordinator = Coordinator()
    coordinator.claim()
    coordinator.add(7000, 0, ORDERS)
    end, _ = coordinator.decide_init("a", 60_000, (7000, 0), lambda: 1, 1_000).entries
    coordinator.known.apply(end)
    assert coordinator.claim(supplied=(7000, 0)) == IdClaim((), 7000, 1)


def test_a_claim_with_what_a_successor_has_replaced_is_fenced() -> None:
    coordinator = Coordinator()
    coordinator.claim()
    coordinator.claim()
    for supplied in ((7000, 0), (7000, 2), (6999, 1)):
        with pytest.raises(Refused) as refused:
            coordinator.claim(supplied=supplied)
        assert error_of(refused) == refusals.PRODUCER_FENCED


def test_a_late_retry_of_a_claim_does_not_disturb_the_transaction_that_was_begun_since() -> None:
    coordinator = Coordinator()
    coordinator.claim()
    coordinator.claim(supplied=(7000, 0))
    coordinator.add(7000, 1, ORDERS)
    with pytest.raises(Refused):
        coordinator.claim(supplied=(7000, 0))
    assert coordinator.known.is_open(7000)


def test_where_the_epochs_are_used_up_a_claim_gets_a_new_producer_id() -> None:
    for supplied in (False, True):
        coordinator, producer_id = at_epoch(EPOCH_GIVEN_MAX)
        claim = coordinator.claim(supplied=(producer_id, EPOCH_GIVEN_MAX) if supplied else None)
        assert claim[1:] == (producer_id + 1, 0)
        with pytest.raises(Refused) as refused:
            coordinator.check_batch(producer_id, EPOCH_GIVEN_MAX, ORDERS, joins=True)
        assert error_of(refused) == refusals.INVALID_PRODUCER_ID_MAPPING


def test_a_retry_of_a_claim_across_the_change_of_the_producer_id_is_recognised() -> None:
    coordinator, producer_id = at_epoch(EPOCH_GIVEN_MAX)
    coordinator.claim(supplied=(producer_id, EPOCH_GIVEN_MAX))
    assert coordinator.claim(supplied=(producer_id, EPOCH_GIVEN_MAX)) == IdClaim((), producer_id + 1, 0)


def test_the_last_epoch_of_all_is_only_ever_used_to_fence() -> None:
    coordinator, producer_id = at_epoch(EPOCH_GIVEN_MAX)
    coordinator.add(producer_id, EPOCH_GIVEN_MAX, ORDERS)
    claim = coordinator.claim()
    end, _ = claim.entries
    assert isinstance(end, TransactionEnded)
    assert end.marker_epoch == EPOCH_MAX
    assert claim[1:] == (producer_id + 1, 0)


@pytest.mark.parametrize("timeout_ms", [-1, 0, 900_001])
def test_a_timeout_out_of_bounds_is_refused(timeout_ms: int) -> None:
    with pytest.raises(Refused) as refused:
        Coordinator().claim(timeout_ms=timeout_ms)
    assert error_of(refused) == refusals.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize("timeout_ms", [1, 900_000])
def test_the_shortest_and_the_longest_timeout_that_the_limit_allows_are_accepted(timeout_ms: int) -> None:
    coordinator = Coordinator()
    coordinator.claim(timeout_ms=timeout_ms)
    assert coordinator.known.timeout_ms(7000) == timeout_ms


# -- growing ----------------------------------------------------------------------------------------------------------


def test_a_transaction_may_be_open_before_it_is_known_where_it_writes() -> None:
    coordinator = Coordinator()
    coordinator.claim()
    coordinator.add(7000, 0)
    assert coordinator.state() is State.ONGOING
    assert coordinator.decide_add_partitions("a", 7000, 0, (), 2_000) is None


def test_what_takes_part_already_is_no_change() -> None:
    coordinator = Coordinator()
    coordinator.claim()
    coordinator.add(7000, 0, ORDERS)
    assert coordinator.decide_add_partitions("a", 7000, 0, [ORDERS, ORDERS], 5) is None
    grew = coordinator.decide_add_partitions("a", 7000, 0, [ORDERS, PAYMENTS, PAYMENTS], 5)
    assert grew is not None
    assert grew.partitions == (PAYMENTS,)
    added = coordinator.decide_add_group("a", 7000, 0, "readers", 5)
    assert added is not None
    coordinator.known.apply(added)
    assert coordinator.decide_add_group("a", 7000, 0, "readers", 5) is None


def test_a_batch_needs_its_partition_to_have_been_announced_in_version_1() -> None:
    coordinator = Coordinator()
    coordinator.claim()
    with pytest.raises(Refused) as refused:
        coordinator.send(7000, 0, ORDERS, joins=False)
    assert error_of(refused) == refusals.INVALID_TXN_STATE
    coordinator.add(7000, 0, ORDERS)
    coordinator.send(7000, 0, ORDERS, joins=False)


def test_a_batch_opens_its_transaction_by_itself_in_version_2() -> None:
    coordinator = Coordinator()
    coordinator.claim()
    coordinator.send(7000, 0, ORDERS, joins=True)
    coordinator.send(7000, 0, PAYMENTS, joins=True)
    entry = coordinator.end(7000, 0).entry
    assert entry is not None
    assert entry.partitions == (ORDERS, PAYMENTS)


def test_a_batch_of_another_epoch_is_refused_with_what_producers_understand() -> None:
    coordinator = Coordinator()
    coordinator.claim()
    coordinator.claim()
    for epoch in (0, 2):
        with pytest.raises(Refused) as refused:
            coordinator.check_batch(7000, epoch, ORDERS, joins=True)
        assert error_of(refused) == refusals.INVALID_PRODUCER_EPOCH


def test_offsets_need_their_group_to_have_been_announced_in_version_1() -> None:
    coordinator = Coordinator()
    coordinator.claim()
    with pytest.raises(Refused) as refused:
        coordinator.decide_offsets("a", 7000, 0, "readers", OFFSETS, 5, joins=False)
    assert error_of(refused) == refusals.INVALID_TXN_STATE
    coordinator.known.apply(coordinator.decide_offsets("a", 7000, 0, "readers", OFFSETS, 5, joins=True))
    coordinator.known.apply(coordinator.decide_offsets("a", 7000, 0, "readers", OFFSETS, 6, joins=False))
    entry = coordinator.end(7000, 0).entry
    assert entry is not None
    assert entry.groups == ("readers",)


Who = tuple[str, int, int]
REQUESTS: list[Callable[[TransactionRules, Who], object]] = [
    lambda transactions, who: transactions.decide_add_partitions(*who, [ORDERS], now_ms=5),
    lambda transactions, who: transactions.decide_add_group(*who, "readers", now_ms=5),
    lambda transactions, who: transactions.decide_offsets(*who, "readers", OFFSETS, now_ms=5, joins=True),
    lambda transactions, who: transactions.missing_partitions(*who, [ORDERS]),
    lambda transactions, who: transactions.decide_end(*who, True, lambda: 1, 5, raises_epoch=False),
    lambda transactions, who: transactions.decide_end(*who, True, lambda: 1, 5, raises_epoch=True),
]


@pytest.mark.parametrize("ask", REQUESTS)
@pytest.mark.parametrize(
    ("who", "error"),
    [
        (("a", 6999, 0), refusals.INVALID_PRODUCER_ID_MAPPING),
        (("b", 7000, 0), refusals.INVALID_PRODUCER_ID_MAPPING),
        (("", 7000, 0), refusals.INVALID_REQUEST),
        (("a", 7000, 1), refusals.PRODUCER_FENCED),
        (("a", 7000, -1), refusals.PRODUCER_FENCED),
    ],
)
def test_every_request_but_by_the_owner_is_refused(
    who: Who, error: int, ask: Callable[[TransactionRules, Who], object]
) -> None:
    coordinator = Coordinator()
    coordinator.claim()
    with pytest.raises(Refused) as refused:
        ask(coordinator, who)
    assert error_of(refused) == error


def test_a_deleted_topic_takes_no_part_any_more() -> None:
    coordinator = Coordinator()
    coordinator.claim()
    coordinator.add(7000, 0, ORDERS, PAYMENTS)
    coordinator.known.apply(TopicDeleted(ORDERS.number, 0, 0))
    with pytest.raises(Refused):
        coordinator.send(7000, 0, ORDERS, joins=False)
    entry = coordinator.end(7000, 0).entry
    assert entry is not None
    assert entry.partitions == (PAYMENTS,)


# -- bounds -----------------------------------------------------------------------------------------------------------


def test_there_are_no_more_ids_than_the_bound_says() -> None:
    coordinator = Coordinator(TransactionBounds(ids_max=1))
    coordinator.claim("a")
    coordinator.claim("a")
    with pytest.raises(Refused, match="1 transactional ids, no more") as refused:
        coordinator.claim("b")
    assert error_of(refused) == refusals.POLICY_VIOLATION


def test_an_id_is_no_longer_than_the_bound_says() -> None:
    coordinator = Coordinator(TransactionBounds(id_bytes_max=4))
    coordinator.claim("éé")
    with pytest.raises(Refused) as refused:
        coordinator.claim("ééé")
    assert error_of(refused) == refusals.INVALID_REQUEST


def test_no_more_transactions_are_open_than_the_bound_says() -> None:
    coordinator = Coordinator(TransactionBounds(open_max=1))
    coordinator.claim("a")
    coordinator.claim("b")
    coordinator.add(7000, 0, ORDERS)
    asks: list[Callable[[], object]] = [
        lambda: coordinator.add(7001, 0, ORDERS, name="b"),
        lambda: coordinator.send(7001, 0, ORDERS, joins=True),
        lambda: coordinator.decide_add_group("b", 7001, 0, "readers", 5),
        lambda: coordinator.decide_offsets("b", 7001, 0, "readers", OFFSETS, 5, joins=True),
    ]
    for ask in asks:
        with pytest.raises(Refused, match="1 transactions are open, no more") as refused:
            ask()
        assert error_of(refused) == refusals.POLICY_VIOLATION
    coordinator.end(7000, 0)
    coordinator.add(7001, 0, ORDERS, name="b")


def test_a_transaction_is_no_larger_than_the_bound_says() -> None:
    coordinator = Coordinator(TransactionBounds(partitions_max=2))
    coordinator.claim()
    coordinator.add(7000, 0, ORDERS)
    coordinator.known.apply(coordinator.decide_offsets("a", 7000, 0, "readers", OFFSETS, 5, joins=True))
    asks: list[Callable[[], object]] = [
        lambda: coordinator.add(7000, 0, PAYMENTS),
        lambda: coordinator.send(7000, 0, PAYMENTS, joins=True),
        lambda: coordinator.decide_add_group("a", 7000, 0, "others", 5),
    ]
    for ask in asks:
        with pytest.raises(Refused, match="2 partitions and groups, no more are allowed") as refused:
            ask()
        assert error_of(refused) == refusals.POLICY_VIOLATION
    coordinator.send(7000, 0, ORDERS, joins=True)


def test_all_open_transactions_together_are_no_larger_than_the_bound_says() -> None:
    coordinator = Coordinator(TransactionBounds(open_partitions_max=2))
    coordinator.claim("a")
    coordinator.claim("b")
    coordinator.add(7000, 0, ORDERS)
    coordinator.known.apply(coordinator.decide_offsets("a", 7000, 0, "readers", OFFSETS, 5, joins=True))
    with pytest.raises(Refused, match="2 partitions and groups, no more are allowed"):
        coordinator.send(7001, 0, ORDERS, joins=True)
    coordinator.known.apply(TopicDeleted(ORDERS.number, 0, 0))
    coordinator.send(7001, 0, PAYMENTS, joins=True)
    with pytest.raises(Refused):
        coordinator.add(7001, 0, ORDERS, name="b")
    coordinator.end(7000, 0)
    coordinator.add(7001, 0, ORDERS, name="b")
    assert coordinator.known.part_count == 2


def test_no_more_groups_take_part_in_all_open_transactions_than_the_bound_says() -> None:
    def join(coordinator: Coordinator, group: str, name: str, producer_id: int) -> None:
        added = coordinator.decide_add_group(name, producer_id, 0, group, 5)
        assert added is not None
        coordinator.known.apply(added)

    def commit(coordinator: Coordinator, group: str, name: str, producer_id: int) -> None:
        coordinator.known.apply(coordinator.decide_offsets(name, producer_id, 0, group, OFFSETS, 5, joins=True))

    first = Coordinator(TransactionBounds(open_groups_max=2))
    first.claim("a")
    first.claim("b")
    join(first, "one", "a", 7000)
    commit(first, "two", "b", 7001)
    restored = Coordinator(first.bounds)
    restored.known.restore(json.loads(json.dumps(first.known.snapshot())))
    for coordinator in (first, restored):
        for ask in (join, commit):
            with pytest.raises(Refused, match="have 2 groups, no more are allowed") as refused:
                ask(coordinator, "three", "b", 7001)
            assert error_of(refused) == refusals.POLICY_VIOLATION
        coordinator.add(7001, 0, ORDERS, name="b")
        commit(coordinator, "two", "b", 7001)
        coordinator.end(7000, 0)
        commit(coordinator, "three", "b", 7001)


def test_a_group_in_a_transaction_has_no_longer_name_than_the_bound_says() -> None:
    coordinator = Coordinator(TransactionBounds(id_bytes_max=4))
    coordinator.claim()
    asks: list[Callable[[], object]] = [
        lambda: coordinator.decide_offsets("a", 7000, 0, "ééé", OFFSETS, 5, joins=True),
        lambda: coordinator.decide_add_group("a", 7000, 0, "ééé", 5),
    ]
    for ask in asks:
        with pytest.raises(Refused) as refused:
            ask()
        assert error_of(refused) == refusals.INVALID_GROUP_ID


# -- checkpoints ------------------------------------------------------------------------------------------------------


def test_a_checkpoint_brings_everything_back() -> None:
    coordinator = Coordinator()
    coordinator.claim("a")
    coordinator.claim("b", timeout_ms=500)
    coordinator.claim("a", supplied=(7000, 0))
    coordinator.add(7001, 0, ORDERS, PAYMENTS, name="b")
    coordinator.known.apply(coordinator.decide_offsets("b", 7001, 0, "readers", OFFSETS, 5, joins=True))
    snapshot = coordinator.known.snapshot()
    kept = json.dumps(snapshot)
    restored = Coordinator()
    restored.known.restore(json.loads(kept))
    assert restored.known.snapshot() == snapshot
    assert restored.known.part_count == coordinator.known.part_count == 3
    assert list(restored.known.deadlines()) == list(coordinator.known.deadlines()) == [(7001, 1_500)]
    assert restored.decide_timeout(7001, 1_500) == coordinator.decide_timeout(7001, 1_500)
    assert restored.claim(supplied=(7000, 0)) == IdClaim((), 7000, 1)


def test_an_epoch_that_may_have_been_handed_out_is_not_handed_out_after_a_checkpoint_and_a_restart_either() -> None:
    coordinator = Coordinator()
    coordinator.claim()
    coordinator.known.doubt()
    restored = Coordinator()
    restored.known.restore(json.loads(json.dumps(coordinator.known.snapshot())))
    assert restored.known.is_doubted(7000)
    claim = restored.decide_init("a", 60_000, None, lambda: 8000, 5)
    assert claim[1:] == (8000, 0)


def test_what_happens_later_does_not_change_a_checkpoint() -> None:
    coordinator = Coordinator()
    coordinator.claim()
    coordinator.add(7000, 0, ORDERS)
    snapshot = coordinator.known.snapshot()
    kept = json.dumps(snapshot)
    coordinator.add(7000, 0, PAYMENTS)
    coordinator.end(7000, 0)
    assert json.dumps(snapshot) == kept


def test_an_entry_of_a_producer_that_there_is_not_is_damage() -> None:
    with pytest.raises(ValueError, match="producer id 7000"):
        Transactions().apply_batch(7000, ORDERS, 5)


def test_an_entry_that_gives_away_what_another_transactional_id_has_cannot_follow() -> None:
    coordinator = Coordinator()
    coordinator.claim()
    for entry in (
        TransactionalIdClaimed("b", 7000, 1, -1, -1, 60_000, 5),
        TransactionGrew(6999, 0, (ORDERS,), (), 5),
        TransactionEnded(6999, 0, 6999, 0, True, (), (), 5),
        TransactionalIdsForgotten(("b",)),
    ):
        with pytest.raises(ValueError, match=r"7000 belongs to 'a'|6999|no transactional id 'b'"):
            coordinator.known.check(entry)


def test_an_entry_that_leaves_an_open_transaction_without_an_owner_cannot_follow() -> None:
    coordinator = Coordinator()
    coordinator.claim()
    coordinator.add(7000, 0, ORDERS)
    for entry in (TransactionalIdClaimed("a", 7001, 0, -1, -1, 60_000, 5), TransactionalIdsForgotten(("a",))):
        with pytest.raises(ValueError, match="open"):
            coordinator.known.check(entry)
