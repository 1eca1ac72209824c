"""ListTransactions (66), versions 0 to 2: the transactional ids there are, narrowed down as asked.

No filter is no restriction, and of several each has to be met. The answer shows a bounded number.
"""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from semel.broker.apis.answered import Fields, answered, attempted
from semel.core.groups.topic_patterns import TopicPattern
from semel.core.transaction_register import Described, State

if TYPE_CHECKING:
    from semel.broker.broker import Broker
    from semel.broker.connection import Exchange

# There may be a hundred thousand, and an answer of that size would hold up everybody else for seconds.
TRANSACTIONS_PER_ANSWER_MAX: Final = 10_000

# The states of Apache Kafka that nothing here is ever in, as there is nothing between open and ended.
_NEVER_SEEN: Final = frozenset({"PrepareCommit", "PrepareAbort", "PrepareEpochFence", "Dead"})
_KNOWN_STATES: Final = frozenset(state.shown for state in State) | _NEVER_SEEN


@answered
def handle(broker: "Broker", exchange: "Exchange", request: Any) -> Fields:
    unknown = [name for name in dict.fromkeys(request.state_filters) if name not in _KNOWN_STATES]
    return {
        "unknown_state_filters": unknown,
        "transaction_states": [],
        **attempted(_list, broker, request, set(request.state_filters)),
    }


def _list(broker: "Broker", request: Any, states: set[str]) -> Fields:
    return {
        "transaction_states": [
            {
                "transactional_id": described.owner.transactional_id,
                "producer_id": described.owner.producer_id,
                "transaction_state": described.state.shown,
            }
            for described in islice(_wanted(broker, request, states), TRANSACTIONS_PER_ANSWER_MAX)
        ]
    }


def _wanted(broker: "Broker", request: Any, states: set[str]) -> Iterator[Described]:
    producer_ids = set(request.producer_id_filters)
    duration_ms = getattr(request, "duration_filter", -1)
    text = getattr(request, "transactional_id_pattern", None)
    pattern = TopicPattern(text) if text else None
    began_before_ms = broker.now_ms() - duration_ms
    for described in broker.log.transactions.all_described():
        owner = described.owner
        if states and described.state.shown not in states:
            continue
        if producer_ids and owner.producer_id not in producer_ids:
            continue
        if duration_ms >= 0 and not 0 <= described.began_at_ms < began_before_ms:
            continue
        if pattern is not None and not pattern.matches(owner.transactional_id):
            continue
        yield described
