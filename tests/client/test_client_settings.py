"""The `kafka.*` options of a user become settings, or one line that says which of them cannot be and why."""

import pickle
import re

import pytest

from semel.client import ClientSettings, SettingsRefused, from_options

SERVERS = {"kafka.bootstrap.servers": "one:9092, [::1]:9093,PLAINTEXT://three"}
PLAIN_LOGIN = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.username": "alice",
    "kafka.sasl.password": "hunter2",
}


def settings(**options: str) -> ClientSettings:
    return from_options({**SERVERS, **{name.replace("_", "."): value for name, value in options.items()}})


def test_servers_are_read_as_kafka_reads_them() -> None:
    assert settings().bootstrap == (("one", 9092), ("::1", 9093), ("three", 9092))


@pytest.mark.parametrize("servers", ["", "one:0", "one:99999", "one two:9092", "one:9092:9092"])
def test_servers_that_are_no_addresses_are_refused(servers: str) -> None:
    with pytest.raises(SettingsRefused, match=r"kafka\.bootstrap\.servers"):
        from_options({"kafka.bootstrap.servers": servers})


def test_an_option_goes_by_the_name_that_java_has_for_it_or_librdkafka() -> None:
    assert settings(kafka_fetch_wait_max_ms="7") == settings(kafka_fetch_max_wait_ms="7")
    assert settings(kafka_fetch_max_wait_ms="7").fetch_wait_ms_max == 7
    assert settings(kafka_max_partition_fetch_bytes="8").partition_bytes_max == 8
    assert settings(KAFKA_FETCH_MAX_BYTES="9").fetch_bytes_max == 9
    assert from_options({"kafka.metadata.broker.list": "one"}).bootstrap == (("one", 9092),)


def test_the_same_option_under_two_names_must_say_the_same() -> None:
    assert settings(kafka_fetch_wait_max_ms="7", kafka_fetch_max_wait_ms="7").fetch_wait_ms_max == 7
    with pytest.raises(SettingsRefused, match="given twice"):
        settings(kafka_fetch_wait_max_ms="7", kafka_fetch_max_wait_ms="8")


def test_options_that_are_not_kafkas_are_passed_over() -> None:
    assert settings(subscribe="payments", path="/x") == settings()


def test_what_only_tunes_a_polling_consumer_may_stand_and_changes_nothing() -> None:
    assert settings(kafka_max_poll_records="100000", kafka_session_timeout_ms="1") == settings()


def test_an_unknown_option_is_refused_by_name_with_the_one_that_was_meant() -> None:
    with pytest.raises(SettingsRefused, match=r"kafka\.fetch\.max\.byte is not known; was kafka\.fetch\.max\.bytes"):
        settings(kafka_fetch_max_byte="1")
    with pytest.raises(SettingsRefused, match=r"kafka\.zzz is not known$"):
        settings(kafka_zzz="1")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("auto.offset.reset", "startingOffsets says where a query begins"),
        ("enable.auto.commit", "Spark's checkpoint"),
        ("key.deserializer", "columns of the data frame are cast"),
        ("value.deserializer", "columns of the data frame are cast"),
        ("interceptor.classes", "no Java class is run"),
        ("transactional.id", "the sink's protocol sets it"),
        ("enable.idempotence", "the sink's protocol sets it"),
        ("acks", "the sink's protocol sets it"),
    ],
)
def test_what_spark_or_the_pipeline_decides_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(SettingsRefused, match=f"kafka.{name} cannot be set: .*{reason}"):
        settings(**{f"kafka.{name}": "x"})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("fetch.max.bytes", "many", "'many' is not a whole number from 1"),
        ("fetch.max.bytes", "0", "'0' is not a whole number from 1"),
        ("security.protocol", "TLS", "'TLS' is not one of PLAINTEXT, SSL"),
        ("sasl.mechanism", "GSSAPI", "'GSSAPI' is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ("isolation.level", "some", "'some' is not read_committed or read_uncommitted"),
        ("client.id", "", "'' is not a name"),
        ("compression.type", "nope", "'nope' is not one of none, gzip, snappy, lz4, zstd"),
        ("batch.size", "0", "'0' is not a whole number from 1"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_what_can(name: str, value: str, expected: str) -> None:
    with pytest.raises(SettingsRefused, match=f"option kafka.{name}: {expected}"):
        settings(**{f"kafka.{name}": value})


def test_a_login_needs_a_protocol_and_a_protocol_a_login() -> None:
    with pytest.raises(SettingsRefused, match="asks for SASL: give"):
        settings(kafka_security_protocol="SASL_SSL")
    with pytest.raises(SettingsRefused, match="does not ask for SASL"):
        settings(kafka_sasl_username="alice", kafka_sasl_password="hunter2")
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required username='alice' password='hunter2';"
    with pytest.raises(SettingsRefused, match="both name a user"):
        from_options({**SERVERS, **PLAIN_LOGIN, "kafka.sasl.jaas.config": jaas})
    with pytest.raises(SettingsRefused, match="a login for plain, and not for SCRAM-SHA-256"):
        settings(
            kafka_security_protocol="SASL_SSL", kafka_sasl_mechanism="SCRAM-SHA-256", **{"kafka.sasl.jaas.config": jaas}
        )
    found = settings(kafka_security_protocol="SASL_SSL", **{"kafka.sasl.jaas.config": jaas})
    assert found == from_options({**SERVERS, **PLAIN_LOGIN})


def test_a_password_never_shows() -> None:
    found = from_options({**SERVERS, **PLAIN_LOGIN, "kafka.ssl.key.password": "hunter2"})
    assert "hunter2" not in repr(found)
    with pytest.raises(SettingsRefused) as refused:
        settings(**{"kafka.sasl.jaas.config": "Krb5LoginModule required password='hunter2';"})
    assert "hunter2" not in str(refused.value)


def test_only_stores_in_pem_can_be_read() -> None:
    with pytest.raises(SettingsRefused, match=r"only PEM files can be read here.*kafka\.ssl\.truststore\.type=PEM"):
        settings(**{"kafka.ssl.truststore.location": "/trust.jks"})
    found = settings(**{"kafka.ssl.keystore.location": "/me.pem", "kafka.ssl.keystore.type": "PEM"})
    assert (found.ssl_certificate_location, found.ssl_key_location) == ("/me.pem", "/me.pem")


def test_settings_go_to_other_processes() -> None:
    found = from_options({**SERVERS, **PLAIN_LOGIN, "kafka.linger.ms": "5"})
    assert pickle.loads(pickle.dumps(found)) == found
    with pytest.raises(SettingsRefused) as refused:
        settings(kafka_acks="1")
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


def test_a_producers_options_go_by_both_names_and_say_how_records_are_written() -> None:
    found = settings(
        kafka_compression_codec="ZSTD",
        kafka_compression_level="7",
        kafka_batch_size="100000",
        kafka_message_max_bytes="2000000",
        kafka_message_timeout_ms="90000",
        kafka_transaction_timeout_ms="60000",
    )
    assert (found.compression, found.compression_level) == ("zstd", 7)
    assert (found.batch_bytes, found.request_bytes_max) == (100_000, 2_000_000)
    assert (found.delivery_timeout_ms, found.transaction_timeout_ms) == (90_000, 60_000)


def test_a_batch_is_never_larger_than_a_request_may_be() -> None:
    assert settings(kafka_batch_size="5000").payload_bytes_max < 5_000
    assert settings(kafka_max_request_size="5000").payload_bytes_max < 5_000


@pytest.mark.parametrize(
    ("codec", "level", "expected"),
    [
        ("gzip", "10", "10 is not a level of gzip, -1 to 9"),
        ("lz4", "18", "18 is not a level of lz4, 0 to 17"),
        ("zstd", "23", "23 is not a level of zstd, -131072 to 22"),
        ("snappy", "1", "compression.type=snappy has no levels"),
        ("none", "1", "compression.type=none has no levels"),
        ("zstd", "high", "'high' is not a whole number"),
    ],
)
def test_a_level_is_one_of_the_codec(codec: str, level: str, expected: str) -> None:
    with pytest.raises(SettingsRefused, match=re.escape(f"option kafka.compression.level: {expected}")):
        settings(kafka_compression_type=codec, kafka_compression_level=level)


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd", "snappy"])
def test_a_level_of_minus_one_leaves_it_to_the_codec(codec: str) -> None:
    assert settings(kafka_compression_type=codec, kafka_compression_level="-1").compression_level is None


def test_what_only_tunes_a_producer_that_waits_may_stand_and_changes_nothing() -> None:
    assert settings(kafka_linger_ms="5", kafka_queue_buffering_max_messages="7") == settings()
