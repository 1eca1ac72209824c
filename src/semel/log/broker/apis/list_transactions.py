"""ListTransactions (66), versions 0 to 2: all transactional ids, or those that match filters.

A filter that is left out restricts nothing, and an id has to match all given filters. The answer has a bounded length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from semel.log.broker.apis.answers import answered_in_steps, attempted_in_steps, error_of
from semel.log.broker.declaration import Api, Here
from semel.log.broker.exchange import Exchange
from semel.log.broker.rights import DESCRIBE_TRANSACTIONAL_ID
from semel.log.broker.serving import Serving
from semel.log.core.groups.topic_patterns import TopicPattern
from semel.log.core.transactions import Described, State
from semel.wire import kafka
from semel.wire.refusals import Refused
from semel.wire.steps import Steps
from semel.wire.versions import LIST_TRANSACTIONS

API: Final = Api(LIST_TRANSACTIONS, (0, 2), rights=(DESCRIBE_TRANSACTIONAL_ID,), standby=Here.LISTS_NOTHING)

# There may be a hundred thousand ids, and such an answer would hold up all other clients for seconds.
TRANSACTIONS_PER_ANSWER_MAX: Final = 10_000

# Apache Kafka's states between open and ended, which do not exist here.
_NEVER_SEEN: Final = frozenset({"PrepareCommit", "PrepareAbort", "PrepareEpochFence", "Dead"})
_KNOWN_STATES: Final = frozenset(state.shown for state in State) | _NEVER_SEEN


@answered_in_steps
def handle(
    broker: Serving, exchange: Exchange, request: kafka.list_transactions.ListTransactionsRequest
) -> Steps[kafka.list_transactions.ListTransactionsResponse]:
    unknown = [name for name in dict.fromkeys(request.state_filters) if name not in _KNOWN_STATES]
    states = yield from attempted_in_steps(_list(broker, exchange, request, set(request.state_filters)))
    return kafka.list_transactions.ListTransactionsResponse(
        error_code=error_of(states),
        unknown_state_filters=unknown,
        transaction_states=() if isinstance(states, Refused) else states,
    )


def _list(
    broker: Serving, exchange: Exchange, request: kafka.list_transactions.ListTransactionsRequest, states: set[str]
) -> Steps[list[kafka.list_transactions.TransactionState]]:
    transaction_states: list[kafka.list_transactions.TransactionState] = []
    is_wanted = _wanted(broker, request, states)
    for owner in broker.log.state.transactions.owners():
        description = broker.log.state.transactions.described(owner.transactional_id)
        if not broker.guard.sees(exchange, DESCRIBE_TRANSACTIONAL_ID, owner.transactional_id):
            description = None
        if description is not None and (yield from is_wanted(description)):
            transaction_states.append(
                kafka.list_transactions.TransactionState(
                    transactional_id=owner.transactional_id,
                    producer_id=description.owner.producer_id,
                    transaction_state=description.state.shown,
                )
            )
            if len(transaction_states) == TRANSACTIONS_PER_ANSWER_MAX:
                break
        yield 1
    return transaction_states


def _wanted(
    broker: Serving, request: kafka.list_transactions.ListTransactionsRequest, states: set[str]
) -> Callable[[Described], Steps[bool]]:
    producer_ids = set(request.producer_id_filters)
    duration_ms = request.duration_filter
    pattern = TopicPattern(request.transactional_id_pattern) if request.transactional_id_pattern else None
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
