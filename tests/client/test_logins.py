"""Who is let in by brokers that want TLS or a login, and what is said to who is not."""

import base64
import concurrent.futures
import re
import socket
from collections.abc import Iterator

import pytest

from asking import Asker
from relayed_cluster import CERTIFICATES, RelayedCluster
from semel.client import AuthenticationFailed, LogClient, Topic, from_options, sasl
from semel.client.connection import LOGIN_FRAME_BYTES_MAX, Connection, ConnectionLost
from semel.testing.broker import FaultyBroker

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
# SASLprep would make "IX" and "secret" of the second one.
USERS = {"alice, a=1": 'se"cret', "\N{ROMAN NUMERAL NINE}": "sec\N{SOFT HYPHEN}ret"}
AUTHORITY = str(CERTIFICATES / "authority.pem")


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with FaultyBroker() as broker:
        asker = Asker(broker.bootstrap)
        asker.create("payments")
        asker.close()
        yield broker.bootstrap


def payments(cluster: RelayedCluster, **options: str) -> Topic:
    given = {f"kafka.{name.replace('_', '.')}": value for name, value in options.items()}
    settings = from_options({"kafka.bootstrap.servers": cluster.bootstrap, **given})
    with LogClient(settings) as client:
        return client.topics(["payments"])["payments"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_user_with_the_right_password_is_let_in(upstream: str, mechanism: str) -> None:
    with RelayedCluster(upstream, mechanism=mechanism, users=USERS) as cluster:
        login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism}
        assert payments(cluster, **login, sasl_username="alice, a=1", sasl_password='se"cret')
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        jaas = f'org.apache.kafka.common.security.{module} required username=\'alice, a=1\' password="se\\"cret";'
        assert payments(cluster, **login, sasl_jaas_config=jaas)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_name_and_a_password_are_taken_as_they_are_given(upstream: str, mechanism: str) -> None:
    """As Apache Kafka and librdkafka do it: a broker that made its keys of other bytes would let nobody in."""
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism}
    with RelayedCluster(upstream, mechanism=mechanism, users=USERS) as cluster:
        for user, password in USERS.items():
            assert payments(cluster, **login, sasl_username=user, sasl_password=password)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_said_at_once_and_not_shown(upstream: str, mechanism: str) -> None:
    with (
        RelayedCluster(upstream, mechanism=mechanism, users=USERS) as cluster,
        pytest.raises(AuthenticationFailed, match=r"refused user 'alice': .*Invalid credentials") as refused,
    ):
        payments(
            cluster,
            security_protocol="sasl_plaintext",
            sasl_mechanisms=mechanism,
            sasl_username="alice",
            sasl_password="hunter2",
        )
    assert "hunter2" not in str(refused.value)


def test_a_mechanism_that_the_broker_does_not_take_is_named_with_those_it_takes(upstream: str) -> None:
    with (
        RelayedCluster(upstream, mechanism="SCRAM-SHA-512", users=USERS) as cluster,
        pytest.raises(AuthenticationFailed, match="does not take PLAIN; it takes: SCRAM-SHA-512"),
    ):
        payments(cluster, security_protocol="SASL_PLAINTEXT", sasl_username="alice", sasl_password="x")


def scram() -> tuple[sasl.Steps, str]:
    """A conversation of SCRAM, and the nonce that it began with."""
    login = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-256"}
    user = {"kafka.sasl.username": "alice", "kafka.sasl.password": "secret"}
    steps = sasl.steps(from_options({"kafka.bootstrap.servers": "one", **login, **user}))
    return steps, next(steps).decode().split("r=")[1]


def test_a_broker_that_does_not_know_the_password_itself_is_not_believed() -> None:
    steps, nonce = scram()
    steps.send(f"r={nonce}more,s=c2FsdA==,i=4096".encode())
    with pytest.raises(AuthenticationFailed, match="could not prove that it knows the password"):
        steps.send(b"v=" + base64.b64encode(bytes(32)))


@pytest.mark.parametrize(
    "answer",
    [
        *("", "r=another,s=c2FsdA==,i=4096", "r={nonce}more,s=c2FsdA==,i=999999999", "r={nonce}more,s=?,i=4096"),
        # From so few iterations, and no nonce of its own, whoever asks could guess the password of the proof.
        *("r={nonce}more,s=c2FsdA==,i=1", "r={nonce}more,s=c2FsdA==,i=4095", "r={nonce},s=c2FsdA==,i=4096"),
        *("r={nonce}more,s=c2FsdA==,i=+4096", "r={nonce}more,s=c2FsdA==,i=4_096", "r={nonce}more,s=,i=4096"),
        "m=x,r={nonce}more,s=c2FsdA==,i=4096",
    ],
)
def test_a_broker_that_does_not_keep_to_scram_is_left(answer: str) -> None:
    steps, nonce = scram()
    with pytest.raises(AuthenticationFailed, match="first message of SCRAM"):
        steps.send(answer.format(nonce=nonce).encode())


def test_a_broker_behind_tls_is_trusted_by_its_authority(upstream: str) -> None:
    with RelayedCluster(upstream, tls=True) as cluster:
        assert payments(cluster, security_protocol="SSL", ssl_ca_location=AUTHORITY)
        java = {"ssl_truststore_location": AUTHORITY, "ssl_truststore_type": "PEM"}
        assert payments(cluster, security_protocol="SSL", **java)
        inline = (CERTIFICATES / "authority.pem").read_text()
        assert payments(cluster, security_protocol="SSL", ssl_truststore_certificates=inline)


def test_a_login_behind_tls(upstream: str) -> None:
    with RelayedCluster(upstream, tls=True, mechanism="SCRAM-SHA-512", users=USERS) as cluster:
        assert payments(
            cluster,
            security_protocol="SASL_SSL",
            ssl_ca_location=AUTHORITY,
            sasl_mechanism="SCRAM-SHA-512",
            sasl_username="alice, a=1",
            sasl_password='se"cret',
        )


def test_a_certificate_of_nobody_we_trust_is_refused_at_once(upstream: str) -> None:
    with (
        RelayedCluster(upstream, tls=True) as cluster,
        pytest.raises(AuthenticationFailed, match="is not trusted: self-signed certificate"),
    ):
        payments(cluster, security_protocol="SSL")


def test_a_file_of_tls_that_is_not_there_is_an_error_of_one_line(upstream: str) -> None:
    with (
        RelayedCluster(upstream, tls=True) as cluster,
        pytest.raises(AuthenticationFailed, match=r"^/nowhere.pem cannot be used for TLS: No such file"),
    ):
        payments(cluster, security_protocol="SSL", ssl_ca_location="/nowhere.pem")


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (
            {"ssl_certificate_location": "/no-certificate.pem"},
            "/no-certificate.pem cannot be used for TLS: No such file",
        ),
        (
            {"ssl_certificate_location": AUTHORITY, "ssl_key_location": "/no-key.pem"},
            "/no-key.pem cannot be used for TLS: No such file",
        ),
        (
            {"ssl_certificate_location": __file__, "ssl_key_location": AUTHORITY},
            f"{__file__} and {AUTHORITY} cannot be used for TLS: ",
        ),
        ({"ssl_ca_location": __file__}, f"{__file__} cannot be used for TLS: "),
    ],
)
def test_the_file_of_tls_that_cannot_be_used_is_named(upstream: str, files: dict[str, str], told: str) -> None:
    with (
        RelayedCluster(upstream, tls=True) as cluster,
        pytest.raises(AuthenticationFailed, match=f"^{re.escape(told)}"),
    ):
        payments(cluster, security_protocol="SSL", **{"ssl_ca_location": AUTHORITY, **files})


def test_a_broker_that_announces_a_huge_answer_before_the_login_is_left_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()

        def be_hostile() -> None:
            connected, _ = server.accept()
            with connected:
                connected.sendall((LOGIN_FRAME_BYTES_MAX + 1).to_bytes(4))
                connected.recv(1024)

        with concurrent.futures.ThreadPoolExecutor() as pool:
            pool.submit(be_hostile)
            with pytest.raises(ConnectionLost, match="does not speak the Kafka protocol"):
                Connection(address, from_options({"kafka.bootstrap.servers": "{}:{}".format(*address)}))
