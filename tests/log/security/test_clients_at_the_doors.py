"""Real clients with certificates, unknown users and settings that do not fit the listener: in, or their own error."""

from collections.abc import Iterator

import pytest

from secured import CLIENTS, PASSWORD, REFUSALS, TLS_REFUSALS, SecuredBroker, login
from semel.log.broker.certificates import ClientAuth, TlsSettings
from semel.log.security.listeners import SecurityProtocol
from semel.testing.certificates import Authority, Files


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture(scope="module")
def files(authority: Authority) -> Files:
    return authority.issue("broker", "localhost", "127.0.0.1")


@pytest.fixture(scope="module")
def by_certificate(authority: Authority, files: Files) -> Iterator[SecuredBroker]:
    """Where a certificate says who one is, `User:alice` for one."""
    tls = TlsSettings(
        *files,
        client_auth=ClientAuth.REQUIRED,
        client_authority=authority.file,
        principal_rules="RULE:^CN=(.*)$/$1/",
    )
    with SecuredBroker(SecurityProtocol.SSL, tls=tls) as running:
        running.create_topic("logins")
        yield running


@pytest.fixture(scope="module")
def by_password(files: Files) -> Iterator[SecuredBroker]:
    with SecuredBroker(SecurityProtocol.SASL_SSL, tls=TlsSettings(*files)) as running:
        running.add_user("alice", PASSWORD)
        running.create_topic("logins")
        yield running


def tls(authority: Authority, shown: Files | None = None) -> dict[str, str]:
    trust = {"security.protocol": "SSL", "ssl.ca.location": authority.file}
    if shown is None:
        return trust
    return {**trust, "ssl.certificate.location": shown.certificate, "ssl.key.location": shown.key}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_real_client_gets_in_by_its_certificate(
    client: str, by_certificate: SecuredBroker, authority: Authority
) -> None:
    assert CLIENTS[client](by_certificate.bootstrap, tls(authority, authority.issue("alice"))) == "written"


@pytest.mark.parametrize("shown", ["nothing", "an expired one", "a stranger's"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_real_client_is_told_that_its_certificate_is_refused(
    client: str, shown: str, by_certificate: SecuredBroker, authority: Authority, stranger: Authority
) -> None:
    certificate = {
        "nothing": lambda: None,
        "an expired one": lambda: authority.issue("late", expired=True),
        "a stranger's": lambda: stranger.issue("alice"),
    }[shown]()
    outcome = CLIENTS[client](by_certificate.bootstrap, tls(authority, certificate))
    assert outcome in TLS_REFUSALS[client]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_real_client_that_does_not_trust_the_broker_keeps_its_password_to_itself(
    client: str, by_password: SecuredBroker, stranger: Authority
) -> None:
    settings = {**tls(stranger), **login("PLAIN", "alice", PASSWORD, "SASL_SSL")}
    assert CLIENTS[client](by_password.bootstrap, settings) in TLS_REFUSALS[client]


@pytest.mark.parametrize("shown", ["another host's", "an expired one"])
@pytest.mark.parametrize(
    "client", ["semel", "confluent", "aiokafka", pytest.param("kafka-python", marks=pytest.mark.slow)]
)
def test_a_real_client_believes_no_certificate_of_the_broker_that_is_another_hosts_or_old(
    client: str, shown: str, authority: Authority
) -> None:
    files = {
        "another host's": lambda: authority.issue("elsewhere", "elsewhere.example.org"),
        "an expired one": lambda: authority.issue("old", "localhost", "127.0.0.1", expired=True),
    }[shown]()
    with SecuredBroker(SecurityProtocol.SASL_SSL, tls=TlsSettings(*files)) as broker:
        broker.add_user("alice", PASSWORD)
        settings = {**tls(authority), **login("PLAIN", "alice", PASSWORD, "SASL_SSL")}
        assert CLIENTS[client](broker.bootstrap, settings) in TLS_REFUSALS[client]
        assert broker.look(lambda b: b.metrics.logins + b.metrics.refused_logins) == 0, "the password was not sent"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_real_client_of_an_unknown_user_is_told_what_one_with_a_wrong_password_is(
    client: str, mechanism: str, by_password: SecuredBroker, authority: Authority
) -> None:
    settings = {**tls(authority), **login(mechanism, "nobody", PASSWORD, "SASL_SSL")}
    assert CLIENTS[client](by_password.bootstrap, settings) in REFUSALS[client]
