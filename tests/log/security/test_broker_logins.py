"""A client has to log in before it may ask for anything, real clients can, and a stranger costs little."""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import plain_messages as messages
from asking import NEWEST, Asker, ConnectionEnded
from eventually import eventually
from secured import CLIENTS, PASSWORD, REFUSALS, WRONG, SecuredBroker, login, own_client
from semel.client.cluster import Cluster
from semel.client.settings import from_options
from semel.log.broker.broker import Broker
from semel.log.broker.limits import Limits
from semel.log.core.users import ITERATIONS_MIN, Users
from semel.log.security.listeners import ListenersRefused
from semel.log.security.login import PLAIN, Login
from semel.wire.errors import ErrorCode
from semel.wire.refusals import Refused
from semel.wire.scram import Mechanism, credential_of, salted
from semel.wire.steps import Door, Elsewhere, Waiting, finish
from semel.wire.versions import (
    ALTER_USER_SCRAM_CREDENTIALS,
    API_VERSIONS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)

USER = "alice, a=1"
# The broker ended the connection, before or after the question was sent.
GONE = (ConnectionEnded, ConnectionError)
MECHANISMS = [mechanism.sasl_name for mechanism in Mechanism]


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredBroker]:
    with SecuredBroker() as running:
        running.add_user(USER, PASSWORD)
        # kafka-python sends a comma as it is.
        running.add_user("alice", PASSWORD)
        running.create_topic("logins")
        yield running


@pytest.fixture
def ask(broker: SecuredBroker) -> Iterator[Asker]:
    with Asker(broker.bootstrap) as asker:
        yield asker


def log_in(ask: Asker, mechanism: Mechanism, user: str = USER, password: str = PASSWORD) -> list[object]:
    """The answers to the messages of a login by SCRAM."""
    assert ask(SASL_HANDSHAKE, mechanism=mechanism.sasl_name).error_code == 0
    steps = own_client(mechanism, user, password)
    first = ask(SASL_AUTHENTICATE, auth_bytes=next(steps))
    return [first, ask(SASL_AUTHENTICATE, auth_bytes=steps.send(first.auth_bytes))]


def metadata(ask: Asker) -> object:
    return ask(METADATA, 12, topics=[], allow_auto_topic_creation=False, include_topic_authorized_operations=False)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_real_client_gets_in_with_the_right_password_and_is_told_of_a_wrong_one(
    client: str, mechanism: str, broker: SecuredBroker
) -> None:
    write = CLIENTS[client]
    assert write(broker.bootstrap, login(mechanism, "alice", PASSWORD)) == "written"
    assert write(broker.bootstrap, login(mechanism, "alice", WRONG)) in REFUSALS[client]


def log_in_as_of_old(ask: Asker, mechanism: Mechanism) -> int:
    """As librdkafka before 2.6.1, which puts its nonce in front of both once more; answers the error code."""
    assert ask(SASL_HANDSHAKE, mechanism=mechanism.sasl_name).error_code == 0
    first = "n=alice,r=0123456789abcdef"
    told = ask(SASL_AUTHENTICATE, auth_bytes=f"n,,{first}".encode()).auth_bytes.decode()
    fields = dict(part.split("=", 1) for part in told.split(","))
    bare = f"c=biws,r=0123456789abcdef{fields['r']}"
    key = salted(mechanism, PASSWORD, base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(key, b"Client Key", mechanism.digest)
    stored_key = hashlib.new(mechanism.digest, client_key).digest()
    signature = hmac.digest(stored_key, f"{first},{told},{bare}".encode(), mechanism.digest)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    return int(ask(SASL_AUTHENTICATE, auth_bytes=f"{bare},p={proof}".encode()).error_code)


def test_logins_of_an_old_library_are_counted_and_each_client_is_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with SecuredBroker() as broker:
        broker.add_user("alice", PASSWORD)
        for mechanism in (*Mechanism, *Mechanism):
            with Asker(broker.bootstrap) as ask:
                assert log_in_as_of_old(ask, mechanism) == 0
                assert metadata(ask)
        with Asker(broker.bootstrap) as ask:
            log_in(ask, Mechanism.SCRAM_SHA_256, user="alice")
        counted = broker.look(lambda running: running.metrics.repeated_nonces)
    told = [one.getMessage() for one in caplog.records if "old_scram_client" in one.getMessage()]
    assert len(told) == 1
    assert "user=alice" in told[0]
    assert counted == 4


def test_plain_is_not_taken_where_it_could_be_read_on_the_way(ask: Asker) -> None:
    refused = ask(SASL_HANDSHAKE, mechanism="PLAIN")
    assert refused.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert list(refused.mechanisms) == MECHANISMS
    with pytest.raises(GONE):
        metadata(ask)


@pytest.mark.parametrize("api_key", [METADATA, DESCRIBE_USER_SCRAM_CREDENTIALS])
def test_before_a_login_a_client_may_ask_for_nothing_else(api_key: int, ask: Asker) -> None:
    ask(API_VERSIONS, client_software_name="test", client_software_version="1")
    with pytest.raises(GONE):
        metadata(ask) if api_key == METADATA else ask(api_key, users=None)


@pytest.mark.parametrize("host", ["0.0.0.0", "", "10.1.2.3"])
def test_a_broker_in_a_program_refuses_a_plain_listener_beyond_the_loopback(host: str) -> None:
    with pytest.raises(ListenersRefused, match="--insecure"):
        Broker(host=host)
    assert Broker(host=host, insecure=True)


def test_a_login_that_was_begun_is_not_one(ask: Asker) -> None:
    mechanism = Mechanism.SCRAM_SHA_256
    ask(SASL_HANDSHAKE, mechanism=mechanism.sasl_name)
    ask(SASL_AUTHENTICATE, auth_bytes=next(own_client(mechanism, USER, PASSWORD)))
    with pytest.raises(GONE):
        metadata(ask)


def test_a_wrong_password_is_answered_in_words_and_ends_the_connection(ask: Asker) -> None:
    *_, answer = log_in(ask, Mechanism.SCRAM_SHA_512, password=WRONG)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "invalid credentials with SASL mechanism SCRAM-SHA-512"
    with pytest.raises(GONE):
        metadata(ask)


def test_a_user_who_does_not_exist_gets_the_same_answers_as_one_with_a_wrong_password(broker: SecuredBroker) -> None:
    answers = []
    for user in (USER, "nobody"):
        with Asker(broker.bootstrap) as ask:
            answers.append(log_in(ask, Mechanism.SCRAM_SHA_256, user, WRONG))
    (first, final), (first_unknown, final_unknown) = answers
    assert final == final_unknown
    assert len(first.auth_bytes) == len(first_unknown.auth_bytes)


def test_messages_out_of_order_are_refused(broker: SecuredBroker) -> None:
    with Asker(broker.bootstrap) as ask:
        answer = ask(SASL_AUTHENTICATE, auth_bytes=b"n,,n=alice,r=abc")
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
    with Asker(broker.bootstrap) as ask:
        ask(SASL_HANDSHAKE, mechanism="SCRAM-SHA-256")
        assert ask(SASL_HANDSHAKE, mechanism="SCRAM-SHA-512").error_code == ErrorCode.ILLEGAL_SASL_STATE
    with Asker(broker.bootstrap) as ask:
        assert ask(SASL_HANDSHAKE, 0, mechanism="SCRAM-SHA-256").error_code == ErrorCode.UNSUPPORTED_VERSION
    with Asker(broker.open) as ask:
        assert ask(SASL_HANDSHAKE, mechanism="SCRAM-SHA-256").error_code == ErrorCode.ILLEGAL_SASL_STATE
    with Asker(broker.open) as ask:
        assert ask(SASL_AUTHENTICATE, auth_bytes=b"x").error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_a_large_request_before_a_login_ends_the_connection_before_memory_is_taken_for_it(ask: Asker) -> None:
    ask.post((33 * 1024).to_bytes(4) + bytes(100))
    with pytest.raises(GONE):
        ask.read()


def test_a_login_is_repeated_over_the_same_connection_and_the_user_stays(broker: SecuredBroker) -> None:
    broker.add_user("bob", PASSWORD)
    with Asker(broker.bootstrap) as ask:
        log_in(ask, Mechanism.SCRAM_SHA_256)
        metadata(ask)
        *_, again = log_in(ask, Mechanism.SCRAM_SHA_256)
        assert again.error_code == 0
        metadata(ask)
        *_, other = log_in(ask, Mechanism.SCRAM_SHA_256, "bob")
        assert other.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert other.error_message == "the user of a connection cannot change"
        with pytest.raises(GONE):
            metadata(ask)
    with Asker(broker.bootstrap) as ask:
        log_in(ask, Mechanism.SCRAM_SHA_256)
        refused = ask(SASL_HANDSHAKE, mechanism="SCRAM-SHA-512")
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_client_with_a_former_password_cannot_repeat_its_login() -> None:
    """Until then its connection stays open, as in Apache Kafka."""
    with SecuredBroker() as broker:
        broker.add_user(USER, PASSWORD)
        with Asker(broker.bootstrap) as ask:
            log_in(ask, Mechanism.SCRAM_SHA_256)
            broker.add_user(USER, "another")
            metadata(ask)
            *_, again = log_in(ask, Mechanism.SCRAM_SHA_256)
            assert again.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            with pytest.raises(GONE):
                metadata(ask)


def test_a_login_expires_and_a_client_that_repeats_it_goes_on() -> None:
    with SecuredBroker(limits=Limits(login_lifetime_ms=60_000)) as broker:
        broker.add_user(USER, PASSWORD)
        with Asker(broker.bootstrap) as ask, Asker(broker.bootstrap) as forgetful:
            *_, answer = log_in(ask, Mechanism.SCRAM_SHA_256)
            assert answer.session_lifetime_ms == 60_000
            log_in(forgetful, Mechanism.SCRAM_SHA_256)
            broker.skip(61)
            log_in(ask, Mechanism.SCRAM_SHA_256)
            metadata(ask)
            with pytest.raises(GONE):
                metadata(forgetful)


def test_so_many_strangers_may_be_connected_and_those_who_log_in_make_room() -> None:
    with SecuredBroker(limits=Limits(unknown_connections_per_address_max=2)) as broker:
        broker.add_user(USER, PASSWORD)
        with Asker(broker.bootstrap) as first, Asker(broker.bootstrap) as second:
            for asker in (first, second):
                asker(API_VERSIONS, client_software_name="test", client_software_version="1")
            with Asker(broker.bootstrap) as third, pytest.raises(GONE):
                third(API_VERSIONS, client_software_name="test", client_software_version="1")
            log_in(first, Mechanism.SCRAM_SHA_256)
            with Asker(broker.bootstrap) as fourth:
                fourth(API_VERSIONS, client_software_name="test", client_software_version="1")
                assert broker.look(lambda b: len(b.doors.strangers)) == 2
        assert eventually(lambda: broker.look(lambda b: not b.doors.strangers))


def test_strangers_of_all_addresses_together_are_limited() -> None:
    with SecuredBroker(limits=Limits(unknown_connections_max=2)) as broker, ExitStack() as open_ones:
        for number in (2, 3):
            asker = open_ones.enter_context(Asker(broker.bootstrap, source=f"127.0.0.{number}"))
            asker(API_VERSIONS, client_software_name="test", client_software_version="1")
        with Asker(broker.bootstrap, source="127.0.0.4") as third, pytest.raises(GONE):
            third(API_VERSIONS, client_software_name="test", client_software_version="1")


def test_a_stranger_may_ask_a_few_times_and_a_user_as_often_as_it_likes() -> None:
    limit = Limits().login_requests_max
    frame = messages.encode_request(API_VERSIONS, 0, 1, None, messages.build_request(API_VERSIONS, 0))
    with SecuredBroker() as broker:
        broker.add_user(USER, PASSWORD)
        with Asker(broker.bootstrap) as ask:
            ask.post(bytes(frame) * (limit + 1))
            for _ in range(limit):
                ask.read()
            with pytest.raises(GONE):
                ask.read()
        with Asker(broker.bootstrap) as ask:
            log_in(ask, Mechanism.SCRAM_SHA_256)
            for _ in range(limit):
                metadata(ask)
            *_, again = log_in(ask, Mechanism.SCRAM_SHA_256)
            assert again.error_code == 0


def test_requests_that_a_stranger_sends_at_once_are_served_in_a_turn_each() -> None:
    limit = Limits().login_requests_max
    frame = messages.encode_request(API_VERSIONS, 0, 1, None, messages.build_request(API_VERSIONS, 0))

    async def most_in_a_turn() -> int:
        (connection,) = broker._broker.connections
        ask.post(bytes(frame) * limit)
        served = [connection._frames_served]
        while served[-1] < limit:
            await asyncio.sleep(0)
            served.append(connection._frames_served)
        return max(later - earlier for earlier, later in pairwise(served))

    with SecuredBroker() as broker, Asker(broker.bootstrap) as ask:
        assert eventually(lambda: broker.look(lambda one: len(list(one.connections))) == 1)
        assert broker._call(most_in_a_turn()) == 1


def test_our_client_goes_on_when_its_login_has_expired() -> None:
    with SecuredBroker(limits=Limits(login_lifetime_ms=60_000)) as broker:
        broker.add_user("alice", PASSWORD)
        broker.create_topic("logins")
        options = {f"kafka.{name}": value for name, value in login("SCRAM-SHA-256", "alice", PASSWORD).items()}
        with Cluster(from_options({"kafka.bootstrap.servers": broker.bootstrap, **options})) as cluster:
            for _ in range(3):
                assert cluster.every_topic()
                broker.skip(61)
                # And for the client as well.
                for connection in cluster._connections.values():
                    assert connection._login_ends_at is not None
                    connection._login_ends_at -= 61
        assert broker.look(lambda b: b.metrics.logins) == 3


@pytest.mark.parametrize("api_key", [SASL_HANDSHAKE, SASL_AUTHENTICATE])
def test_a_request_of_a_login_that_is_cut_anywhere_lets_nobody_in(
    api_key: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever its frame ends early, and, of a message of SCRAM, wherever that does."""
    first = next(own_client(Mechanism.SCRAM_SHA_256, USER, PASSWORD))
    values = {"mechanism": "SCRAM-SHA-256"} if api_key == SASL_HANDSHAKE else {"auth_bytes": first}
    version = NEWEST[api_key]
    request = messages.build_request(api_key, version, **values)
    whole = bytes(messages.encode_request(api_key, version, 1, "asker", request))[4:]
    frames = [whole[:size] for size in range(len(whole))]
    if api_key == SASL_AUTHENTICATE:
        for size in range(len(first) - 1):
            cut = messages.build_request(api_key, version, auth_bytes=first[:size])
            frames.append(bytes(messages.encode_request(api_key, version, 1, "asker", cut))[4:])
    with SecuredBroker(limits=Limits(failed_login_delay_ms=1)) as broker:
        broker.add_user(USER, PASSWORD)
        for frame in frames:
            with Asker(broker.bootstrap) as ask:
                if api_key == SASL_AUTHENTICATE:
                    ask(SASL_HANDSHAKE, mechanism="SCRAM-SHA-256")
                ask.post(len(frame).to_bytes(4) + frame)
                with suppress(*GONE):
                    ask.read()
                with pytest.raises(GONE):
                    metadata(ask)
        assert broker.look(lambda b: b.metrics.logins) == 0
        assert eventually(lambda: broker.look(lambda b: not b.doors.strangers))
    assert "request_failed" not in caplog.text
    assert "Traceback" not in caplog.text


def test_one_password_is_hashed_at_a_time() -> None:
    """Batches of compacted topics are opened in the same thread, and wait for one hash at most."""
    hashing, users = Door(1), Users()
    logins = [Login((PLAIN,), users, lambda: "", None, hashing) for _ in range(3)]
    attempts = []
    for one in logins:
        one.choose(PLAIN)
        attempts.append(one.respond(b"\0alice\0guess"))
    under_way = [next(attempt) for attempt in attempts]
    assert [type(step) for step in under_way] == [Elsewhere, Waiting, Waiting]
    for number, attempt in enumerate(attempts):
        step = under_way[number] if number == 0 else next(attempt)
        assert isinstance(step, Elsewhere)
        step.do()
        with pytest.raises(Refused, match="invalid credentials"):
            next(attempt)


def test_a_password_that_changes_while_it_is_hashed_lets_nobody_in() -> None:
    """Many strangers can make it wait for long."""
    users, salt, credentials = Users(), b"salt", {}
    mechanism = Mechanism.SCRAM_SHA_256
    for password in (PASSWORD, "another"):
        salted_password = salted(mechanism, password, salt, ITERATIONS_MIN)
        credentials[password] = credential_of(mechanism, salted_password, salt, ITERATIONS_MIN)
    users.apply(users.decide_set("alice", mechanism, credentials[PASSWORD]))
    one = Login((PLAIN,), users, lambda: "")
    one.choose(PLAIN)
    attempt = one.respond(f"\0alice\0{PASSWORD}".encode())
    hashing = next(attempt)
    assert isinstance(hashing, Elsewhere)
    users.apply(users.decide_set("alice", mechanism, credentials["another"]))
    hashing.do()
    with pytest.raises(Refused, match="invalid credentials"):
        next(attempt)
    assert not one.is_over


def test_a_user_with_the_right_password_logs_in_by_plain_as_nobody_else() -> None:
    users, salt, mechanism = Users(), b"salt", Mechanism.SCRAM_SHA_256
    salted_password = salted(mechanism, PASSWORD, salt, ITERATIONS_MIN)
    users.apply(users.decide_set("alice", mechanism, credential_of(mechanism, salted_password, salt, ITERATIONS_MIN)))

    def attempt(message: str) -> Login:
        one = Login((PLAIN,), users, lambda: "")
        one.choose(PLAIN)
        finish(one.respond(message.encode()))
        return one

    for acting in ("", "alice"):
        assert attempt(f"{acting}\0alice\0{PASSWORD}").principal == ("User", "alice")
    for acting in ("admin", "Alice", " "):
        with pytest.raises(Refused, match="invalid credentials"):
            attempt(f"{acting}\0alice\0{PASSWORD}")


@given(st.binary(max_size=100) | st.text(max_size=50).map(lambda text: text.encode(errors="surrogatepass")))
def test_no_bytes_of_a_login_by_plain_do_more_than_to_be_refused(message: bytes) -> None:
    one = Login((PLAIN,), Users(), lambda: "")
    one.choose(PLAIN)
    with pytest.raises(Refused):
        finish(one.respond(message))
    assert not one.is_over


def test_a_client_that_does_not_log_in_in_time_is_sent_away() -> None:
    with SecuredBroker() as broker, Asker(broker.bootstrap) as slow:
        slow(API_VERSIONS, client_software_name="test", client_software_version="1")
        broker.skip(21)
        broker.look(lambda b: list(b._chores._look_at_connections()))
        with pytest.raises(GONE):
            slow.read()


def test_users_are_described_altered_and_removed(broker: SecuredBroker) -> None:
    with Asker(broker.open) as ask:
        key = {"name": "carol", "mechanism": 1}
        upsertion = {**key, "iterations": 4096, "salt": b"salt", "salted_password": bytes(32)}

        def alter(deletions: list[object], *upsertions: object) -> list[tuple[str, int]]:
            answer = ask(ALTER_USER_SCRAM_CREDENTIALS, deletions=deletions, upsertions=upsertions)
            return [(result.user, result.error_code) for result in answer.results]

        def describe(*users: str) -> list[tuple[str, int, list[tuple[int, int]]]]:
            answer = ask(DESCRIBE_USER_SCRAM_CREDENTIALS, users=[{"name": user} for user in users])
            return [
                (one.user, one.error_code, [(info.mechanism, info.iterations) for info in one.credential_infos])
                for one in answer.results
            ]

        assert alter([], upsertion, {**upsertion, "mechanism": 2, "salted_password": bytes(64)}) == [("carol", 0)]
        assert describe("carol") == [("carol", 0, [(1, 4096), (2, 4096)])]
        assert describe("carol", "carol") == [("carol", ErrorCode.DUPLICATE_RESOURCE, [])]
        assert describe("nobody") == [("nobody", ErrorCode.RESOURCE_NOT_FOUND, [])]
        assert "carol" in [user for user, *_ in describe()]
        assert alter([key], upsertion) == [("carol", ErrorCode.DUPLICATE_RESOURCE)]
        bad = {**upsertion, "iterations": 1}
        assert alter([{**key, "mechanism": 2}], bad) == [("carol", ErrorCode.UNACCEPTABLE_CREDENTIAL)]
        assert describe("carol") == [("carol", 0, [(1, 4096), (2, 4096)])], "all of a user's changes, or none"
        for salted in (b"", bytes(2_000)):
            refused = {**upsertion, "salted_password": salted}
            assert alter([], refused) == [("carol", ErrorCode.UNACCEPTABLE_CREDENTIAL)]
        # kafka-go's own suite sends one, and Apache Kafka takes any: nobody can log in by it.
        assert alter([], {**upsertion, "salted_password": b"too short"}) == [("carol", 0)]
        assert alter([], {**upsertion, "mechanism": 9}) == [("carol", ErrorCode.UNSUPPORTED_SASL_MECHANISM)]
        assert alter([key, {**key, "mechanism": 2}]) == [("carol", 0)]
        assert alter([key]) == [("carol", ErrorCode.RESOURCE_NOT_FOUND)]


def test_no_part_of_a_password_or_a_key_is_shown_anywhere(caplog: pytest.LogCaptureFixture) -> None:
    # A broker of its own: of many refusals in a short time, the log shows ten.
    with SecuredBroker() as broker, Asker(broker.bootstrap) as ask:
        log_in(ask, Mechanism.SCRAM_SHA_256, "mallory\nlevel=ERROR", WRONG)
    assert "login_refused" in caplog.text
    assert WRONG not in caplog.text
    assert "\nlevel=ERROR" not in caplog.text
