"""A token lets in its user if everything about it is right, and nobody otherwise; its keys are kept, and fetched."""

import asyncio
import base64
import hashlib
import hmac
import json
import os
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from eventually import eventually
from refusal import refused
from semel.log.broker import token_keys
from semel.log.broker.events import Events
from semel.log.broker.token_keys import FETCH_EVERY_SECONDS, REFRESH_SECONDS, TokenKeys, fetch
from semel.log.security.tokens import (
    SKEW_SECONDS,
    TokenSettings,
    TokensRefused,
    UnknownKey,
    checked,
    keys_of,
    read_message,
)
from semel.testing.certificates import Authority
from semel.wire.refusals import SASL_AUTHENTICATION_FAILED, Refused
from token_provider import AUDIENCE, ISSUER, Provider, bearer

NOW = 1_770_000_000.0
EXP = NOW + 600
SETTINGS = TokenSettings("keys.json", ISSUER, AUDIENCE)
PROVIDER = Provider()
KEYS = keys_of(PROVIDER.key_set(), SETTINGS.algorithms)


def part(value: Any) -> str:
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def by_hand(header: Any, claims: Any, sign: Callable[[bytes], bytes] = lambda said: b"") -> str:
    """A token that no library would make."""
    said = f"{part(header)}.{part(claims)}"
    return f"{said}.{part(sign(said.encode()))}"


def signed_by_hand(claims: bytes) -> str:
    """One with claims that are no ordinary JSON, and the right signature."""
    return by_hand(
        {"alg": "RS256", "kid": "first"},
        claims,
        lambda said: RSAAlgorithm(RSAAlgorithm.SHA256).sign(said, PROVIDER.key),
    )


CLAIMS = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": EXP}
PEM = PROVIDER.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_a_token_in_which_everything_is_right_names_its_user(algorithm: str) -> None:
    provider = Provider(algorithm=algorithm)
    keys = keys_of(provider.key_set(), SETTINGS.algorithms)
    found = checked(provider.token(exp=EXP, aud=["other", AUDIENCE]), keys, SETTINGS, NOW)
    assert found == ("alice", EXP + SKEW_SECONDS)


def test_another_claim_may_name_the_user() -> None:
    settings = TokenSettings("keys.json", ISSUER, AUDIENCE, user_claim="client_id")
    assert checked(PROVIDER.token(exp=EXP, client_id="bob"), KEYS, settings, NOW).user == "bob"


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"iss": "https://id.example.com"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"aud": "other"}, "another audience"),
        ({"aud": ["other", "semel2"]}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"aud": {"semel": 1}}, "another audience"),
        ({"exp": NOW - SKEW_SECONDS}, "has expired"),
        ({"exp": None}, "no expiry time"),
        ({"exp": True}, "no expiry time"),
        ({"exp": -1}, "a time that is not valid"),
        ({"exp": 10**30}, "a time that is not valid"),
        ({"exp": 10**400}, "a time that is not valid"),
        ({"nbf": 10**400}, "a time that is not valid"),
        ({"nbf": NOW + SKEW_SECONDS + 1}, "not valid yet"),
        ({"sub": None}, "names no user"),
        ({"sub": "x" * 2_000}, "names no user"),
        # Half of a character: no answer can say this name.
        ({"sub": "\ud800"}, "names no user"),
    ],
)
def test_what_a_token_claims_is_looked_at(claims: dict[str, Any], why: str) -> None:
    token = PROVIDER.token(**{"exp": EXP, **claims})
    with refused(SASL_AUTHENTICATION_FAILED, why):
        checked(token, KEYS, SETTINGS, NOW)


@pytest.mark.parametrize(
    "claims",
    [
        b'{"exp": 1e400}',
        b'{"exp": Infinity}',
        b'{"exp": ' + b"9" * 5_000 + b"}",
        b"[" * 20_000,
        b"[]",
        b"null",
        b"\xff",
        json.dumps(CLAIMS | {"sub": ["alice"]}).encode(),
        json.dumps(CLAIMS | {"sub": ""}).encode(),
        json.dumps(CLAIMS | {"exp": "1770000600"}).encode(),
    ],
)
def test_claims_that_no_provider_makes_are_refused(claims: bytes) -> None:
    with refused(SASL_AUTHENTICATION_FAILED):
        checked(signed_by_hand(claims), KEYS, SETTINGS, NOW)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        "a.b.c",
        by_hand({"alg": "none", "kid": "first"}, CLAIMS),
        by_hand({"alg": "", "kid": "first"}, CLAIMS),
        by_hand({"alg": None, "kid": "first"}, CLAIMS),
        by_hand({"alg": ["RS256"], "kid": "first"}, CLAIMS),
        by_hand({"alg": "HS256", "kid": "first"}, CLAIMS, lambda said: hmac.digest(PEM, said, hashlib.sha256)),
        by_hand({"alg": "RS256", "kid": "first"}, CLAIMS, lambda said: hmac.digest(PEM, said, hashlib.sha256)),
        PROVIDER.token(exp=EXP)[:-2],
        PROVIDER.token(exp=EXP, headers={"kid": None}),
        PROVIDER.token(exp=EXP, headers={"crit": ["b64"], "b64": True}),
        Provider(algorithm="ES256").token(exp=EXP),
        Provider("other").token(exp=EXP, headers={"jwk": Provider("other").public()}),
        Provider(algorithm="RS512").token(exp=EXP),
    ],
)
def test_a_token_that_the_provider_has_not_signed_like_this_is_refused(token: str) -> None:
    with refused(SASL_AUTHENTICATION_FAILED):
        checked(token, KEYS, SETTINGS, NOW)


@pytest.mark.parametrize("of_key", [{"use": "enc"}, {"alg": "RS512"}, {"kty": "EC"}, {"n": "AQ"}])
def test_a_key_that_is_for_something_else_is_none(of_key: dict[str, str]) -> None:
    with pytest.raises(TokensRefused, match="no key with a kid"):
        keys_of(Provider(**of_key).key_set(), SETTINGS.algorithms)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_of_a_pair_of_keys_in_the_key_set_the_public_one_is_used(algorithm: str) -> None:
    provider = Provider(algorithm=algorithm)
    of_jwt: Any = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm}[algorithm]
    pair = {**of_jwt.to_jwk(provider.key, as_dict=True), "kid": "first"}
    assert "d" in pair
    keys = keys_of(json.dumps({"keys": [pair]}).encode(), SETTINGS.algorithms)
    assert checked(provider.token(exp=EXP), keys, SETTINGS, NOW).user == "alice"


def test_a_shared_secret_in_the_key_set_is_no_key() -> None:
    with pytest.raises(TokensRefused, match="no key with a kid"):
        keys_of(b'{"keys": [{"kty": "oct", "kid": "first", "k": "c2VjcmV0"}]}', SETTINGS.algorithms)


@pytest.mark.parametrize("algorithm", ["none", "HS256", "RS1", ""])
def test_an_algorithm_by_which_anybody_could_sign_cannot_be_allowed(algorithm: str) -> None:
    with pytest.raises(TokensRefused, match="is no algorithm for tokens"):
        TokenSettings("keys.json", ISSUER, AUDIENCE, (algorithm,))


@pytest.mark.parametrize("keys", ["http://id.example.org/keys", "ftp://id.example.org/keys"])
def test_keys_are_fetched_over_https_alone(keys: str) -> None:
    with pytest.raises(TokensRefused, match="https"):
        TokenSettings(keys, ISSUER, AUDIENCE)


def test_a_message_names_the_token_and_perhaps_the_user() -> None:
    assert read_message(bearer("a.b.c")) == (None, "a.b.c")
    assert read_message(b"n,a=a=2Cb=3D2C,\x01auth=Bearer a.b.c\x01\x01") == ("a,b=2C", "a.b.c")
    assert read_message(b"n,a=alice,\x01host=h\x01auth=Bearer a.b.c\x01traceId=7\x01\x01") == ("alice", "a.b.c")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,\x01auth=Bearer a.b.c\x01",
        b"n,,\x01\x01",
        b"y,,\x01auth=Bearer a.b.c\x01\x01",
        b"n,,\x01auth=Basic a.b.c\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01auth=Bearer d.e.f\x01\x01",
        b"\xff\xfe",
    ],
)
def test_a_message_that_says_something_else_is_refused(message: bytes) -> None:
    with refused(SASL_AUTHENTICATION_FAILED, "cannot be read"):
        read_message(message)


@given(st.one_of(st.binary(max_size=200), st.text(alphabet="n,a=\x01uthBearer .", max_size=60).map(str.encode)))
def test_no_bytes_of_a_client_do_more_than_to_be_refused(message: bytes) -> None:
    with refused(SASL_AUTHENTICATION_FAILED):
        checked(read_message(message)[1], KEYS, SETTINGS, NOW)


# -- keys --------------------------------------------------------------------------------------------------------------


def test_a_file_is_read_again_when_it_changes_and_garbage_changes_nothing(tmp_path: Path) -> None:
    first, second = Provider(), Provider("second")
    settings = first.settings(tmp_path)
    keys = TokenKeys(settings, Events(), time_of_day=lambda: NOW)
    assert keys.check(first.token(exp=EXP)).user == "alice"
    file = Path(settings.keys)
    file.write_bytes(b"garbage")
    assert keys.check(first.token(exp=EXP)).user == "alice"
    file.write_bytes(second.key_set(first))
    assert keys.check(second.token(exp=EXP)).user == "alice"
    file.write_bytes(second.key_set())
    with pytest.raises(UnknownKey):
        keys.check(first.token(exp=EXP))
    file.unlink()
    assert keys.check(second.token(exp=EXP)).user == "alice"


def test_a_file_is_read_again_when_the_broker_comes_to_be_allowed_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second, settings = Provider("second"), PROVIDER.settings(tmp_path)
    keys, file = TokenKeys(settings, Events(), time_of_day=lambda: NOW), Path(settings.keys)
    file.write_bytes(second.key_set())
    with monkeypatch.context() as denied:
        denied.setattr(TokenKeys, "_file_content", lambda _: PermissionError(13, "Permission denied"))
        assert keys.check(PROVIDER.token(exp=EXP)).user == "alice"

    def is_allowed() -> bool:
        file.chmod(0o640)
        keys.refresh()
        return ("second", "RS256") in keys._keys

    assert eventually(is_allowed)


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"keys": []}', b"[" * 100_000])
def test_a_file_without_a_key_is_refused_at_the_start_and_named(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(TokensRefused, match=str(file)):
        TokenKeys(TokenSettings(str(file), ISSUER, AUDIENCE), Events())


class Remote:
    """The keys of a provider that answers when a test lets it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.fetches: list[Callable[[bytes | Exception], None]] = []
        settings = TokenSettings("https://id.example.org/keys", ISSUER, AUDIENCE)
        self.keys = TokenKeys(
            settings,
            Events(),
            time_of_day=lambda: NOW,
            steady=lambda: self.now,
            run_apart=lambda _work, done: self.fetches.append(done),
        )

    def enters(self, provider: Provider) -> bool:
        try:
            self.keys.check(provider.token(exp=EXP))
        except Refused:
            return False
        return True


def test_without_keys_nobody_enters_and_the_provider_is_asked_once_a_minute() -> None:
    remote = Remote()
    for _ in range(100):
        assert not remote.enters(PROVIDER)
    assert len(remote.fetches) == 1
    remote.fetches[0](OSError("unreachable"))
    for _ in range(100):
        assert not remote.enters(PROVIDER)
    assert len(remote.fetches) == 1
    remote.now += FETCH_EVERY_SECONDS
    assert not remote.enters(PROVIDER)
    remote.fetches[1](PROVIDER.key_set())
    assert remote.enters(PROVIDER)


def test_an_unknown_key_is_looked_for_once_a_minute_and_the_old_ones_stay() -> None:
    remote, other = Remote(), Provider("other")
    remote.keys.refresh()
    remote.fetches[0](PROVIDER.key_set())
    for _ in range(100):
        assert not remote.enters(other)
        assert remote.enters(PROVIDER)
    assert len(remote.fetches) == 1
    remote.now += FETCH_EVERY_SECONDS
    assert not remote.enters(other)
    assert len(remote.fetches) == 2
    remote.now += FETCH_EVERY_SECONDS
    assert not remote.enters(other)
    # One answer is waited for at a time.
    assert len(remote.fetches) == 2
    remote.fetches[1](b"garbage")
    assert remote.enters(PROVIDER)
    remote.now += FETCH_EVERY_SECONDS
    assert not remote.enters(other)
    remote.fetches[2](PROVIDER.key_set(other))
    assert remote.enters(other)
    assert remote.enters(PROVIDER)


def test_a_fetch_that_ends_in_whatever_way_is_not_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that the provider has taken away would let somebody in for ever."""
    asked = []

    def fail(url: str) -> bytes:
        asked.append(url)
        raise LookupError("a fault of the library")

    async def scenario() -> None:
        told = asyncio.Event()
        events = Events()
        monkeypatch.setattr(events, "tell", lambda *_, **__: told.set())
        minutes = iter(range(0, 1000, 100))
        settings = TokenSettings("https://id.example.org/keys", ISSUER, AUDIENCE)
        keys = TokenKeys(settings, events, steady=lambda: next(minutes))
        for _ in range(2):
            told.clear()
            keys.refresh()
            await asyncio.wait_for(told.wait(), 30)

    monkeypatch.setattr(token_keys, "fetch", fail)
    asyncio.run(scenario())
    assert len(asked) == 2


def test_keys_are_fetched_again_after_an_hour() -> None:
    """One that the provider has taken away lets nobody in for longer."""
    remote, other = Remote(), Provider("other")
    remote.keys.refresh()
    remote.fetches[0](PROVIDER.key_set())
    remote.now += REFRESH_SECONDS - 1
    assert remote.enters(PROVIDER)
    assert len(remote.fetches) == 1
    remote.now += 1
    remote.enters(PROVIDER)
    remote.fetches[1](other.key_set())
    assert not remote.enters(PROVIDER)


class Quiet(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(authority: Authority, handler: type[Quiet]) -> Iterator[str]:
    """A provider that answers like this; its URL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("provider", "localhost"))
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"https://localhost:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_keys_come_over_tls_that_is_trusted_and_never_from_where_a_provider_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)

    class Answers(Quiet):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/keys" else 302)
            self.send_header("Location", "/keys")
            self.end_headers()
            self.wfile.write(PROVIDER.key_set())

    with serving(authority, Answers) as url:
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            fetch(f"{url}/keys")
        monkeypatch.setitem(os.environ, "SSL_CERT_FILE", authority.file)
        assert fetch(f"{url}/keys") == PROVIDER.key_set()
        with pytest.raises(OSError, match="302"):
            fetch(f"{url}/elsewhere")


def test_a_provider_that_never_comes_to_the_content_is_left_after_some_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or its keys would never be fetched again: one fetch is made at a time."""
    authority = Authority(tmp_path)
    monkeypatch.setitem(os.environ, "SSL_CERT_FILE", authority.file)

    class Putting(Quiet):
        def do_GET(self) -> None:
            # Python bounds how many lines there are before the content and how long each is, but not how slow.
            with suppress(OSError):
                self.wfile.write(b"HTTP/1.1 200 OK\r\n")
                while True:
                    for byte in b"Padding: " + b"a" * 60_000 + b"\r\n":
                        self.wfile.write(bytes([byte]))

    with serving(authority, Putting) as url, pytest.raises(TimeoutError):
        fetch(f"{url}/keys", seconds_max=0.1)
