"""What a move waits for before it compares both sides, and what it says if somebody deletes a topic meanwhile."""

import threading

import pytest
from clusters import client_of, committed_offsets, move, values_in

from eventually import eventually
from semel.client import LogError, admin
from semel.client.groups import Committed
from semel.client.places import TopicPartition
from semel.client.transaction import Transaction
from semel.testing.broker import FaultyBroker
from semel.ui.transfer.move import Move


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


def test_a_topic_that_is_deleted_in_the_target_during_the_audit_is_one_line(
    source: FaultyBroker, target: str, topic: str
) -> None:
    source.create_topic(topic)
    source.seed(topic, "a")
    with client_of(source.bootstrap) as old, client_of(target) as new, client_of(target) as somebody:

        def say(line: str) -> None:
            if line.startswith("comparing both sides"):
                admin.delete_topic(somebody.cluster, topic)

        with pytest.raises(LogError, match=f"topic '{topic}' was deleted in the target while it was moved"):
            Move(old, new, say, lambda _: None, quiet_seconds=0).run()
