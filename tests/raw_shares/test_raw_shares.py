"""Raw requests of share groups get the answers that an Apache Kafka 4.3.1 gave."""

from __future__ import annotations

import json

from raw_shares.calls import CALLS, SEEDS, all_answers
from raw_shares.record import RECORDED
from semel.testing.broker import FaultyBroker


def test_every_raw_request_gets_the_answer_that_apache_kafka_gave() -> None:
    recorded = json.loads(RECORDED.read_text())
    with FaultyBroker() as broker:
        answers = all_answers(broker.bootstrap, 0)
    assert sum(map(len, answers.values())) == len(SEEDS) * (CALLS + 1)
    for seed, told in answers.items():
        for ours, theirs in zip(told, recorded[seed], strict=True):
            assert ours == theirs
