"""What a move waits for before it compares both sides: nobody may change anything in the source any more."""

import threading

from clusters import client_of, committed_offsets, move, values_in

from eventually import eventually
from semel.client.groups import Committed
from semel.client.places import TopicPartition
from semel.client.transaction import Transaction
from semel.testing.broker import FaultyBroker


def test_a_transaction_with_nothing_but_offsets_is_waited_for(source: FaultyBroker, target: str, topic: str) -> None:
    """It holds back no record, and a reader without a group's members may have begun it. Its offsets would count in the
    source only, and the group would process its records a second time in the target."""
    source.create_topic(topic)
    source.seed(topic, "a", "b")
    where = TopicPartition(topic, 0)
    said: list[str] = []
    with client_of(source.bootstrap) as client:
        transaction = Transaction(client, "billing", 60_000)
        transaction.commit_offsets(topic, {where: Committed(1, None)})
        moving = threading.Thread(target=move, args=(source.bootstrap, target, said))
        moving.start()
        assert eventually(lambda: "copied everything; waiting until the transaction of 'billing' has ended" in said)
        transaction.commit()
        moving.join()
    assert values_in(target, topic) == ["a", "b"]
    assert committed_offsets(target, topic)[where] == (1, "")
