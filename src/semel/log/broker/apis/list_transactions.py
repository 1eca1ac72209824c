"""ListTransactions (66), versions 0 to 2: all transactional ids, or those that match filters.

A filter that is left out restricts nothing, and an id has to match all given filters. The answer has a bounded length.
"""

from collections.abc import Callable
from typing import Any, Final

from semel.log.broker.apis.answers import Fields, answered_in_steps, attempted_in_steps
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DESCRIBE_TRANSACTIONAL_ID
from semel.log.broker.serving import Serving
from semel.log.core.groups.topic_patterns import TopicPattern
from semel.log.core.transactions import Described, State
from semel.wire.steps import Steps
from semel.wire.versions import LIST_TRANSACTIONS

API: Final = Api(LIST_TRANSACTIONS, (0, 2), rights=(DESCRIBE_TRANSACTIONAL_ID,), standby=Here.LISTS_NOTHING)

# There may be a hundred thousand ids, and such an answer would hold up all other clients for seconds.
TRANSACTIONS_PER_ANSWER_MAX: Final = 10_000

# Apache Kafka's states between open and ended, which do not exist here.
_NEVER_SEEN: Final = frozenset({"PrepareCommit", "PrepareAbort", "PrepareEpochFence", "Dead"})
_KNOWN_STATES: Final = frozenset(state.shown for state in State) | _NEVER_SEEN


@answered_in_steps
def handle(broker: Serving, exchange: Exchange, request: Any) -> Steps[Fields]:
    unknown = [name for name in dict.fromkeys(request.state_filters) if name not in _KNOWN_STATES]
    return {
        "unknown_state_filters": unknown,
        "transaction_states": [],
        **(yield from attempted_in_steps(_list(broker, exchange, request, set(request.state_filters)))),
    }


def _list(broker: Serving, exchange: Exchange, request: Any, states: set[str]) -> Steps[Fields]:
    transaction_states: list[Fields] = []
    is_wanted = _wanted(broker, request, states)
    for owner in broker.log.state.transactions.owners():
        description = broker.log.state.transactions.described(owner.transactional_id)
        if not broker.guard.sees(exchange, DESCRIBE_TRANSACTIONAL_ID, owner.transactional_id):
            description = None
        if description is not None and (yield from is_wanted(description)):
            transaction_states.append(
                {
                    "transactional_id": owner.transactional_id,
                    "producer_id": description.owner.producer_id,
                    "transaction_state": description.state.shown,
                }
            )
            if len(transaction_states) == TRANSACTIONS_PER_ANSWER_MAX:
                break
        yield 1
    return {"transaction_states": transaction_states}


def _wanted(broker: Serving, request: Any, states: set[str]) -> Callable[[Described], Steps[bool]]:
    producer_ids = set(request.producer_id_filters)
    duration_ms = getattr(request, "duration_filter", -1)
    text = getattr(request, "transactional_id_pattern", None)
    pattern = TopicPattern(text) if text else None
    began_before_ms = broker.clock.now_ms() - duration_ms

    def is_wanted(description: Described) -> Steps[bool]:
        owner = description.owner
        if states and description.state.shown not in states:
            return False
        if producer_ids and owner.producer_id not in producer_ids:
            return False
        if duration_ms >= 0 and not 0 <= description.began_at_ms < began_before_ms:
            return False
        return pattern is None or (yield from pattern.matches_in_steps(owner.transactional_id))

    return is_wanted
