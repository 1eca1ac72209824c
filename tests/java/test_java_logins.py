"""Java's clients get in with the right password or certificate, and with a wrong one report their own error at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from properties import java_login, java_tls, write_properties
from secured import PASSWORD, WRONG, SecuredBroker
from semel.log.broker.certificates import ClientAuth, TlsSettings
from semel.log.security.listeners import SecurityProtocol
from semel.testing.certificates import Authority
from token_provider import Provider

Run = Callable[..., str]
Outcomes = Callable[[SecuredBroker, dict[str, dict[str, str]]], dict[str, set[str]]]

KINDS = ("producer", "consumer", "admin")
SCRAM = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
IN = {"in"}
OAUTH = "org.apache.kafka.common.security.oauthbearer"
REFUSED = {"SaslAuthenticationException"}
# A password that could be read on the way is not asked for.
NOT_TAKEN = {"UnsupportedSaslMechanismException"}
NO_TLS = {"SslAuthenticationException"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def outcomes(run_java_on_semel: Run, tmp_path: Path) -> Outcomes:
    """What a producer, a consumer and an admin client come to with each of these settings."""

    def run(broker: SecuredBroker, clients: dict[str, dict[str, str]]) -> dict[str, set[str]]:
        files = [
            write_properties(tmp_path / f"{name}.properties", {"bootstrap.servers": broker.bootstrap, **settings})
            for name, settings in clients.items()
        ]
        told = [line.split(": ") for line in run_java_on_semel("semel.Logins", "logins", *files).splitlines()]
        assert [who for who, _ in told] == [f"{name} {kind}" for name in clients for kind in KINDS]
        return {name: {outcome for who, outcome in told if who.startswith(f"{name} ")} for name in clients}

    return run


@pytest.mark.parametrize("protocol", [SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL])
def test_java_is_let_in_by_the_right_password_and_told_of_a_wrong_one(
    protocol: SecurityProtocol, authority: Authority, outcomes: Outcomes
) -> None:
    encrypted = protocol == SecurityProtocol.SASL_SSL
    trust = java_tls(authority) if encrypted else {}
    clients: dict[str, dict[str, str]] = {}
    expected: dict[str, set[str]] = {}
    for mechanism in [*SCRAM, "PLAIN"]:
        for user, password, outcome in (
            ("alice", PASSWORD, IN),
            ("alice", WRONG, REFUSED),
            ("nobody", PASSWORD, REFUSED),
        ):
            client = f"{mechanism}-{len(clients)}"
            clients[client] = {**trust, **java_login(mechanism, user, password, protocol)}
            expected[client] = NOT_TAKEN if mechanism == "PLAIN" and not encrypted else outcome
    tls = TlsSettings(*authority.issue("broker", "localhost")) if encrypted else None
    with SecuredBroker(protocol, tls=tls) as broker:
        broker.add_user("alice", PASSWORD)
        broker.create_topic("logins")
        assert outcomes(broker, clients) == expected


def test_java_is_let_in_by_its_certificate_and_reports_one_that_is_refused(
    authority: Authority, tmp_path: Path, outcomes: Outcomes
) -> None:
    stranger = Authority(tmp_path / "stranger", "stranger")
    tls = TlsSettings(
        *authority.issue("broker", "localhost"),
        client_auth=ClientAuth.REQUIRED,
        client_authority=authority.file,
        principal_rules="RULE:^CN=(.*)$/$1/",
    )
    with SecuredBroker(SecurityProtocol.SSL, tls=tls) as broker:
        broker.create_topic("logins")
        alice = authority.issue("alice")
        clients = {
            "right": java_tls(authority, alice),
            "none": java_tls(authority),
            "expired": java_tls(authority, authority.issue("late", expired=True)),
            "stranger": java_tls(authority, stranger.issue("alice")),
            "distrusting": java_tls(stranger, alice),
        }
        expected = dict.fromkeys(clients, NO_TLS) | {"right": IN}
        assert outcomes(broker, clients) == expected


def test_java_is_let_in_by_a_token_and_refused_with_one_for_another_audience(
    authority: Authority, tmp_path: Path, outcomes: Outcomes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the token from a file, which it does only where a property of Java allows it."""
    provider = Provider()
    clients: dict[str, dict[str, str]] = {}
    files = []
    for name, claims in (("right", {}), ("wrong", {"aud": "another"})):
        file = tmp_path / f"{name}.jwt"
        file.write_text(provider.token("alice", iat=int(time.time()), **claims))
        files.append(file.as_uri())
        clients[name] = {
            **java_tls(authority),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required ;",
            "sasl.login.callback.handler.class": f"{OAUTH}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": files[-1],
        }
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={','.join(files)}")
    tls, tokens = TlsSettings(*authority.issue("broker", "localhost")), provider.settings(tmp_path)
    with SecuredBroker(SecurityProtocol.SASL_SSL, tls=tls, tokens=tokens) as broker:
        broker.create_topic("logins")
        assert outcomes(broker, clients) == {"right": IN, "wrong": REFUSED}
