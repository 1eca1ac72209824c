"""DescribeClientQuotas (48), versions 0 and 1: none, because none are kept.

Kafka's tools ask for the quotas of a user whenever they are asked for its credentials.
"""

from typing import Any, Final

from semel.broker.apis.answers import Fields, answered, attempted
from semel.broker.connection import Exchange
from semel.broker.guard import DESCRIBE_CLUSTER_CONFIGS
from semel.broker.serving import Serving

RIGHTS: Final = (DESCRIBE_CLUSTER_CONFIGS,)


@answered
def handle(broker: Serving, exchange: Exchange, request: Any) -> Fields:
    return {"entries": None, **attempted(_describe, broker, exchange)}


def _describe(broker: Serving, exchange: Exchange) -> Fields:
    broker.guard.check(exchange, DESCRIBE_CLUSTER_CONFIGS)
    return {"entries": []}
