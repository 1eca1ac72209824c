"""Each API that is declared is asked what its declaration promises: by somebody without a right, before a login, in a
version that nobody announced, on a standby that forwards, on one that may not, and on a broker without a lease.

That a declaration is the right one is held by the reference page about the protocol, which shows all of them.
"""

from collections.abc import Iterator
from typing import Any, Final

import pytest
from test_every_version import VERSIONS, error_codes, requests

from asking import Asker, ConnectionEnded
from eventually import eventually
from guarded import DENIED_CLUSTER, DENIED_GROUP, DENIED_ID, DENIED_TOPIC, GuardedBroker
from plain_messages import build_request, encode_request
from secured import SecuredBroker
from semel.log.broker.apis import APIS
from semel.log.broker.declaration import Api, Here
from semel.log.core.access import ResourceType
from semel.testing.pair import BrokerPair
from semel.wire import versions as v
from semel.wire.errors import ErrorCode

# A client without a login has none to begin; their place is where clients log in.
OF_LOGINS: Final = (v.SASL_HANDSHAKE, v.SASL_AUTHENTICATE)
ASKED: Final = {key: api for key, api in APIS.items() if key not in OF_LOGINS}
REFUSALS: Final = {here.value for here in Here if isinstance(here.value, ErrorCode)}
STRICT: Final[dict[str, Any]] = {"access_rules": True, "super_users": ["User:ANONYMOUS"], "insecure": True}
# A client that may not see something is shown less by these.
SHOWS_LESS: Final = (v.LIST_GROUPS, v.LIST_TRANSACTIONS, v.DESCRIBE_CLUSTER)
DENIED: Final = {
    ResourceType.TOPIC: DENIED_TOPIC,
    ResourceType.GROUP: DENIED_GROUP,
    ResourceType.CLUSTER: DENIED_CLUSTER,
    ResourceType.TRANSACTIONAL_ID: DENIED_ID,
}
# Brokers ask for others in these versions, and need the right to.
DENIED_TO_BROKERS: Final = {(v.ADD_PARTITIONS_TO_TXN, 4): DENIED_CLUSTER, (v.ADD_PARTITIONS_TO_TXN, 5): DENIED_CLUSTER}
# These had no error yet.
WITHOUT_ERROR: Final = ((v.DESCRIBE_LOG_DIRS, 1), (v.DESCRIBE_LOG_DIRS, 2))
# Where a frame has the version of its request: after its size and the key of the API.
VERSION_AT: Final = 6
every_api = pytest.mark.parametrize("api", ASKED.values(), ids=lambda api: api.name)


def test_without_a_right_a_client_gets_the_error_of_apache_kafka_in_every_version(
    broker: GuardedBroker, admin: Asker, stranger: Asker
) -> None:
    topic_id = admin.create("orders", partitions=2).topic_id
    sensible = requests(topic_id, -1, "member")
    for api_key, version in VERSIONS:
        codes = codes_in(stranger(api_key, version, **sensible[api_key]))
        rights = () if api_key in SHOWS_LESS else APIS[api_key].rights[:1]
        expected = {DENIED_TO_BROKERS.get((api_key, version), DENIED[right.resource_type]) for right in rights}
        if (api_key, version) not in WITHOUT_ERROR:
            assert codes - {0} == expected, (APIS[api_key].name, version)
    assert broker.topics() == ["orders"]


def test_before_a_login_a_client_may_ask_only_what_leads_to_one() -> None:
    sensible = requests(bytes(16), -1)
    with SecuredBroker() as broker:
        for api in APIS.values():
            with Asker(broker.bootstrap) as ask:
                if api.before_login:
                    assert ask(api.key, **sensible[api.key])
                else:
                    with pytest.raises((ConnectionEnded, ConnectionError)):
                        ask(api.key, **sensible[api.key])


@pytest.mark.parametrize("role", ["active", "standby"])
def test_a_version_that_nobody_serves_ends_the_connection(
    pairs: dict[str, BrokerPair], role: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody knows how such a request is encoded, and no slip is told of. Only ApiVersions has an answer to it."""
    bootstrap = getattr(pairs["strict"], role).bootstrap
    sensible = requests(bytes(16), -1)
    for api in APIS.values():
        for version in {api.served.start - 1, api.versions.min - 1, api.served.stop} - {-1}:
            # As a version that is served has it, so that it could be read.
            nearest = min(max(version, api.served.start), api.served.stop - 1)
            request = build_request(api.key, nearest, **sensible[api.key])
            encoded = bytearray(encode_request(api.key, nearest, 7, "asker", request))
            encoded[VERSION_AT : VERSION_AT + 2] = version.to_bytes(2, signed=True)
            frame = bytes(encoded)
            with Asker(bootstrap) as ask:
                if api.takes_any_version:
                    assert ask.send(frame)
                else:
                    with pytest.raises((ConnectionEnded, ConnectionError)):
                        ask.send(frame)
    assert [one.getMessage() for one in caplog.records if "request_failed" in one.getMessage()] == []


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
            return None if topic.error_code else topic.topic_id

    topic_id: bytes | None = eventually(found)
    assert topic_id is not None
    return topic_id


def lists_in(answer: Any) -> list[int]:
    """How long each list in an answer is."""
    values = (getattr(answer, name) for name in answer.FIELDS)
    return [len(value) for value in values if isinstance(value, tuple | list)]


def taken(pair: BrokerPair) -> int:
    """How many connections the active broker has taken: one for each request that was forwarded."""
    return pair.active._broker.metrics.connections_opened


def codes_in(answer: object) -> set[int]:
    return set(error_codes(answer))


def asked_of_a_standby(pair: BrokerPair, api: Api) -> tuple[Any, bool]:
    """Its answer to a sensible request, which is None if it ended the connection, and whether it was forwarded."""
    fields = requests(topic_id_at(pair.standby.bootstrap), 1)[api.key]
    before = taken(pair)
    with Asker(pair.standby.bootstrap) as ask:
        try:
            answer = ask(api.key, **fields)
        except ConnectionEnded:
            answer = None
    return answer, taken(pair) > before


def check_answered_by_a_standby(answer: Any, here: Here) -> None:
    assert (answer is None) == (here is Here.HANGS_UP)
    if answer is not None:
        assert codes_in(answer) & REFUSALS == {here.value} & REFUSALS
    if here is Here.LISTS_NOTHING:
        assert codes_in(answer) <= {0}
        assert not any(lists_in(answer)), answer


@every_api
def test_a_standby_that_may_not_forward_answers_each_api_by_itself(pairs: dict[str, BrokerPair], api: Api) -> None:
    answer, was_forwarded = asked_of_a_standby(pairs["strict"], api)
    assert not was_forwarded
    check_answered_by_a_standby(answer, api.standby)


@every_api
def test_a_standby_forwards_what_any_broker_may_be_asked_and_nothing_else(
    pairs: dict[str, BrokerPair], api: Api
) -> None:
    answer, was_forwarded = asked_of_a_standby(pairs["forwarding"], api)
    assert was_forwarded == api.forwards
    check_answered_by_a_standby(answer, Here.SERVES if api.forwards else api.standby)


def test_what_a_standby_reads_is_what_the_active_broker_has(pairs: dict[str, BrokerPair]) -> None:
    """And not only an answer of the right shape."""
    pair = pairs["strict"]
    fields = requests(topic_id_at(pair.standby.bootstrap), 1)
    for api_key in (api.key for api in ASKED.values() if api.standby is Here.READS):
        with Asker(pair.active.bootstrap) as active, Asker(pair.standby.bootstrap) as standby:
            told = active(api_key, **fields[api_key])
            assert codes_in(told) <= {0}, told
            if api_key != v.DESCRIBE_QUORUM:
                assert standby(api_key, **fields[api_key]) == told


def test_an_active_broker_without_a_lease_reads_nothing_to_its_clients() -> None:
    """Another broker may be active already, so what it knows may be old; it only says where clients can ask."""
    with BrokerPair() as pair:
        with Asker(pair.active.bootstrap) as ask:
            ask.create("orders", 2)
        fields = requests(topic_id_at(pair.active.bootstrap), 1)
        pair.active._broker.role.lead_no_more()
        for api in ASKED.values():
            with Asker(pair.active.bootstrap) as ask:
                if api.standby in (Here.READS, Here.LISTS_NOTHING, Here.HANGS_UP):
                    with pytest.raises(ConnectionEnded):
                        ask(api.key, **fields[api.key])
                    continue
                codes = codes_in(ask(api.key, **fields[api.key])) - {0}
                assert codes == {api.standby.value} & REFUSALS, api.name


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


@pytest.mark.parametrize("api_key", OF_LOGINS)
def test_a_standby_serves_logins(pairs: dict[str, BrokerPair], api_key: int) -> None:
    """By their handlers: it says, as the active broker does, that this listener has no logins."""
    fields = {v.SASL_HANDSHAKE: {"mechanism": "PLAIN"}, v.SASL_AUTHENTICATE: {"auth_bytes": b""}}[api_key]
    for pair in pairs.values():
        with Asker(pair.active.bootstrap) as active, Asker(pair.standby.bootstrap) as standby:
            told = active(api_key, **fields)
            assert told.error_code
            assert standby(api_key, **fields) == told
