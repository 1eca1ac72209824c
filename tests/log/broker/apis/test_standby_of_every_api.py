"""What a standby does with a request of each API, asked of a real one: where it may forward, and where it may not.

The table here is written a second time on purpose: a change of what a standby does is a change of a promise to clients.
"""

from collections.abc import Iterator
from typing import Any, Final

import pytest
from test_every_version import requests

from asking import Asker, ConnectionEnded
from eventually import eventually
from semel.log.broker.apis import HANDLERS
from semel.testing.pair import BrokerPair
from semel.wire import versions as v
from semel.wire.errors import ErrorCode

SERVED, READ, NOTHING, ENDED = "served", "read", "an empty list", "connection ended"
LEADER, COORDINATOR = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR
CONTROLLER = ErrorCode.NOT_CONTROLLER

# What a standby does by itself.
HERE: Final[dict[int, object]] = {
    **dict.fromkeys((v.API_VERSIONS, v.METADATA, v.FIND_COORDINATOR, v.DESCRIBE_CLUSTER), SERVED),
    **dict.fromkeys((v.DESCRIBE_CONFIGS, v.DESCRIBE_ACLS, v.DESCRIBE_CLIENT_QUOTAS), READ),
    **dict.fromkeys((v.DESCRIBE_USER_SCRAM_CREDENTIALS, v.DESCRIBE_TOPIC_PARTITIONS, v.DESCRIBE_QUORUM), READ),
    **dict.fromkeys((v.LIST_GROUPS, v.LIST_TRANSACTIONS, v.DESCRIBE_LOG_DIRS), NOTHING),
    **dict.fromkeys((v.ALTER_CONFIGS, v.INCREMENTAL_ALTER_CONFIGS, v.CREATE_ACLS, v.DELETE_ACLS), ENDED),
    **dict.fromkeys((v.ALTER_CLIENT_QUOTAS, v.ALTER_USER_SCRAM_CREDENTIALS), ENDED),
    **dict.fromkeys((v.PRODUCE, v.FETCH, v.LIST_OFFSETS, v.OFFSET_FOR_LEADER_EPOCH, v.DELETE_RECORDS), LEADER),
    **dict.fromkeys((v.DESCRIBE_PRODUCERS, v.ALTER_REPLICA_LOG_DIRS), LEADER),
    **dict.fromkeys((v.OFFSET_COMMIT, v.OFFSET_FETCH, v.OFFSET_DELETE, v.JOIN_GROUP, v.SYNC_GROUP), COORDINATOR),
    **dict.fromkeys((v.HEARTBEAT, v.LEAVE_GROUP, v.DESCRIBE_GROUPS, v.DELETE_GROUPS), COORDINATOR),
    **dict.fromkeys((v.CONSUMER_GROUP_HEARTBEAT, v.CONSUMER_GROUP_DESCRIBE, v.INIT_PRODUCER_ID), COORDINATOR),
    **dict.fromkeys((v.ADD_PARTITIONS_TO_TXN, v.ADD_OFFSETS_TO_TXN, v.TXN_OFFSET_COMMIT, v.END_TXN), COORDINATOR),
    v.DESCRIBE_TRANSACTIONS: COORDINATOR,
    **dict.fromkeys((v.CREATE_TOPICS, v.DELETE_TOPICS, v.CREATE_PARTITIONS, v.ELECT_LEADERS), CONTROLLER),
    **dict.fromkeys((v.ALTER_PARTITION_REASSIGNMENTS, v.LIST_PARTITION_REASSIGNMENTS), CONTROLLER),
}
# What it forwards where nobody has to log in.
FORWARDED: Final = {
    *(v.METADATA, v.INIT_PRODUCER_ID, v.DESCRIBE_TOPIC_PARTITIONS, v.DESCRIBE_QUORUM, v.DESCRIBE_CONFIGS),
    *(v.ALTER_CONFIGS, v.INCREMENTAL_ALTER_CONFIGS, v.DESCRIBE_ACLS, v.CREATE_ACLS, v.DELETE_ACLS),
    *(v.DESCRIBE_CLIENT_QUOTAS, v.ALTER_CLIENT_QUOTAS, v.DESCRIBE_USER_SCRAM_CREDENTIALS),
    v.ALTER_USER_SCRAM_CREDENTIALS,
}
# A client without a login has none to begin; their place is where clients log in.
OF_LOGINS: Final = {v.SASL_HANDSHAKE, v.SASL_AUTHENTICATE}
STRICT: Final[dict[str, Any]] = {"access_rules": True, "super_users": ["User:ANONYMOUS"], "insecure": True}


@pytest.fixture(scope="module")
def pairs() -> Iterator[dict[str, BrokerPair]]:
    """A pair whose standby may forward, and one whose standby may not."""
    with BrokerPair() as forwarding, BrokerPair(**STRICT) as strict:
        for pair in (forwarding, strict):
            with Asker(pair.active.bootstrap) as ask:
                ask.create("orders", 2)
        yield {"forwarding": forwarding, "strict": strict}


def topic_id_at(bootstrap: str) -> bytes:
    """The id of the topic, when the broker knows it."""

    def found() -> bytes | None:
        with Asker(bootstrap) as ask:
            fields = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
            (topic,) = ask(v.METADATA, 12, topics=[{"topic_id": bytes(16), "name": "orders"}], **fields).topics
            return None if topic.error_code else topic.topic_id.bytes

    topic_id: bytes | None = eventually(found)
    assert topic_id is not None
    return topic_id


def errors_in(answer: Any) -> set[int]:
    """Every error code in an answer, at any depth."""
    if isinstance(answer, tuple | list):
        return {code for one in answer for code in errors_in(one)}
    if not hasattr(answer, "__dataclass_fields__"):
        return set()
    own = {int(answer.error_code)} if hasattr(answer, "error_code") else set()
    return own.union(*(errors_in(getattr(answer, name)) for name in answer.__dataclass_fields__))


def lists_in(answer: Any) -> list[int]:
    """How long each list in an answer is."""
    values = (getattr(answer, name) for name in answer.__dataclass_fields__)
    return [len(value) for value in values if isinstance(value, tuple | list)]


def taken(pair: BrokerPair) -> int:
    """How many connections the active broker has taken: one for each request that was forwarded."""
    return pair.active._broker.metrics.connections_opened


def outcome_of(pair: BrokerPair, api_key: int, fields: dict[str, object]) -> object:
    """What the standby did with this request: one of the words above."""
    with Asker(pair.standby.bootstrap) as ask:
        try:
            answer = ask(api_key, **fields)
        except ConnectionEnded:
            return ENDED
    errors = errors_in(answer)
    refusals = errors & {LEADER, COORDINATOR, CONTROLLER}
    if refusals:
        (refusal,) = refusals
        return ErrorCode(refusal)
    if HERE[api_key] is NOTHING:
        assert errors <= {0}
        assert not any(lists_in(answer)), answer
        return NOTHING
    return HERE[api_key] if HERE[api_key] in (SERVED, READ) else answer


def test_the_table_has_every_api_that_is_served() -> None:
    assert set(HERE) | OF_LOGINS == set(HANDLERS)


@pytest.mark.parametrize("api_key", sorted(HERE))
def test_a_standby_that_may_not_forward_answers_each_api_by_itself(pairs: dict[str, BrokerPair], api_key: int) -> None:
    pair = pairs["strict"]
    fields = requests(topic_id_at(pair.standby.bootstrap), 1)[api_key]
    before = taken(pair)
    assert outcome_of(pair, api_key, fields) == HERE[api_key]
    assert taken(pair) == before, "it was forwarded"


@pytest.mark.parametrize("api_key", sorted(HERE))
def test_a_standby_forwards_what_any_broker_may_be_asked_and_nothing_else(
    pairs: dict[str, BrokerPair], api_key: int
) -> None:
    pair = pairs["forwarding"]
    fields = requests(topic_id_at(pair.standby.bootstrap), 1)[api_key]
    before = taken(pair)
    outcome = outcome_of(pair, api_key, fields)
    assert taken(pair) - before == (api_key in FORWARDED)
    if api_key not in FORWARDED:
        assert outcome == HERE[api_key]
    else:
        assert outcome is not ENDED
        assert outcome not in (LEADER, COORDINATOR, CONTROLLER)


def test_what_a_standby_reads_is_what_the_active_broker_has(pairs: dict[str, BrokerPair]) -> None:
    """And not only an answer of the right shape."""
    pair = pairs["strict"]
    fields = requests(topic_id_at(pair.standby.bootstrap), 1)
    for api_key in (api_key for api_key, here in HERE.items() if here is READ):
        with Asker(pair.active.bootstrap) as active, Asker(pair.standby.bootstrap) as standby:
            told = active(api_key, **fields[api_key])
            assert errors_in(told) <= {0}, told
            if api_key != v.DESCRIBE_QUORUM:
                assert standby(api_key, **fields[api_key]) == told


def test_an_active_broker_without_a_lease_reads_nothing_to_its_clients() -> None:
    """Another broker may be active already, so what it knows may be old; it only says where clients can ask."""
    with BrokerPair() as pair:
        with Asker(pair.active.bootstrap) as ask:
            ask.create("orders", 2)
        fields = requests(topic_id_at(pair.active.bootstrap), 1)
        pair.active._broker.role.lead_no_more()
        for api_key, here in HERE.items():
            with Asker(pair.active.bootstrap) as ask:
                if here in (READ, NOTHING, ENDED):
                    with pytest.raises(ConnectionEnded):
                        ask(api_key, **fields[api_key])
                    continue
                errors = errors_in(ask(api_key, **fields[api_key])) - {0}
                assert errors == ({here} if isinstance(here, ErrorCode) else set()), api_key


@pytest.mark.parametrize("way", ["forwarding", "strict"])
def test_a_standby_ends_the_connection_where_no_answer_would_lead_the_client_on(
    pairs: dict[str, BrokerPair], way: str
) -> None:
    """Nobody reads an answer to acks=0; and a producer without a transactional id asks the same broker again."""
    pair = pairs[way]
    fields = requests(topic_id_at(pair.standby.bootstrap), 1)
    with Asker(pair.standby.bootstrap) as ask, pytest.raises(ConnectionEnded):
        ask(v.PRODUCE, **{**fields[v.PRODUCE], "acks": 0})
    if way == "strict":
        with Asker(pair.standby.bootstrap) as ask, pytest.raises(ConnectionEnded):
            ask(v.INIT_PRODUCER_ID, **{**fields[v.INIT_PRODUCER_ID], "transactional_id": None})


@pytest.mark.parametrize("api_key", sorted(OF_LOGINS))
def test_a_standby_serves_logins(pairs: dict[str, BrokerPair], api_key: int) -> None:
    """By their handlers: it says, as the active broker does, that this listener has no logins."""
    fields = {v.SASL_HANDSHAKE: {"mechanism": "PLAIN"}, v.SASL_AUTHENTICATE: {"auth_bytes": b""}}[api_key]
    for pair in pairs.values():
        with Asker(pair.active.bootstrap) as active, Asker(pair.standby.bootstrap) as standby:
            told = active(api_key, **fields)
            assert told.error_code
            assert standby(api_key, **fields) == told
