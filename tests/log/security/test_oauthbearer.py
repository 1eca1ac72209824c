"""Clients log in by tokens of an identity provider (OAUTHBEARER), and have to do it again when these expire."""

import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from kafka.net.sasl.oauth import AbstractTokenProvider

import token_provider
from asking import Asker, ConnectionEnded
from asking_over_tls import TlsAsker
from secured import CLIENTS, REFUSALS, SecuredBroker
from semel.client import sasl
from semel.client.errors import AuthenticationFailed, SettingsRefused
from semel.client.settings import ClientSettings, from_options
from semel.log.broker.certificates import TlsSettings
from semel.log.security.listeners import ListenersRefused, SecurityProtocol
from semel.log.security.tokens import SKEW_SECONDS
from semel.testing.broker import FaultyBroker
from semel.testing.certificates import Authority
from semel.wire.errors import ErrorCode
from semel.wire.versions import METADATA, SASL_AUTHENTICATE, SASL_HANDSHAKE
from semel_command import semel_failure
from token_provider import Provider, bearer

PROVIDER = Provider()
MINUTE = 60


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    tokens = PROVIDER.settings(tmp_path_factory.mktemp("keys"))
    tls = TlsSettings(*authority.issue("broker", "localhost", "127.0.0.1"))
    with SecuredBroker(SecurityProtocol.SASL_SSL, tls=tls, tokens=tokens) as broker:
        yield broker


class Ask(TlsAsker):
    """A client that does what a test tells it."""

    def log_in(self, token: str, acting: str = "") -> Any:
        assert self(SASL_HANDSHAKE, mechanism="OAUTHBEARER").error_code == 0
        return self(SASL_AUTHENTICATE, auth_bytes=bearer(token, acting))

    def is_served(self) -> bool:
        try:
            self(METADATA, 1, topics=[])
        except (ConnectionEnded, OSError):
            return False
        return True


@pytest.fixture
def ask(broker: SecuredBroker, authority: Authority) -> Iterator[Ask]:
    with Ask(broker.bootstrap, authority) as ask:
        yield ask


class Gives(AbstractTokenProvider):
    """What kafka-python asks for a token."""

    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


class AioGives(AioTokenProvider):
    """The same of aiokafka."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def of_confluent(token: str) -> dict[str, Any]:
    return {"oauth_cb": lambda _: (token, time.time() + MINUTE)}


def of_semel(token: str) -> dict[str, Any]:
    token_provider.CURRENT["token"] = token
    return {"sasl.oauthbearer.token.callback": "token_provider:current"}


SETTINGS: dict[str, Callable[[str], dict[str, Any]]] = {
    "semel": of_semel,
    "confluent": of_confluent,
    "kafka-python": lambda token: {"sasl_oauth_token_provider": Gives(token)},
    "aiokafka": lambda token: {"sasl_oauth_token_provider": AioGives(token)},
}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_real_client_gets_in_with_a_token_and_is_refused_with_one_that_has_expired(
    client: str, broker: SecuredBroker, authority: Authority
) -> None:
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "ssl.ca.location": authority.file}
    write = CLIENTS[client]
    assert write(broker.bootstrap, {**login, **SETTINGS[client](PROVIDER.token())}) == "written"
    expired = PROVIDER.token(exp=time.time() - MINUTE)
    assert write(broker.bootstrap, {**login, **SETTINGS[client](expired)}) in REFUSALS[client]


def test_a_client_is_the_user_whom_its_token_names(broker: SecuredBroker, ask: Ask) -> None:
    answer = ask.log_in(PROVIDER.token("alice"), acting="a=alice")
    assert (answer.error_code, answer.auth_bytes) == (0, b"")
    known = broker.look(lambda inner: [str(one.principal) for one in inner.connections])
    assert "User:alice" in known


def test_keys_are_looked_at_even_if_nobody_logs_in(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Or the first login after a long time would be judged by keys that the provider took away long before."""
    tokens = PROVIDER.settings(tmp_path)
    tls = TlsSettings(*authority.issue("looking", "localhost", "127.0.0.1"))
    with SecuredBroker(SecurityProtocol.SASL_SSL, tls=tls, tokens=tokens) as broker:
        Path(tokens.keys).write_text("garbage")
        broker.look(lambda b: b.doors.look_at_credentials())
        assert "event=token_keys_refused" in caplog.text


def test_nobody_acts_as_somebody_else(ask: Ask) -> None:
    assert ask.log_in(PROVIDER.token("alice"), "a=bob").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not ask.is_served()


def test_a_login_lasts_as_long_as_its_token(broker: SecuredBroker, ask: Ask) -> None:
    answer = ask.log_in(PROVIDER.token(exp=time.time() + MINUTE))
    lifetime_ms = answer.session_lifetime_ms
    assert 0 < lifetime_ms <= (MINUTE + SKEW_SECONDS) * 1000
    assert ask.is_served()
    broker.skip(lifetime_ms / 1000)
    assert not ask.is_served()


def test_a_login_is_repeated_with_a_new_token_and_the_user_stays(broker: SecuredBroker, ask: Ask) -> None:
    ask.log_in(PROVIDER.token("alice", exp=time.time() + MINUTE))
    assert ask.log_in(PROVIDER.token("alice")).error_code == 0
    broker.skip(2 * MINUTE)
    assert ask.is_served()
    assert ask.log_in(PROVIDER.token("bob")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert not ask.is_served()


def test_a_refusal_says_why_and_shows_no_token(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tls, tokens = TlsSettings(*authority.issue("broker", "localhost")), PROVIDER.settings(tmp_path)
    token = PROVIDER.token(aud="another")
    with (
        SecuredBroker(SecurityProtocol.SASL_SSL, tls=tls, tokens=tokens) as broker,
        Ask(broker.bootstrap, authority) as ask,
    ):
        answer = ask.log_in(token)
    assert answer.error_message == "OAUTHBEARER: the token is for another audience"
    assert "login_refused" in caplog.text
    assert token not in caplog.text


def test_tokens_are_taken_over_tls_alone(tmp_path: Path) -> None:
    with pytest.raises(ListenersRefused, match="SASL_SSL only"):
        FaultyBroker(tokens=PROVIDER.settings(tmp_path)).start()
    with SecuredBroker() as broker, Asker(broker.bootstrap) as ask:
        answer = ask(SASL_HANDSHAKE, mechanism="OAUTHBEARER")
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--token-issuer=x"], "--token-issuer is given without --token-keys"),
        (["--token-keys=/nowhere", "--token-issuer=x", "--token-audience=y"], "/nowhere: No such file"),
    ],
)
def test_settings_of_tokens_that_cannot_be_are_refused_in_one_line(
    words: list[str], told: str, authority: Authority, tmp_path: Path
) -> None:
    certificate, key = authority.issue("broker", "localhost")
    tls = [f"--tls-certificate={certificate}", f"--tls-key={key}", "--listen=SASL_SSL://localhost:0"]
    assert told in semel_failure("serve", f"--data={tmp_path / 'data'}", *tls, *words)


def failing() -> str:
    raise RuntimeError("planted-5ecret")


@pytest.mark.parametrize("callback", ["test_oauthbearer:failing", "nowhere:token", "token_provider:PAGE"])
def test_a_function_that_gives_no_token_is_named_without_what_it_said(callback: str) -> None:
    settings = ClientSettings((), sasl_mechanism="OAUTHBEARER", sasl_token_callback=callback)
    with pytest.raises(AuthenticationFailed, match=f"the function {callback} gave no token") as failed:
        sasl.steps(settings)
    assert "planted" not in "".join(traceback.format_exception(failed.value))


@pytest.mark.parametrize(
    "options",
    [
        {"sasl.mechanism": "OAUTHBEARER"},
        {"sasl.oauthbearer.token.callback": "a:b"},
        {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.callback": "no function"},
    ],
)
def test_options_of_tokens_that_do_not_belong_together_are_refused(options: dict[str, str]) -> None:
    named = {"bootstrap.servers": "one", "security.protocol": "SASL_SSL", **options}
    with pytest.raises(SettingsRefused, match="oauthbearer"):
        from_options({f"kafka.{name}": value for name, value in named.items()})
