"""How a transaction ends: seen whole or not at all, and never at the cost of another one."""

import pytest
from transacted import NAME, TIMEOUT_MS, client_of, places, stored, write

from asking import Asker
from relayed_cluster import RelayedCluster
from semel.client import RefusedByBroker, Unreachable
from semel.client.errors import Fenced
from semel.client.transaction import Transaction
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode
from semel.wire.versions import END_TXN, INIT_PRODUCER_ID, PRODUCE


def test_what_was_aborted_is_never_seen(broker: FaultyBroker, ask: Asker) -> None:
    ask.create("payments")
    with client_of(broker.bootstrap, max_request_size=1_000) as client:
        transaction = Transaction(client, NAME, TIMEOUT_MS)
        write(transaction, *places(1), range(100))
        transaction.abort()
        following = Transaction(client, NAME, TIMEOUT_MS)
        write(following, *places(1), range(100, 110))
        following.commit()
    assert stored(broker) == list(range(100, 110))


def test_who_is_fenced_writes_nothing_and_aborts_nothing_of_its_successor(broker: FaultyBroker, ask: Asker) -> None:
    ask.create("payments")
    with client_of(broker.bootstrap) as client, client_of(broker.bootstrap) as another:
        zombie = Transaction(client, NAME, TIMEOUT_MS)
        write(zombie, *places(1), range(10))
        successor = Transaction(another, NAME, TIMEOUT_MS)
        write(successor, *places(1), range(10, 20))
        with pytest.raises(Fenced):
            zombie.commit()
        zombie.abort()
        successor.commit()
    assert stored(broker) == list(range(10, 20))


def test_what_is_under_way_when_it_is_aborted_opens_no_transaction_again(broker: FaultyBroker, ask: Asker) -> None:
    """Its epoch is over, so that the leader refuses it whenever it arrives."""
    ask.create("payments")
    with client_of(broker.bootstrap) as client:
        transaction = Transaction(client, NAME, TIMEOUT_MS)
        write(transaction, *places(1), range(10))
        claimed = transaction._claim
        transaction.abort()
        late = Transaction(client, "another", TIMEOUT_MS)
        late._id, late._claim = NAME, claimed
        late._sequences = dict.fromkeys(places(1), 0)
        write(late, *places(1), range(10))
        with pytest.raises(Fenced):
            late.commit()
    assert broker.log("payments") == []


def test_a_commit_whose_answer_is_lost_is_asked_for_again(broker: FaultyBroker, ask: Asker) -> None:
    ask.create("payments")
    with RelayedCluster(broker.bootstrap) as cluster, client_of(cluster.bootstrap) as client:
        transaction = Transaction(client, NAME, TIMEOUT_MS)
        write(transaction, *places(1), range(10))
        cluster.answers_to_lose[END_TXN] = 2
        transaction.commit()
        assert cluster.answers_to_lose[END_TXN] == 0
    assert stored(broker) == list(range(10))


def test_after_a_commit_that_nobody_knows_of_nothing_is_aborted(broker: FaultyBroker, ask: Asker) -> None:
    ask.create("payments")
    with RelayedCluster(broker.bootstrap) as cluster, client_of(cluster.bootstrap) as client:
        transaction = Transaction(client, NAME, 1_000)
        write(transaction, *places(1), range(10))
        cluster.answers_to_lose[END_TXN] = 1_000_000
        with pytest.raises(Unreachable):
            transaction.commit()
        transaction.abort()
    assert stored(broker) == list(range(10))


def test_who_gives_up_aborts_nothing_of_a_successor(broker: FaultyBroker, ask: Asker) -> None:
    """Kafka's coordinator would: it looks at no epoch where a transaction is open."""
    ask.create("payments")
    with RelayedCluster(broker.bootstrap) as cluster, client_of(cluster.bootstrap) as client:
        zombie = Transaction(client, NAME, TIMEOUT_MS)
        write(zombie, *places(1), range(10))
        successor = Transaction(client, NAME, TIMEOUT_MS)
        write(successor, *places(1), range(10, 20))
        claims = cluster.times_asked(INIT_PRODUCER_ID)
        zombie.abort()
        assert cluster.times_asked(INIT_PRODUCER_ID) == claims
        successor.commit()
    assert stored(broker) == list(range(10, 20))


def test_who_gives_up_what_is_his_has_it_aborted_at_once(broker: FaultyBroker, ask: Asker) -> None:
    ask.create("payments")
    with RelayedCluster(broker.bootstrap) as cluster, client_of(cluster.bootstrap) as client:
        transaction = Transaction(client, NAME, TIMEOUT_MS)
        write(transaction, *places(1), range(10))
        cluster.produce_errors = [ErrorCode.MESSAGE_TOO_LARGE]
        with pytest.raises(RefusedByBroker):
            transaction.commit()
        claims = cluster.times_asked(INIT_PRODUCER_ID)
        transaction.abort()
        assert cluster.times_asked(INIT_PRODUCER_ID) == claims + 1


def test_a_successor_who_comes_during_an_abort_keeps_the_id(
    broker: FaultyBroker, ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask.create("payments")
    successors: list[Transaction] = []
    with client_of(broker.bootstrap) as client:
        zombie = Transaction(client, NAME, TIMEOUT_MS)
        write(zombie, *places(1), range(10))
        abort_by_claiming = zombie._abort_by_claiming

        def overtaken() -> None:
            successors.append(Transaction(client, NAME, TIMEOUT_MS))
            abort_by_claiming()

        monkeypatch.setattr(zombie, "_abort_by_claiming", overtaken)
        zombie.abort()
        (successor,) = successors
        write(successor, *places(1), range(10, 20))
        successor.commit()
    assert stored(broker) == list(range(10, 20))


def asked_beside_produce(cluster: RelayedCluster) -> dict[tuple[int, int], int]:
    """A Produce that was on its way when another one was refused is counted when it comes along."""
    return {(api_key, version): count for (api_key, version), count in cluster.asked.items() if api_key != PRODUCE}


def test_nothing_more_is_asked_in_the_name_of_who_is_told_that_he_is_fenced(broker: FaultyBroker, ask: Asker) -> None:
    ask.create("payments")
    with RelayedCluster(broker.bootstrap) as cluster, client_of(cluster.bootstrap) as client:
        zombie = Transaction(client, NAME, TIMEOUT_MS)
        write(zombie, *places(1), range(10))
        Transaction(client, NAME, TIMEOUT_MS)
        with pytest.raises(Fenced):
            zombie.commit()
        asked = asked_beside_produce(cluster)
        zombie.abort()
        assert asked_beside_produce(cluster) == asked


def test_partitions_that_were_not_taken_in_are_announced_again(broker: FaultyBroker, ask: Asker) -> None:
    ask.create("payments")
    with RelayedCluster(broker.bootstrap) as cluster, client_of(cluster.bootstrap) as client:
        transaction = Transaction(client, NAME, TIMEOUT_MS)
        cluster.coordinator_errors = [ErrorCode.OPERATION_NOT_ATTEMPTED]
        write(transaction, *places(1), range(10))
        transaction.commit()
        assert cluster.coordinator_errors == []
    assert stored(broker) == list(range(10))
