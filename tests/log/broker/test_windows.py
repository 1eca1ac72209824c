"""The windows that a broker tells are those by which it judges; and whoever may not ask gets none."""

from __future__ import annotations

import http.client
import json

import pytest

from asking import Asker, at
from browsing import settings_of
from semel.client.cluster import Cluster
from semel.testing.served import ServedBroker
from semel.ui.console import producers
from semel.ui.console.broker_door import BrokerDoor, NotTold
from semel.ui.console.query import Query


def get(address: str, target: str, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request("GET", target, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_the_window_is_the_last_five_batches_of_each_partition(served_with_batches: ServedBroker) -> None:
    address = served_with_batches.metrics_address
    status, body = get(address, "/producers?topic=payments")
    (window,) = json.loads(body)["windows"]
    assert (status, window["partition"], window["producer_id"], window["epoch"]) == (200, 1, 0, 0)
    assert [one["first_sequence"] for one in window["batches"]] == [2, 3, 4, 5, 6]
    assert [one["offset"] for one in window["batches"]] == [2, 3, 4, 5, 6]
    assert json.loads(get(address, "/producers?topic=payments&first=2")[1])["windows"] == []
    host, _, port = address.rpartition(":")
    with Cluster(settings_of(served_with_batches.bootstrap)) as cluster:
        told = producers.of_topic(cluster, Query({"topic": "payments"}), BrokerDoor(host, int(port)))
        (one,) = told["producers"]
        assert (one["next_sequence"], [batch["last_sequence"] for batch in one["window"]]) == (7, [2, 3, 4, 5, 6])
        assert told["why_no_windows"] is None
        untold = producers.of_topic(cluster, Query({"topic": "payments"}))
        assert (untold["producers"][0]["window"], "--decisions" in untold["why_no_windows"]) == (None, True)
    assert get(address, "/producers?topic=nowhere")[0] == 404
    assert get(address, "/producers?topic=payments&first=x")[0] == 400
    assert get(address, "/producers?topic=payments", Origin="http://evil.example")[0] == 403
    assert get(address, "/producers?topic=payments", Host="evil.example")[0] == 421
    with pytest.raises(NotTold, match="does not tell it"):
        BrokerDoor("127.0.0.1", 1).windows("payments", 0)


@pytest.fixture
def served_with_batches(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    with (
        ServedBroker(tmp_path_factory.mktemp("windows"), metrics=True) as served,
        Asker(served.bootstrap) as asker,
    ):
        asker.create("payments", 2)
        for sequence in range(7):
            asker.produce("payments", at(1), partition=1, producer_id=0, producer_epoch=0, base_sequence=sequence)
        yield served
