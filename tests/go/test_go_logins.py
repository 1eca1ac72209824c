"""franz-go, kafka-go and Sarama get in at each kind of listener with the right password, token or certificate, and
report their own error with a wrong one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from secured import PASSWORD, WRONG, SecuredBroker
from semel.log.broker.certificates import ClientAuth, TlsSettings
from semel.log.security.listeners import SecurityProtocol
from semel.testing.certificates import Authority
from token_provider import Provider

CLIENTS = ("franz-go", "kafka-go", "sarama")
TOPIC = "logins"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
IN, REFUSED, NOT_TAKEN, NO_TLS = "in", "refused", "not taken", "no TLS"
# Sarama logs which mechanisms the broker takes, and reports only that no broker could be used.
REPORTED = {("sarama", NOT_TAKEN): "no broker"}

Case = dict[str, str]
LogIn = Callable[[dict[str, Case]], dict[str, str]]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def expect(log_in: LogIn, broker: SecuredBroker, cases: dict[str, tuple[Case, str]], bootstrap: str = "") -> None:
    """Each client comes to this with each case, and whoever is let in has written one record."""
    address = bootstrap or broker.bootstrap
    outcomes = log_in({name: {"Bootstrap": address, "Topic": TOPIC, **case} for name, (case, _) in cases.items()})
    assert outcomes == {
        f"{client} {name}": REPORTED.get((client, outcome), outcome)
        for client in CLIENTS
        for name, (_, outcome) in cases.items()
    }
    let_in = sum(outcome == IN for _, outcome in cases.values())
    assert sorted(record.value or b"" for record in broker.log(TOPIC)) == sorted(
        client.encode() for client in CLIENTS for _ in range(let_in)
    )


@pytest.mark.parametrize("protocol", [SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL])
def test_go_is_let_in_by_the_right_password_and_told_of_a_wrong_one(
    protocol: SecurityProtocol, authority: Authority, log_in: LogIn
) -> None:
    encrypted = protocol == SecurityProtocol.SASL_SSL
    trust = {"Authority": authority.file} if encrypted else {}
    cases: dict[str, tuple[Case, str]] = {}
    for mechanism in (*SCRAM, "PLAIN"):
        for name, user, password, outcome in (
            ("right", "alice", PASSWORD, IN),
            ("wrong", "alice", WRONG, REFUSED),
            ("unknown", "nobody", PASSWORD, REFUSED),
        ):
            login = {"Mechanism": mechanism, "User": user, "Password": password}
            # A password that could be read on the way is not asked for.
            is_taken = encrypted or mechanism != "PLAIN"
            cases[f"{mechanism} {name}"] = {**trust, **login}, outcome if is_taken else NOT_TAKEN
    tls = TlsSettings(*authority.issue("broker", "localhost")) if encrypted else None
    with SecuredBroker(protocol, tls=tls) as broker:
        broker.add_user("alice", PASSWORD)
        broker.create_topic(TOPIC)
        expect(log_in, broker, cases)


def test_go_is_let_in_by_its_certificate_and_reports_one_that_is_refused(
    authority: Authority, tmp_path: Path, log_in: LogIn
) -> None:
    stranger = Authority(tmp_path / "stranger", "stranger")
    tls = TlsSettings(
        *authority.issue("broker", "localhost"),
        client_auth=ClientAuth.REQUIRED,
        client_authority=authority.file,
        principal_rules="RULE:^CN=(.*)$/$1/",
    )

    def showing(own: Authority, name: str, **options: bool) -> Case:
        files = own.issue(name, **options)  # type: ignore[arg-type]
        return {"Authority": authority.file, "Certificate": files.certificate, "Key": files.key}

    right = showing(authority, "alice")
    cases = {
        "right": (right, IN),
        "none": ({"Authority": authority.file}, NO_TLS),
        "expired": (showing(authority, "late", expired=True), NO_TLS),
        "stranger": (showing(stranger, "alice"), NO_TLS),
        "distrusting": ({**right, "Authority": stranger.file}, NO_TLS),
    }
    with SecuredBroker(SecurityProtocol.SSL, tls=tls) as broker:
        broker.create_topic(TOPIC)
        expect(log_in, broker, cases)


def test_go_is_let_in_by_a_token_and_refused_with_one_for_another_audience(
    authority: Authority, tmp_path: Path, log_in: LogIn
) -> None:
    provider = Provider()
    login = {"Authority": authority.file, "Mechanism": "OAUTHBEARER"}
    cases = {
        "right": ({**login, "Token": provider.token("alice")}, IN),
        "wrong": ({**login, "Token": provider.token("alice", aud="another")}, REFUSED),
        "expired": ({**login, "Token": provider.token("alice", exp=1)}, REFUSED),
    }
    tls, tokens = TlsSettings(*authority.issue("broker", "localhost")), provider.settings(tmp_path)
    with SecuredBroker(SecurityProtocol.SASL_SSL, tls=tls, tokens=tokens) as broker:
        broker.create_topic(TOPIC)
        expect(log_in, broker, cases)


def test_go_needs_no_login_on_a_plain_listener(log_in: LogIn) -> None:
    with SecuredBroker() as broker:
        broker.create_topic(TOPIC)
        expect(log_in, broker, {"plain": ({}, IN)}, bootstrap=broker.open)
