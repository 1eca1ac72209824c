"""A wrong address ends a query soon; a broker that is away for a moment does not."""

from __future__ import annotations

import threading

import pytest
from log_under_test import LogUnderTest
from small_driver import DRIVERS, SmallDriver, query, values

from cluster_under_test import FOREIGN_CLUSTER
from semel.client import Unreachable
from semel.client.patience import MISSING_SECONDS_MAX
from semel.testing.broker import FaultyBroker

NOBODY = "127.0.0.1:1"


@pytest.mark.parametrize("driver_of", DRIVERS)
def test_a_query_that_begins_where_nobody_listens_ends_after_a_few_tries(driver_of: type[SmallDriver]) -> None:
    """It would be tried for a minute if the broker could be away for a moment."""
    options = {"kafka.bootstrap.servers": NOBODY, "subscribe": "payments"}
    with pytest.raises(Unreachable, match=f"^cannot connect to {NOBODY}: Connection refused. Start the broker"):
        driver_of(options).initial()


@pytest.mark.skipif(bool(FOREIGN_CLUSTER), reason="kills the broker")
@pytest.mark.parametrize("driver_of", DRIVERS)
def test_a_query_that_runs_waits_for_a_broker_that_comes_back(
    semel_broker: FaultyBroker, driver_of: type[SmallDriver]
) -> None:
    log = LogUnderTest(semel_broker.bootstrap)
    topic = log.make()
    log.put(topic, "a")
    driver = driver_of(query(log, topic))
    assert values(driver.batch()) == ["a"]
    log.put(topic, "b")
    semel_broker.kill()
    threading.Timer(1.5 * MISSING_SECONDS_MAX, semel_broker.start).start()
    assert values(driver.batch()) == ["b"]
