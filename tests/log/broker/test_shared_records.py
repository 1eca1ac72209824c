"""An operator sees what a share group has in flight, how often that was delivered and who holds it, and each thing that
happens to a record at the moment when it happens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from watched import Watched, serving

from asking import Asker
from browsing import settings_of
from semel.client.cluster import Cluster
from semel.log.broker.decisions import SHARED_TOLD_MAX, Decisions, SharedDecision, event_of
from semel.log.broker.metrics import Metrics
from semel.log.broker.shared_records import shared_records
from semel.testing.served import ServedBroker
from semel.ui.console import groups
from semel.ui.console.broker_door import BrokerDoor, NotTold
from semel.ui.console.query import Query
from semel_command import semel_failure, semel_lines
from sharing import ACCEPT, REJECT, RELEASE, RENEW, Sharer, another, configure, sharer


@pytest.fixture
def watched() -> Iterator[Watched]:
    with serving() as watched:
        yield watched


@pytest.fixture
def ada(watched: Watched) -> Sharer:
    return sharer(watched.connect(), records=6)


def in_flight(ada: Sharer) -> None:
    """Ada and Bob hold one record each, and one waits."""
    configure(ada.ask, record_lock_duration_ms="60000")
    bob = another(ada, "bob")
    assert ada.got(max_records=3) == [(0, 2, 1)]
    assert bob.got(max_records=1) == [(3, 3, 1)]
    assert ada.got(acks=[(0, 0, [ACCEPT]), (1, 2, [RELEASE])], max_records=1) == [(1, 1, 2)]
    assert ada.got(max_records=1) == [(2, 2, 2)]
    assert ada.acknowledge((2, 2, [RELEASE])) == 0


def test_the_broker_tells_what_is_in_flight_how_often_it_was_delivered_and_who_holds_it(
    watched: Watched, ada: Sharer
) -> None:
    in_flight(ada)
    told = json.loads(watched.look(lambda broker: shared_records(broker, "workers", 0)))
    (partition,) = told["partitions"]
    assert (told["group"], told["next"]) == ("workers", None)
    assert partition == {
        "topic": "jobs",
        "partition": 0,
        "start": 1,
        "end": 4,
        "held": 2,
        "waiting": 1,
        "deliveries": [[1, 1], [2, 2]],
        "holders": [["ada", 1], ["bob", 1]],
    }


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedBroker]:
    with ServedBroker(tmp_path, metrics=True) as broker, Asker(broker.bootstrap) as ask:
        # They hold what they hold as long as their connection lasts.
        in_flight(sharer(ask, records=6))
        yield broker


def test_the_console_and_the_command_show_it(served: ServedBroker) -> None:
    host, _, port = served.metrics_address.rpartition(":")
    door = BrokerDoor(host, int(port))
    with pytest.raises(NotTold, match="404: there is no share group"):
        door.shares("others", 10)
    with Cluster(settings_of(served.bootstrap)) as cluster:
        page = groups.one_group(cluster, Query({"group": "workers"}), door)
        (partition,) = page["partitions"]
        assert (page["is_shared"], page["why_not"], page["lag"], page["member_count"]) == (True, None, 5, 2)
        assert (partition["start"], partition["in_flight"]["held"], partition["in_flight"]["waiting"]) == (1, 2, 1)
        untold = groups.one_group(cluster, Query({"group": "workers"}))
        assert (untold["partitions"][0]["in_flight"], "--decisions" in untold["why_not"]) == (None, True)
    bootstrap = f"--bootstrap={served.bootstrap}"
    lines = semel_lines("groups", "describe", "workers", bootstrap, "--decisions", served.metrics_address)
    assert lines[-2].split() == ["TOPIC", "PARTITION", "START", "LAG", "HELD", "AGAIN", "DELIVERED", "MEMBERS"]
    topic, index, start, lag, held, waiting, *often = lines[-1].split()
    # On a slow machine the locks have timed out by now.
    assert (topic, index, start, lag, int(held) + int(waiting)) == ("jobs", "0", "1", "5", 3)
    assert often[:4] == ["1", "x1,", "2", "x2"]
    assert "does not tell it" in semel_failure("groups", "describe", "workers", bootstrap, "--decisions", "127.0.0.1:1")


def test_what_happens_to_records_is_in_the_stream_of_decisions(watched: Watched, ada: Sharer) -> None:
    configure(ada.ask, delivery_count_limit="2")
    subscription = watched.look(lambda broker: broker.decisions.subscribe())
    ada.got()
    watched.pass_a_millisecond()
    ada.acknowledge((0, 4, [ACCEPT, REJECT, RELEASE, RELEASE, RENEW]), is_renew_ack=True)
    ada.got(max_records=2)
    ada.got(share_session_epoch=-1)
    data = watched.look(lambda broker: event_of(subscription.take()))
    events = json.loads(data.removeprefix(b"data: "))["shared"]
    assert {(event["group"], event["member"], event["topic"], event["partition"]) for event in events} == {
        ("workers", "ada", "jobs", 0)
    }
    assert [(event["event"], event["first"], event["last"], event["deliveries"]) for event in events] == [
        *[("acquired", 0, 5, 1), ("accepted", 0, 0, 1), ("rejected", 1, 1, 1), ("released", 2, 3, 1)],
        *[("renewed", 4, 4, 1), ("acquired", 2, 3, 2), ("released", 4, 4, 1)],
        *[("released", 5, 5, 1), ("archived", 2, 3, 2)],
    ]


def test_somebody_who_is_slow_gets_the_newest_and_is_told_how_many_there_were() -> None:
    decisions = Decisions(Metrics())
    subscription = decisions.subscribe()
    assert subscription is not None
    for number in range(SHARED_TOLD_MAX + 5):
        decisions.tell_shared(SharedDecision(0, "acquired", "workers", "ada", "jobs", 0, number, number, 1))
    told = subscription.take()
    assert ([one.first for one in told.shared], told.shared_left_out) == (list(range(5, SHARED_TOLD_MAX + 5)), 5)
    assert subscription.take().shared == []
