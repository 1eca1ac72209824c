"""A client that is over its quota is told how long to wait, and is not read from for that long; others notice nothing.

Limits are far above or far below what a test uses, and time is moved, so nothing depends on how long anything takes.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import plain_messages as messages
from asking import Asker, ConnectionEnded, fetch_fields
from eventually import eventually
from guarded import GuardedBroker
from secured import PASSWORD, SecuredBroker, login
from semel.log.broker.security_log import SecurityLog
from semel.log.broker.throttle import BUSY_WAIT_MS_MAX, WAIT_MS_MAX, Rates
from semel.log.core.quotas import BUSY, CONNECTED, FETCHED, NAME_BYTES_MAX, PRODUCED
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode
from semel.wire.frames import parse_response_header
from semel.wire.records import Record, encode_batch
from semel.wire.versions import (
    ALTER_CLIENT_QUOTAS,
    API_VERSIONS,
    DESCRIBE_CLIENT_QUOTAS,
    FETCH,
    METADATA,
    PRODUCE,
    SASL_HANDSHAKE,
)

LARGE = b"x" * 100_000
NO_TOPICS: dict[str, Any] = {
    "topics": [],
    "include_topic_authorized_operations": False,
    "include_cluster_authorized_operations": False,
    "allow_auto_topic_creation": False,
}
# Every client of these tests calls itself so.
ASKER = {"entity_type": "client-id", "entity_name": "asker"}


@pytest.fixture
def broker() -> Iterator[FaultyBroker]:
    with FaultyBroker() as broker:
        broker.create_topic("orders")
        yield broker


@pytest.fixture
def ask(broker: FaultyBroker) -> Iterator[Asker]:
    with Asker(broker.bootstrap) as ask:
        yield ask


def change(ask: Asker, *entity: dict[str, str | None], remove: bool = False, **values: float) -> Any:
    ops = [{"key": key, "value": value, "remove": remove} for key, value in values.items()]
    (entry,) = ask(ALTER_CLIENT_QUOTAS, entries=[{"entity": entity, "ops": ops}], validate_only=False).entries
    return entry


def put(ask: Asker, *entity: dict[str, str | None], **values: float) -> None:
    entry = change(ask, *entity, **values)
    assert entry.error_code == 0, entry.error_message


def batch(value: bytes = LARGE, acks: int = -1) -> dict[str, Any]:
    """The fields of a request with one record."""
    data = [{"name": "orders", "partition_data": [{"index": 0, "records": bytes(encode_batch([Record(value)]))}]}]
    return {"transactional_id": None, "acks": acks, "timeout_ms": 1000, "topic_data": data}


def produced(ask: Asker, value: bytes = LARGE) -> Any:
    return ask(PRODUCE, 9, **batch(value))


def waited_ms(answer: Any) -> int:
    return int(answer.throttle_time_ms)


def serve(broker: FaultyBroker, times: int = 20) -> None:
    """Have another client served: the broker would have read on meanwhile, if it did."""
    with Asker(broker.bootstrap) as other:
        for _ in range(times):
            other(API_VERSIONS, 0)


def test_a_producer_over_its_quota_is_answered_at_once_and_read_later(broker: FaultyBroker, ask: Asker) -> None:
    put(ask, ASKER, **{PRODUCED: 1_000})
    with Asker(broker.bootstrap) as greedy:
        answer = produced(greedy)
        assert answer.responses[0].partition_responses[0].error_code == 0
        # 100 KB are 100 s at 1 KB/s, of which 10 count as idle before.
        assert 85_000 <= waited_ms(answer) <= 95_000
        waiting = greedy.ask_later(METADATA, 9, **NO_TOPICS)
        serve(broker)
        assert not greedy.has_answer()
        assert len(broker.log("orders")) == 1
        broker.skip(waited_ms(answer) / 1000)
        waiting()
        assert waited_ms(produced(greedy, b"1")) == 0


def test_without_a_quota_nobody_waits_and_nothing_is_measured(broker: FaultyBroker, ask: Asker) -> None:
    put(ask, ASKER, **{PRODUCED: 1_000})
    assert change(ask, ASKER, remove=True, **{PRODUCED: 0}).error_code == 0
    assert waited_ms(produced(ask)) == 0
    assert waited_ms(produced(ask)) == 0


def test_connections_of_one_client_use_its_quota_up_together(broker: FaultyBroker, ask: Asker) -> None:
    put(ask, ASKER, **{PRODUCED: 1_000})
    with Asker(broker.bootstrap) as first, Asker(broker.bootstrap) as second:
        alone = waited_ms(produced(first))
        assert waited_ms(produced(second)) > alone


def test_no_wait_is_longer_than_a_connection_may_be_idle(broker: FaultyBroker, ask: Asker) -> None:
    put(ask, ASKER, **{PRODUCED: 1})
    assert waited_ms(produced(ask)) == WAIT_MS_MAX


@pytest.mark.parametrize(("key", "wait_ms"), [(PRODUCED, WAIT_MS_MAX), (BUSY, BUSY_WAIT_MS_MAX)])
def test_a_quota_of_next_to_nothing_is_one_for_which_a_client_waits_longest(
    key: str, wait_ms: int, broker: FaultyBroker, ask: Asker
) -> None:
    with Asker(broker.bootstrap) as greedy:
        put(ask, ASKER, **{key: 1e-320})
        assert waited_ms(produced(greedy)) == wait_ms


def test_a_producer_that_wants_no_answer_is_not_read_from_either(broker: FaultyBroker, ask: Asker) -> None:
    put(ask, ASKER, **{PRODUCED: 1_000})
    with Asker(broker.bootstrap) as greedy:
        greedy.ask_later(PRODUCE, 9, **batch(acks=0))
        greedy.ask_later(API_VERSIONS, 0)
        assert eventually(lambda: len(broker.log("orders")) == 1)
        serve(broker)
        assert not greedy.has_answer()


def test_a_consumer_gets_what_it_may_have_in_ten_seconds_and_then_waits(broker: FaultyBroker, ask: Asker) -> None:
    broker.seed("orders", *[Record(LARGE)] * 3)
    put(ask, ASKER, **{FETCHED: 1_000})
    with Asker(broker.bootstrap) as greedy, Asker(broker.bootstrap) as second:
        first = greedy(FETCH, 12, **fetch_fields("orders"))
        # A client with a small limit gets on: the first batch comes whole.
        assert len(first.responses[0].partitions[0].records) > len(LARGE)
        assert waited_ms(first) > 0
        answer = second(FETCH, 12, **fetch_fields("orders"))
        assert (answer.error_code, answer.responses) == (0, ())
        assert waited_ms(answer) > 0
        broker.skip(waited_ms(answer) / 1000)
        assert second(FETCH, 12, **fetch_fields("orders")).responses


def test_a_fetch_session_outlives_a_wait(broker: FaultyBroker, ask: Asker) -> None:
    broker.seed("orders", Record(LARGE))
    put(ask, ASKER, **{FETCHED: 1_000})
    began = fetch_fields("orders") | {"session_epoch": 0}
    nothing_new = {"session_epoch": 1, "topics": []}
    with Asker(broker.bootstrap) as greedy, Asker(broker.bootstrap) as second:
        session = greedy(FETCH, 12, **began).session_id
        throttled = second(FETCH, 12, **began | {"session_id": session} | nothing_new)
        assert (throttled.error_code, throttled.session_id, throttled.responses) == (0, session, ())
        assert waited_ms(throttled) > 0
        # One whose first answer names no partition has not begun.
        with Asker(broker.bootstrap) as third:
            answer = third(FETCH, 12, **began)
            assert (answer.session_id, answer.responses) == (0, ())


def test_requests_that_take_longer_than_their_quota_wait_for_a_second_at_most(broker: FaultyBroker, ask: Asker) -> None:
    put(ask, ASKER, **{BUSY: 1e-9})
    with Asker(broker.bootstrap) as greedy:
        answer = greedy(METADATA, 9, **NO_TOPICS)
        assert waited_ms(answer) == BUSY_WAIT_MS_MAX
        waiting = greedy.ask_later(METADATA, 9, **NO_TOPICS)
        serve_unlimited(broker)
        assert not greedy.has_answer()
        broker.skip(1)
        waiting()


def serve_unlimited(broker: FaultyBroker) -> None:
    """Something that takes the broker a while, without a client that has a quota."""
    for _ in range(20):
        broker.topics()


def test_a_user_who_logged_in_has_a_quota_wherever_he_comes_from(tmp_path: Path) -> None:
    with SecuredBroker() as broker:
        broker.add_user("alice", PASSWORD)
        with Asker(broker.open) as ask:
            put(ask, {"entity_type": "user", "entity_name": "alice"}, **{PRODUCED: 1_000})
        broker.create_topic("orders")
        waits: list[float] = []
        alice = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "throttle_cb": lambda event: waits.append(event.throttle_time),
                **login("SCRAM-SHA-256", "alice", PASSWORD),
            }
        )
        alice.produce("orders", LARGE)
        assert alice.flush(60) == 0
        assert eventually(lambda: alice.poll(0) >= 0 and bool(waits))
        with Asker(broker.open) as anonymous:
            assert waited_ms(produced(anonymous)) == 0


def test_who_has_not_logged_in_yet_uses_up_the_quota_of_nobody() -> None:
    """Or strangers who never log in would have all others wait for their logins."""
    with SecuredBroker() as broker:
        with Asker(broker.open) as ask:
            put(ask, {"entity_type": "user", "entity_name": None}, **{BUSY: 1e-320})
        for _ in range(2):
            with Asker(broker.bootstrap) as stranger:
                assert waited_ms(stranger(API_VERSIONS, 2)) == 0
                stranger(SASL_HANDSHAKE, mechanism="SCRAM-SHA-256")


def test_clients_whose_ids_are_too_long_for_a_quota_share_one(broker: FaultyBroker, ask: Asker) -> None:
    """None of these ids is kept, so nobody fills the memory with them."""
    put(ask, {"entity_type": "client-id", "entity_name": None}, **{PRODUCED: 1_000})

    def waited(client_id: str) -> int:
        with Asker(broker.bootstrap) as client:
            request = messages.build_request(PRODUCE, 9, **batch())
            frame = client.send(messages.encode_request(PRODUCE, 9, 1, client_id, request))
            _, body = parse_response_header(PRODUCE, 9, frame)
            return waited_ms(messages.decode_response(PRODUCE, 9, frame[body:]))

    assert waited("a" * NAME_BYTES_MAX) == waited("b" * NAME_BYTES_MAX)
    assert waited("a" * (NAME_BYTES_MAX + 1)) < waited("b" * (NAME_BYTES_MAX + 1))


def test_an_address_opens_no_more_connections_than_its_quota(broker: FaultyBroker, ask: Asker) -> None:
    """Ten a second for ten seconds may come at once, and the next one is sent away; other addresses have their own."""
    put(ask, {"entity_type": "ip", "entity_name": "127.0.0.2"}, **{CONNECTED: 1})
    for _ in range(10):
        with Asker(broker.bootstrap, source="127.0.0.2") as other:
            other(API_VERSIONS, 0)
    with pytest.raises((ConnectionEnded, OSError)), Asker(broker.bootstrap, source="127.0.0.2") as other:
        other(API_VERSIONS, 0)
    with Asker(broker.bootstrap, source="127.0.0.3") as other:
        other(API_VERSIONS, 0)
    broker.skip(11)
    with Asker(broker.bootstrap, source="127.0.0.2") as other:
        other(API_VERSIONS, 0)


def test_a_client_that_has_to_wait_for_two_reasons_waits_for_the_longer_time(broker: FaultyBroker, ask: Asker) -> None:
    put(ask, ASKER, **{PRODUCED: 1_000, FETCHED: 9_000})
    broker.create_topic("payments")
    with Asker(broker.bootstrap) as greedy:
        fetched = greedy.ask_later(FETCH, 12, **fetch_fields("payments", wait_ms=60_000))
        produced_later = greedy.ask_later(PRODUCE, 9, **batch())
        assert eventually(lambda: len(broker.log("orders")) == 1)
        broker.seed("payments", Record(LARGE))
        short_ms, long_ms = waited_ms(fetched()), waited_ms(produced_later())
        assert 0 < short_ms < 5_000 < long_ms
        waiting = greedy.ask_later(METADATA, 9, **NO_TOPICS)
        broker.skip(10)
        serve(broker)
        assert not greedy.has_answer()
        broker.skip(long_ms / 1000)
        waiting()


def test_connections_that_were_sent_away_do_not_count_against_their_address(broker: FaultyBroker, ask: Asker) -> None:
    """Or a client that tries again and again would never get in."""
    put(ask, {"entity_type": "ip", "entity_name": "127.0.0.2"}, **{CONNECTED: 1})

    def connect() -> None:
        with Asker(broker.bootstrap, source="127.0.0.2") as other:
            other(API_VERSIONS, 0)

    for _ in range(10):
        connect()
    broker.skip(5)
    for _ in range(20):
        with pytest.raises((ConnectionEnded, OSError)):
            connect()
    broker.skip(7)
    connect()


def test_a_greedy_client_costs_an_honest_one_nothing(broker: FaultyBroker, ask: Asker) -> None:
    """By counts: while the greedy one has had one batch taken and is not read from, all of the honest one's are."""
    put(ask, {"entity_type": "client-id", "entity_name": "asker"}, **{PRODUCED: 1_000})
    honest = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "honest", "linger.ms": 0})
    with Asker(broker.bootstrap) as greedy:
        produced(greedy)
        waiting = [greedy.ask_later(PRODUCE, 9, **batch()) for _ in range(5)]
        for number in range(100):
            honest.produce("orders", f"{number}")
            assert honest.flush(60) == 0
        assert not greedy.has_answer()
        assert len(broker.log("orders")) == 101
        broker.skip(100)
        assert waited_ms(waiting[0]()) > 0


def test_quotas_are_there_after_a_crash_and_gone_when_they_are_taken_away() -> None:
    entity = {"entity_type": "user", "entity_name": None}
    everything = {"components": [], "strict": False}
    with FaultyBroker() as broker:
        with Asker(broker.bootstrap) as ask:
            put(ask, entity, **{PRODUCED: 1_024, BUSY: 12.5})
        broker.kill()
        broker.restart()
        with Asker(broker.bootstrap) as ask:
            (entry,) = ask(DESCRIBE_CLIENT_QUOTAS, **everything).entries
            assert [(part.entity_type, part.entity_name) for part in entry.entity] == [("user", None)]
            assert {value.key: value.value for value in entry.values} == {PRODUCED: 1_024, BUSY: 12.5}
            assert change(ask, entity, remove=True, **{PRODUCED: 0, BUSY: 0}).error_code == 0
        broker.restart()
        with Asker(broker.bootstrap) as ask:
            assert ask(DESCRIBE_CLIENT_QUOTAS, **everything).entries == ()


def test_each_entity_is_changed_by_itself_and_one_that_is_named_twice_is_not(ask: Asker) -> None:
    good = {"key": PRODUCED, "value": 1_024.0, "remove": False}
    bad = {"key": "producer_byte_rat", "value": 1.0, "remove": False}
    users = [{"entity_type": "user", "entity_name": name} for name in ("alice", "bob", "carol")]
    entries = [
        {"entity": [users[0]], "ops": [good]},
        {"entity": [users[1]], "ops": [good, bad]},
        {"entity": [users[2]], "ops": [good]},
        {"entity": [users[2]], "ops": [good]},
    ]
    invalid = ErrorCode.INVALID_REQUEST
    answer = ask(ALTER_CLIENT_QUOTAS, entries=entries, validate_only=True)
    # As Apache Kafka does, it answers once for each entity.
    assert [entry.error_code for entry in answer.entries] == [0, invalid, invalid]
    assert ask(DESCRIBE_CLIENT_QUOTAS, components=[], strict=False).entries == ()
    ask(ALTER_CLIENT_QUOTAS, entries=entries, validate_only=False)
    (entry,) = ask(DESCRIBE_CLIENT_QUOTAS, components=[], strict=False).entries
    assert entry.entity[0].entity_name == "alice"


def test_a_filter_that_means_nothing_is_answered_with_its_error(ask: Asker) -> None:
    component = {"entity_type": "group", "match_type": 2, "match": None}
    answer = ask(DESCRIBE_CLIENT_QUOTAS, components=[component], strict=False)
    assert (answer.error_code, answer.entries) == (ErrorCode.UNSUPPORTED_VERSION, None)


def test_a_change_of_quotas_is_told_to_the_security_log(tmp_path: Path) -> None:
    path = tmp_path / "security.log"
    with GuardedBroker(security_log=SecurityLog(path)) as broker, broker.administrator() as admin:
        put(admin, {"entity_type": "user", "entity_name": None}, **{PRODUCED: 1_024})
    told = json.loads(path.read_text())
    assert told["event"] == "quotas_changed"
    assert (told["entity"], told["quotas"]) == ({"user": "<default>"}, {PRODUCED: 1_024})


def test_measurements_are_bounded_and_the_one_used_longest_ago_makes_way() -> None:
    rates: Rates[str] = Rates(2)
    first = rates.of("first")
    rates.of("second")
    assert rates.of("first") is first
    rates.of("third")
    assert len(rates) == 2
    assert rates.of("first") is first
