"""TLS: real clients come in, whom a certificate names is who they are, and what is no TLS is told in one line."""

import contextlib
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from asking import Asker, topic_wanted
from asking_over_tls import TlsAsker, tls_socket
from eventually import eventually
from secured import CLIENTS, PASSWORD, REFUSALS, WRONG, SecuredBroker, by_semel, login
from semel.client.cluster import Cluster
from semel.client.connection import ConnectionLost
from semel.client.settings import from_options
from semel.log.broker.broker import Broker
from semel.log.broker.certificates import Certificates, CertificatesRefused, ClientAuth, TlsSettings
from semel.log.broker.limits import Limits
from semel.log.security.listeners import Listener, ListenersRefused, SecurityProtocol
from semel.testing.broker import FaultyBroker
from semel.testing.certificates import Authority, Files
from semel.wire.errors import ErrorCode
from semel.wire.records import Record
from semel.wire.versions import (
    API_VERSIONS,
    CREATE_TOPICS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
SSL, SASL_SSL = SecurityProtocol.SSL, SecurityProtocol.SASL_SSL
METADATA_ASKED = {"allow_auto_topic_creation": True, "include_topic_authorized_operations": False}
VERSIONS_ASKED = {"client_software_name": "test", "client_software_version": "1"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def files(authority: Authority) -> Files:
    return authority.issue("broker", "localhost", "127.0.0.1")


@pytest.fixture(scope="module")
def broker(files: Files) -> Iterator[SecuredBroker]:
    with SecuredBroker(SASL_SSL, tls=TlsSettings(*files)) as running:
        running.add_user("alice", PASSWORD)
        running.create_topic("logins")
        yield running


def trusting(authority: Authority, settings: dict[str, str] | None = None) -> dict[str, str]:
    return {**(settings or {"security.protocol": "SSL"}), "ssl.ca.location": authority.file}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_real_client_logs_in_over_tls(
    client: str, mechanism: str, broker: SecuredBroker, authority: Authority
) -> None:
    write = CLIENTS[client]
    for password, outcomes in ((PASSWORD, {"written"}), (WRONG, REFUSALS[client])):
        settings = trusting(authority, login(mechanism, "alice", password, "SASL_SSL"))
        assert write(broker.bootstrap, settings) in outcomes


@pytest.mark.parametrize("token", [f"\0alice\0{WRONG}", f"\0nobody\0{PASSWORD}", f"bob\0alice\0{PASSWORD}", "x"])
def test_a_wrong_password_by_plain_is_refused(token: str, broker: SecuredBroker, authority: Authority) -> None:
    with TlsAsker(broker.bootstrap, authority) as ask:
        ask(SASL_HANDSHAKE, mechanism="PLAIN")
        answer = ask(SASL_AUTHENTICATE, auth_bytes=token.encode())
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert PASSWORD not in answer.error_message


def test_a_large_answer_and_a_large_request_pass_whole(broker: SecuredBroker, authority: Authority) -> None:
    """Many records of TLS in both directions, more than the socket takes at once."""
    settings = {
        **trusting(authority, login("PLAIN", "alice", PASSWORD, "SASL_SSL")),
        "bootstrap.servers": broker.bootstrap,
    }
    settings["sasl.mechanisms"] = settings.pop("sasl.mechanism")
    values = [bytes([number]) * 700_000 for number in range(20)]
    producer = Producer({**settings, "linger.ms": 50, "message.max.bytes": 10_000_000})
    for value in values:
        producer.produce("large", value)
    assert producer.flush(60) == 0
    consumer = Consumer(
        {**settings, "group.id": "g", "auto.offset.reset": "earliest", "fetch.message.max.bytes": 5_000_000}
    )
    consumer.subscribe(["large"])
    read = []
    while len(read) < len(values):
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        read.append(message.value())
    consumer.close()
    assert read == values


def test_a_client_that_does_not_trust_the_certificate_says_so(broker: SecuredBroker, tmp_path: Path) -> None:
    stranger = Authority(tmp_path)
    settings = trusting(stranger, login("PLAIN", "alice", PASSWORD, "SASL_SSL"))
    assert by_semel(broker.bootstrap, settings) == "AuthenticationFailed"
    refused = broker.look(lambda b: b.metrics.refused_handshakes)
    assert refused > 0


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_1_3_are_spoken(version: ssl.TLSVersion, broker: SecuredBroker, authority: Authority) -> None:
    with TlsAsker(broker.bootstrap, authority, maximum_version=version, minimum_version=version) as ask:
        assert ask._socket.version() == version.name.replace("_", ".", 1).replace("_", ".")  # type: ignore[attr-defined]
        assert ask(API_VERSIONS, **VERSIONS_ASKED).error_code == 0


def test_a_handshake_byte_by_byte_comes_to_its_end(broker: SecuredBroker, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=authority.file)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    host, _, port = broker.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), 30) as plain:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                for byte in outgoing.read():
                    plain.sendall(bytes([byte]))
                incoming.write(plain.recv(1))
        assert tls.version() == "TLSv1.3"


def test_plain_bytes_on_a_listener_with_tls_are_told_in_one_line_at_both_ends(
    broker: SecuredBroker, caplog: pytest.LogCaptureFixture
) -> None:
    settings = from_options({"kafka.bootstrap.servers": broker.bootstrap})
    with pytest.raises(ConnectionLost, match="the other side speaks TLS"), Cluster(settings) as cluster:
        cluster.every_topic()
    assert eventually(lambda: "event=tls_refused" in caplog.text)


def test_tls_on_a_plain_listener_is_told_in_one_line_at_both_ends(
    broker: SecuredBroker, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    options = {f"kafka.{name}": value for name, value in trusting(authority).items()}
    settings = from_options({"kafka.bootstrap.servers": broker.open, **options})
    with pytest.raises(ConnectionLost, match="handshake of TLS; does it speak TLS"), Cluster(settings) as cluster:
        cluster.every_topic()
    assert eventually(lambda: "the other side speaks TLS" in caplog.text)


# -- certificates of clients ------------------------------------------------------------------------------------------


def principal_seen(broker: SecuredBroker, authority: Authority, files: Files | None) -> str:
    """Whom the broker takes a client with this certificate for."""
    with TlsAsker(broker.bootstrap, authority, files) as ask:
        ask(API_VERSIONS, **VERSIONS_ASKED)
        (principal,) = broker.look(
            lambda b: {str(one.principal) for one in b.connections if one.listener.name == "LOGINS"}
        )
        return str(principal)


def test_a_certificate_says_who_a_client_is_by_kafkas_rules(authority: Authority, files: Files) -> None:
    tls = TlsSettings(
        *files,
        client_auth=ClientAuth.REQUESTED,
        client_authority=authority.file,
        principal_rules="RULE:^CN=app-(.*)$/$1/U, DEFAULT",
    )
    with SecuredBroker(SSL, tls=tls) as broker:
        assert principal_seen(broker, authority, authority.issue("app-orders")) == "User:ORDERS"
        assert principal_seen(broker, authority, authority.issue("other")) == "User:CN=other"
        assert principal_seen(broker, authority, None) == "User:ANONYMOUS"


def test_a_client_without_a_certificate_or_with_a_strangers_stays_out_where_one_is_required(
    authority: Authority, files: Files, tmp_path: Path
) -> None:
    tls = TlsSettings(*files, client_auth=ClientAuth.REQUIRED, client_authority=authority.file)
    with SecuredBroker(SSL, tls=tls) as broker:
        assert principal_seen(broker, authority, authority.issue("app")) == "User:CN=app"
        stranger = Authority(tmp_path, "another")
        for wrong in (None, stranger.issue("app"), authority.issue("late", expired=True)):
            with (
                pytest.raises((OSError, ConnectionError, Exception)),
                TlsAsker(broker.bootstrap, authority, wrong) as ask,
            ):
                ask(API_VERSIONS, **VERSIONS_ASKED)
        assert broker.look(lambda b: b.metrics.refused_handshakes) == 3


@pytest.mark.parametrize("client_auth", [ClientAuth.NONE, ClientAuth.REQUESTED])
def test_where_tls_asks_no_client_who_it_is_strangers_may_do_nothing(
    client_auth: ClientAuth, authority: Authority, files: Files
) -> None:
    """So such a listener may be reached from other machines."""
    listeners = [Listener("OUTSIDE", SSL, "0.0.0.0", advertised_host="localhost"), Listener("INSIDE")]
    tls = TlsSettings(*files, client_auth=client_auth, client_authority=authority.file)
    with FaultyBroker(listeners=listeners, tls=tls) as broker:
        broker.create_topic("payments")
        (_, inside) = broker._broker.listeners
        with TlsAsker(broker.bootstrap, authority) as outsider, Asker(inside.bootstrap) as insider:
            for ask in (outsider, insider):
                (created,) = ask(CREATE_TOPICS, topics=[topic_wanted("orders")], validate_only=False).topics
                assert created.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
                told = ask(METADATA, topics=None, **METADATA_ASKED)
                assert list(told.topics) == []
                denied = ask(DESCRIBE_USER_SCRAM_CREDENTIALS, users=None)
                assert denied.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("protocol", "host", "client_auth", "insecure", "is_open"),
    [
        (SSL, "0.0.0.0", ClientAuth.NONE, False, True),
        (SSL, "10.1.2.3", ClientAuth.REQUESTED, False, True),
        (SSL, "0.0.0.0", ClientAuth.NONE, True, False),
        (SSL, "0.0.0.0", ClientAuth.REQUIRED, False, False),
        (SSL, "localhost", ClientAuth.NONE, False, False),
        (SASL_SSL, "0.0.0.0", ClientAuth.NONE, False, False),
    ],
)
def test_strangers_on_other_machines_are_super_users_only_where_the_operator_insists(
    protocol: SecurityProtocol,
    host: str,
    client_auth: ClientAuth,
    insecure: bool,
    is_open: bool,
    authority: Authority,
    files: Files,
) -> None:
    listeners = [Listener("INSIDE"), Listener("OUTSIDE", protocol, host)]
    tls = TlsSettings(*files, client_auth=client_auth, client_authority=authority.file)
    refused = pytest.raises(ListenersRefused, match=r"listener OUTSIDE on .* User:ANONYMOUS .* or pass --insecure")
    with refused if is_open else contextlib.nullcontext():
        Broker(listeners=listeners, tls=tls, insecure=insecure, super_users=["User:ANONYMOUS"])


def test_a_certificate_that_no_rule_matches_names_nobody(
    authority: Authority, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    rules = "RULE:^CN=app-(.*)$/$1/"
    tls = TlsSettings(*files, client_auth=ClientAuth.REQUIRED, client_authority=authority.file, principal_rules=rules)
    with SecuredBroker(SSL, tls=tls) as broker:
        with pytest.raises(Exception), TlsAsker(broker.bootstrap, authority, authority.issue("other")) as ask:  # noqa: B017, PT011
            ask(API_VERSIONS, **VERSIONS_ASKED)
        assert eventually(lambda: "no rule for principals matches the subject" in caplog.text)


# -- files that change ------------------------------------------------------------------------------------------------


def served_name(broker: SecuredBroker, authority: Authority) -> str:
    with tls_socket(broker.bootstrap, authority) as connected:
        certificate = connected.getpeercert()
        assert certificate is not None
        return str(dict(pair for (pair,) in certificate["subject"])["commonName"])  # type: ignore[misc, str-bytes-safe]


def test_certificates_are_read_again_when_they_change_and_garbage_keeps_the_old_ones(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    first = authority.issue("first", "localhost")
    with SecuredBroker(SSL, tls=TlsSettings(*first)) as broker, TlsAsker(broker.bootstrap, authority) as ask:
        assert served_name(broker, authority) == "first"
        Path(first.certificate).write_text("garbage")
        broker.look(lambda b: b.doors.look_at_credentials())
        assert "event=certificates_refused" in caplog.text
        assert served_name(broker, authority) == "first"
        second = authority.issue("second", "localhost")
        Path(first.certificate).write_bytes(Path(second.certificate).read_bytes())
        Path(first.key).write_bytes(Path(second.key).read_bytes())
        broker.look(lambda b: b.doors.look_at_credentials())
        assert served_name(broker, authority) == "second"
        assert ask(API_VERSIONS, **VERSIONS_ASKED).error_code == 0, "the connection of before is still good"


@pytest.mark.parametrize("content", ["garbage", "nothing", "half of it", "another's", None])
@pytest.mark.parametrize("kind", ["certificate", "key", "authority"])
def test_whatever_comes_in_the_place_of_a_file_the_old_certificates_stay(
    kind: str, content: str | None, authority: Authority, tmp_path: Path
) -> None:
    issued, other = authority.issue("kept", "localhost"), authority.issue("other", "localhost")
    paths = {"certificate": issued.certificate, "key": issued.key, "authority": str(tmp_path / "authority.pem")}
    Path(paths["authority"]).write_text(Path(authority.file).read_text())
    settings = TlsSettings(
        paths["certificate"], paths["key"], client_auth=ClientAuth.REQUIRED, client_authority=paths["authority"]
    )
    certificates = Certificates(settings)
    before = certificates.context, certificates.plain_context
    file, whole = Path(paths[kind]), Path(paths[kind]).read_bytes()
    strange = {"certificate": other.certificate, "key": other.key, "authority": other.key}[kind]
    file.unlink()
    if content is not None:
        contents = {"garbage": b"\0\xffgarbage", "nothing": b"", "half of it": whole[: len(whole) // 2]}
        file.write_bytes(contents.get(content, Path(strange).read_bytes()))
    assert certificates.has_changed()
    with pytest.raises(CertificatesRefused):
        certificates.read_again()
    assert (certificates.context, certificates.plain_context) == before
    assert not certificates.has_changed(), "it is told once"
    file.write_bytes(whole)
    certificates.read_again()
    assert certificates.context is not before[0]


@pytest.mark.parametrize("kind", ["certificate", "key", "authority"])
def test_a_file_that_goes_while_it_is_read_keeps_the_old_certificates(
    kind: str, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever exchanges certificates may remove a file first. That is no error of the disk with the records."""
    certificate, key = authority.issue("kept", "localhost")
    paths = {"certificate": certificate, "key": str(key), "authority": str(tmp_path / "authority.pem")}
    Path(paths["authority"]).write_text(Path(authority.file).read_text())
    settings = TlsSettings(certificate, key, client_auth=ClientAuth.REQUIRED, client_authority=paths["authority"])
    certificates = Certificates(settings)
    before, read = certificates.context, Path.read_bytes

    def read_and_remove(path: Path) -> bytes:
        content = read(path)
        if str(path) == paths[kind]:
            path.unlink()
        return content

    monkeypatch.setattr(Path, "read_bytes", read_and_remove)
    with pytest.raises(CertificatesRefused, match="No such file"):
        certificates.read_again()
    assert certificates.context is before
    assert certificates.has_changed()


def test_a_key_that_the_broker_comes_to_be_allowed_to_read_is_one_that_has_changed(authority: Authority) -> None:
    files = authority.issue("allowed", "localhost")
    certificates = Certificates(TlsSettings(*files))
    assert not certificates.has_changed()

    def is_noticed() -> bool:
        Path(files.key).chmod(0o640)
        return certificates.has_changed()

    assert eventually(is_noticed)


def test_what_cannot_be_used_is_refused_at_the_start_and_says_why(authority: Authority, tmp_path: Path) -> None:
    files, other = authority.issue("one"), authority.issue("two")
    locked = authority.issue("locked", key_password="opensesame")
    assert Certificates(TlsSettings(*locked, key_password="opensesame")).context
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("garbage")
    for settings, told in (
        (TlsSettings("/nowhere.pem"), "No such file"),
        (TlsSettings(str(garbage)), "cannot be used for TLS"),
        (TlsSettings(files.certificate, other.key), "the key is not that of the certificate"),
        (TlsSettings(*locked), "the password is missing or wrong"),
        (TlsSettings(*locked, key_password="guess"), "the password is missing or wrong"),
        (TlsSettings(*files, client_auth=ClientAuth.REQUIRED), "no authority is named"),
        (TlsSettings(*files, client_authority=str(garbage)), "holds no authority"),
        (TlsSettings(*files, principal_rules="RULE:("), "is no rule for principals"),
    ):
        with pytest.raises(CertificatesRefused, match=told) as refused:
            Certificates(settings)
        assert "guess" not in str(refused.value)
    with pytest.raises(ListenersRefused, match="no certificate is named"):
        SecuredBroker(SSL).start()


# -- strangers --------------------------------------------------------------------------------------------------------


def test_a_handshake_that_never_ends_is_sent_away_and_counts_as_a_stranger(files: Files) -> None:
    with SecuredBroker(SSL, tls=TlsSettings(*files), limits=Limits(unknown_connections_per_address_max=2)) as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        with (
            socket.create_connection((host, int(port)), 30) as one,
            socket.create_connection((host, int(port)), 30) as two,
        ):
            assert eventually(lambda: broker.look(lambda b: len(b.doors.strangers)) == 2)
            with socket.create_connection((host, int(port)), 30) as three:
                assert received_end(three)
            broker.skip(21)
            broker.look(lambda b: list(b._chores._look_at_connections()))
            assert received_end(one)
            assert received_end(two)
            assert broker.look(lambda b: len(b.doors.strangers)) == 0


def received_end(connected: socket.socket) -> bool:
    try:
        return connected.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_record_produced_over_tls_is_the_one_that_is_read_in_the_clear(
    broker: SecuredBroker, authority: Authority
) -> None:
    broker.create_topic("mixed")
    with TlsAsker(broker.bootstrap, authority) as ask:
        ask(SASL_HANDSHAKE, mechanism="PLAIN")
        assert ask(SASL_AUTHENTICATE, auth_bytes=f"\0alice\0{PASSWORD}".encode()).error_code == 0
        ask.produce("mixed", [Record(b"value")])
    assert [record.value for record in broker.log("mixed")] == [b"value"]
