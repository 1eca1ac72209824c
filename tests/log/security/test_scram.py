"""The broker's side of SCRAM lets in the client that has the right password, and nobody else, whatever is sent."""

import base64
import contextlib
import hashlib
import hmac
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient, ScramException, ScramMechanism

from secured import own_client
from semel.client import AuthenticationFailed
from semel.log.core.users import ITERATIONS_MIN, Users
from semel.log.security.scram import ScramExchange
from semel.wire.refusals import SASL_AUTHENTICATION_FAILED, Refused
from semel.wire.scram import Mechanism, credential_of, salted

USER, PASSWORD, SALT = "alice, a=1", 'se"cret', b"0123456789abcdef"
MECHANISMS = list(Mechanism)
SALTED = {mechanism: salted(mechanism, PASSWORD, SALT, ITERATIONS_MIN) for mechanism in Mechanism}
nonces = map(str, itertools.count(10**20))


def users_with(user: str = USER, mechanisms: list[Mechanism] = MECHANISMS) -> Users:
    users = Users()
    users.secret = bytes(32)
    for mechanism in mechanisms:
        credential = credential_of(mechanism, SALTED[mechanism], SALT, ITERATIONS_MIN)
        users.apply(users.decide_set(user, mechanism, credential))
    return users


ALL_USERS = users_with()


def exchange_of(mechanism: Mechanism, users: Users = ALL_USERS) -> ScramExchange:
    return ScramExchange(mechanism, users, next(nonces))


def failure(exchange: ScramExchange, message: bytes) -> str:
    with pytest.raises(Refused) as refused:
        exchange.respond(message)
    assert refused.value.error == SASL_AUTHENTICATION_FAILED
    assert exchange.user is None
    return refused.value.message


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_another_implementation_gets_in_with_the_right_password_and_believes_the_answer(mechanism: Mechanism) -> None:
    client, exchange = ScramClient([mechanism.sasl_name], USER, PASSWORD), exchange_of(mechanism)
    client.set_server_first(exchange.respond(client.get_client_first().encode()).decode())
    assert exchange.user is None, "finished with the first message, and not authenticated"
    client.set_server_final(exchange.respond(client.get_client_final().encode()).decode())
    assert exchange.user == USER


# What librdkafka 2.5.3 has sent to a broker with this nonce, in which the password of `admin` was `secret`: the salt of
# the answer, its nonce, and its proof.
OLD_OWN_NONCE = "broker-nonce-broker-nonce-broker-nonce-1234"
OLD_LIBRDKAFKA = {
    Mechanism.SCRAM_SHA_256: (
        "4BO5mKaBUQHVSptzdh6zjEbMmKGvU/1t2kmepxvKYhQ=",
        "v9xjMwg9c]cPTWqEkipfr[6.1BjGSFnl",
        "sPizM7r6vNUQ0hf4DfH1G4LDA3VAfhXAB3TXFfrCbSo=",
    ),
    Mechanism.SCRAM_SHA_512: (
        "u4XsJ+z2Fw4tBrcnxQCACXNQK/eUWwuo9jy4qobSY/8=",
        "6p]GBa7oq7uZHmY]7pa/jKpQwTDr83KO",
        "VAeGq6dJpZWPKM4Nh0O7gyCkvE/QIgvmGDAvjTiKAfUKJA2HwxKOl2ctaTszH3LJpQxSWaLNgPrUbQ6NwZNSAA==",
    ),
}


def old_exchange(mechanism: Mechanism) -> ScramExchange:
    """An exchange with that broker, after the first message."""
    salt, nonce, _ = OLD_LIBRDKAFKA[mechanism]
    key = salted(mechanism, "secret", base64.b64decode(salt), 4096)
    users = Users()
    users.apply(users.decide_set("admin", mechanism, credential_of(mechanism, key, base64.b64decode(salt), 4096)))
    exchange = ScramExchange(mechanism, users, OLD_OWN_NONCE)
    assert exchange.respond(f"n,,n=admin,r={nonce}".encode()) == f"r={nonce}{OLD_OWN_NONCE},s={salt},i=4096".encode()
    return exchange


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_of_librdkafka_before_2_6_1_gets_in_with_its_nonce_twice(mechanism: Mechanism) -> None:
    _, nonce, proof = OLD_LIBRDKAFKA[mechanism]
    exchange = old_exchange(mechanism)
    exchange.respond(f"c=biws,r={nonce}{nonce}{OLD_OWN_NONCE},p={proof}".encode())
    assert (exchange.user, exchange.repeats_nonce) == ("admin", True)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_only_that_form_is_taken_beside_the_right_one(mechanism: Mechanism) -> None:
    _, nonce, proof = OLD_LIBRDKAFKA[mechanism]
    whole = nonce + OLD_OWN_NONCE
    others = (
        *(OLD_OWN_NONCE, nonce, nonce * 2, nonce * 3 + OLD_OWN_NONCE, whole + OLD_OWN_NONCE, whole + whole),
        *(f"x{whole}", f"{nonce[:-1]}{whole}", f"{nonce.upper()}{whole}", f"{nonce}{whole}x"),
    )
    for other in others:
        exchange = old_exchange(mechanism)
        assert "invalid credentials" in failure(exchange, f"c=biws,r={other},p={proof}".encode())
        assert not exchange.repeats_nonce
    # The proof is of what was sent: that of one form is none of the other.
    failure(old_exchange(mechanism), f"c=biws,r={whole},p={proof}".encode())


@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_password_that_changes_between_the_two_messages_lets_nobody_in(mechanism: Mechanism, removed: bool) -> None:
    """A client that is logged in could keep the second message back until its login has expired."""
    users = users_with()
    client, exchange = ScramClient([mechanism.sasl_name], USER, PASSWORD), exchange_of(mechanism, users)
    client.set_server_first(exchange.respond(client.get_client_first().encode()).decode())
    if removed:
        users.apply(users.decide_remove(USER, mechanism))
    else:
        other = salted(mechanism, "another", SALT, ITERATIONS_MIN)
        users.apply(users.decide_set(USER, mechanism, credential_of(mechanism, other, SALT, ITERATIONS_MIN)))
    failure(exchange, client.get_client_final().encode())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_another_implementation_stays_out_with_a_wrong_password(mechanism: Mechanism) -> None:
    client, exchange = ScramClient([mechanism.sasl_name], USER, PASSWORD + "!"), exchange_of(mechanism)
    client.set_server_first(exchange.respond(client.get_client_first().encode()).decode())
    failure(exchange, client.get_client_final().encode())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_client_gets_into_another_implementation_and_is_told_of_a_wrong_password(mechanism: Mechanism) -> None:
    other = ScramMechanism(mechanism.sasl_name)
    held = other.make_auth_info(PASSWORD, iteration_count=ITERATIONS_MIN)
    for password, gets_in in ((PASSWORD, True), ("wrong", False)):
        server = other.make_server(lambda _: held)
        steps = own_client(mechanism, "alice", password)
        server.set_client_first(next(steps).decode())
        final = steps.send(server.get_server_first().encode())
        with contextlib.nullcontext() if gets_in else pytest.raises(ScramException):
            server.set_client_final(final.decode())
        if gets_in:
            with pytest.raises(StopIteration):
                steps.send(server.get_server_final().encode())


@given(st.sampled_from(MECHANISMS), st.text(min_size=1, max_size=20), st.text(max_size=20))
def test_only_the_right_user_with_the_right_password_gets_in(mechanism: Mechanism, user: str, password: str) -> None:
    """And of another user, or of one that does not exist, no client can tell before the end."""
    if "\0" in user or any(0xD800 <= ord(letter) < 0xE000 for letter in user + password):
        return
    users = users_with(user, [mechanism])
    for tried_user, tried, gets_in in ((user, PASSWORD, True), (user, password, password == PASSWORD)):
        exchange, steps = exchange_of(mechanism, users), own_client(mechanism, tried_user, tried)
        final = steps.send(exchange.respond(next(steps)))
        if gets_in:
            with pytest.raises(StopIteration):
                steps.send(exchange.respond(final))
            assert exchange.user == user
        else:
            assert "invalid credentials" in failure(exchange, final)


@given(st.sampled_from(MECHANISMS), st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes_are_refused_and_nothing_else_happens(mechanism: Mechanism, first: bytes, second: bytes) -> None:
    exchange = exchange_of(mechanism)
    for message in (first, second):
        with contextlib.suppress(Refused):
            exchange.respond(message)
    assert exchange.user is None


@given(st.sampled_from(MECHANISMS), st.data())
def test_a_final_message_that_was_changed_in_one_place_is_refused(mechanism: Mechanism, data: st.DataObject) -> None:
    """Channel binding, nonce and proof all count: a change of any byte that keeps it readable keeps the client out."""
    exchange, steps = exchange_of(mechanism), own_client(mechanism, USER, PASSWORD)
    final = bytearray(steps.send(exchange.respond(next(steps))))
    place = data.draw(st.integers(0, len(final) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != final[place]))
    unused_bits = final[place + 1 : place + 2] == b"=" or (place >= len(final) - 2)
    final[place] = other
    if unused_bits and _same_base64(bytes(final)):
        return
    failure(exchange, bytes(final))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_proof_with_more_behind_it_is_none(mechanism: Mechanism) -> None:
    exchange, steps = exchange_of(mechanism), own_client(mechanism, USER, PASSWORD)
    rest, _, proof = steps.send(exchange.respond(next(steps))).rpartition(b"p=")
    failure(exchange, rest + b"p=" + base64.b64encode(base64.b64decode(proof) + b"x"))


def _same_base64(final: bytes) -> bool:
    """Whether the last letter differs only in bits that are not part of any byte."""
    try:
        base64.b64decode(final.rpartition(b"p=")[2], validate=True)
    except ValueError:
        return False
    return True


def test_a_user_who_does_not_exist_has_a_salt_that_stays_the_same_and_cannot_be_told_from_a_user() -> None:
    mechanism = Mechanism.SCRAM_SHA_512
    answers = []
    for user in ("nobody", "nobody", "noone"):
        steps = own_client(mechanism, user, PASSWORD)
        fields = exchange_of(mechanism).respond(next(steps)).decode().split(",")
        answers.append(fields[1:])
    assert answers[0] == answers[1] != answers[2]
    assert answers[0][1] == f"i={ITERATIONS_MIN}"
    other = users_with()
    other.secret = b"another secret".ljust(32)
    fields = exchange_of(mechanism, other).respond(next(own_client(mechanism, "nobody", PASSWORD))).decode().split(",")
    assert fields[1:] != answers[0], "who knows no secret cannot compute the salt"


@pytest.mark.parametrize("secret", [bytes(32)])
def test_the_keys_that_are_made_up_let_nobody_in(secret: bytes) -> None:
    """Not even a client that could compute them."""
    mechanism = Mechanism.SCRAM_SHA_256
    steps, exchange = own_client(mechanism, "nobody", PASSWORD), exchange_of(mechanism)
    failure(exchange, steps.send(exchange.respond(next(steps))))


@pytest.mark.parametrize(
    "first",
    [
        b"p=tls-unique,,n=alice,r=abc",
        b"n,a=bob,n=alice,r=abc",
        b"n,,m=must,n=alice,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,n=alice,r=",
        b"n,,n=,r=abc",
        b"n,,n=alice,r=a b",
        b"n,,n=alice,r=abc,m=must",
        b"\xff",
        b"",
    ],
)
def test_a_first_message_that_asks_for_what_is_not_there_is_refused(first: bytes) -> None:
    exchange = exchange_of(Mechanism.SCRAM_SHA_256)
    failure(exchange, first)
    failure(exchange, b"n,,n=alice,r=abc")


def test_the_nonce_is_the_clients_followed_by_the_brokers() -> None:
    exchange = ScramExchange(Mechanism.SCRAM_SHA_256, ALL_USERS, "BROKER")
    assert exchange.respond(b"n,,n=alice,r=abc").startswith(b"r=abcBROKER,s=")
    assert "invalid credentials" in failure(exchange, b"c=biws,r=abc,p=AAAA")
    failure(exchange, b"c=biws,r=abcBROKER,p=AAAA")


@pytest.mark.parametrize("changes", [{"header": "eSws"}, {"nonce": "r=other"}])
def test_the_header_and_the_nonce_of_the_second_message_are_those_of_the_first(changes: dict[str, str]) -> None:
    """Even with a proof of just these messages, which only the user can compute."""
    mechanism = Mechanism.SCRAM_SHA_256
    exchange = exchange_of(mechanism)
    first = exchange.respond(b"n,,n=alice=2C a=3D1,r=abc").decode()
    final = f"c={changes.get('header', 'biws')},{changes.get('nonce', first.partition(',')[0])}"
    said = f"n=alice=2C a=3D1,r=abc,{first},{final}".encode()
    key = hmac.digest(SALTED[mechanism], b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(key).digest(), said, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    assert "invalid credentials" in failure(exchange, f"{final},p={proof}".encode())


def test_our_client_leaves_a_broker_that_asks_for_too_many_iterations() -> None:
    steps = own_client(Mechanism.SCRAM_SHA_256, USER, PASSWORD)
    nonce = next(steps).decode().split("r=")[1]
    with pytest.raises(AuthenticationFailed):
        steps.send(f"r={nonce}more,s=c2FsdA==,i=2000000000".encode())
