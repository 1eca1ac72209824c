"""What a bundle promises: the real clients take it and work with it, and its own check has nothing against it."""

import asyncio
import inspect
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AiokafkaPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

from semel import settings
from semel.settings import Bundle, Client, Role, Semantics
from semel.settings.clients import TABLES
from semel.settings.formats import WRITTEN_FORMATS, read, write
from semel.testing.broker import FaultyBroker

SECONDS_MAX = 120
VALUES = [b"payment %d" % number for number in range(5)]
BUNDLES = [settings.bundle(semantics, client) for client in Client for semantics in Semantics]
BUNDLES += [settings.exactly_once(client, "billing-1") for client in Client]
BUNDLES += [settings.exactly_once(client, strict_order=True) for client in Client]


def name_of(bundle: Bundle) -> str:
    transactional = any(setting.value == "billing-1" for setting in bundle.producer_settings)
    strict = any(setting.name.startswith("linger") for setting in bundle.producer_settings)
    return f"{bundle.client}-{bundle.semantics}{'-in-transactions' * transactional}{'-in-order' * strict}"


@pytest.mark.parametrize("bundle", BUNDLES, ids=name_of)
def test_its_check_has_nothing_against_it(bundle: Bundle) -> None:
    for role in Role:
        config = bundle.producer if role is Role.PRODUCER else bundle.consumer
        assert settings.check(config, semantics=bundle.semantics, client=bundle.client, role=role) == []


def with_confluent(bundle: Bundle, bootstrap: str) -> list[bytes]:
    producer = Producer({**bundle.producer, "bootstrap.servers": bootstrap})
    in_transaction = "transactional.id" in bundle.producer
    if in_transaction:
        producer.init_transactions(SECONDS_MAX)
        producer.begin_transaction()
    for value in VALUES:
        producer.produce("payments", value, partition=0)
    assert producer.flush(SECONDS_MAX) == 0
    if in_transaction:
        producer.commit_transaction(SECONDS_MAX)
    consumer = Consumer({**bundle.consumer, "bootstrap.servers": bootstrap, "group.id": "settings"})
    consumer.assign([TopicPartition("payments", 0, OFFSET_BEGINNING)])
    read = [message.value() for message in consumer.consume(len(VALUES), SECONDS_MAX)]
    consumer.close()
    return read


def with_aiokafka(bundle: Bundle, bootstrap: str) -> list[bytes]:
    async def work() -> list[bytes]:
        producer = AIOKafkaProducer(**bundle.producer, bootstrap_servers=bootstrap)
        async with producer:
            if "transactional_id" in bundle.producer:
                async with producer.transaction():
                    await send_all(producer)
            else:
                await send_all(producer)
        consumer = AIOKafkaConsumer(**bundle.consumer, bootstrap_servers=bootstrap, group_id="settings")
        async with consumer:
            partition = AiokafkaPartition("payments", 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            return [(await consumer.getone()).value for _ in VALUES]

    async def send_all(producer: AIOKafkaProducer) -> None:
        for value in VALUES:
            await producer.send("payments", value, partition=0)
        await producer.flush()

    return asyncio.run(asyncio.wait_for(work(), SECONDS_MAX))


def with_kafka_python(bundle: Bundle, bootstrap: str) -> list[bytes]:
    producer = KafkaProducer(**bundle.producer, bootstrap_servers=bootstrap)
    in_transaction = "transactional_id" in bundle.producer
    if in_transaction:
        producer.init_transactions()
        producer.begin_transaction()
    for value in VALUES:
        producer.send("payments", value, partition=0)
    producer.flush(SECONDS_MAX)
    if in_transaction:
        producer.commit_transaction()
    producer.close()
    consumer = KafkaConsumer(**bundle.consumer, bootstrap_servers=bootstrap, group_id="settings")
    partition = KafkaPythonPartition("payments", 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    read = [next(consumer).value for _ in VALUES]
    consumer.close(autocommit=False)
    return read


WORK = {Client.CONFLUENT: with_confluent, Client.AIOKAFKA: with_aiokafka, Client.KAFKA_PYTHON: with_kafka_python}


@pytest.mark.parametrize("bundle", [bundle for bundle in BUNDLES if bundle.client in WORK], ids=name_of)
def test_the_real_client_writes_and_reads_with_it(bundle: Bundle, semel_broker: FaultyBroker) -> None:
    assert WORK[bundle.client](bundle, semel_broker.bootstrap) == VALUES


def in_words(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("bundle", BUNDLES, ids=name_of)
@pytest.mark.parametrize("form", WRITTEN_FORMATS)
def test_what_is_written_is_read_again_with_nothing_lost(bundle: Bundle, form: str) -> None:
    text = write(bundle, form)
    if form == "python":
        found: dict[str, Any] = {}
        exec(text, found)
        parts = {role: found[role] for role in Role}
    elif form == "properties":
        parts = {role: dict(read(write(bundle, form, [role]), form)[None]) for role in Role}
    else:
        parts = {role: dict(config) for role, config in read(text, form).items() if role is not None}
    for role in Role:
        wanted = {setting.name: setting.value for setting in bundle.of(role)}
        assert parts[role] == (
            {name: in_words(value) for name, value in wanted.items()} if form == "properties" else wanted
        )
        if form != "json":
            assert all(setting.why in text for setting in bundle.of(role))


def test_the_semantic_and_the_client_may_be_named_by_word() -> None:
    assert settings.exactly_once("aiokafka").producer["enable_idempotence"] is True
    assert settings.at_least_once("java").producer["enable.idempotence"] == "false"
    assert settings.at_most_once("confluent").producer["retries"] == 0
    with pytest.raises(ValueError, match="not for at-least-once"):
        settings.bundle("at-least-once", "java", "billing-1")


def test_strict_order_is_one_request_under_way() -> None:
    """aiokafka has no setting for it, since it never has more than one to a partition."""
    assert settings.exactly_once("confluent", strict_order=True).producer["max.in.flight.requests.per.connection"] == 1
    assert settings.at_least_once("java", strict_order=True).producer["batch.size"] == "65536"
    assert set(settings.exactly_once("aiokafka", strict_order=True).producer) > {"linger_ms", "max_batch_size"}
    with pytest.raises(ValueError, match="never sends again"):
        settings.bundle("at-most-once", "java", strict_order=True)


def installed_defaults(client: Client, role: Role) -> dict[str, Any]:
    if client is Client.AIOKAFKA:
        made = AIOKafkaProducer if role is Role.PRODUCER else AIOKafkaConsumer
        return {name: parameter.default for name, parameter in inspect.signature(made).parameters.items()}
    return KafkaProducer.DEFAULT_CONFIG if role is Role.PRODUCER else KafkaConsumer.DEFAULT_CONFIG


@pytest.mark.parametrize("client", [Client.AIOKAFKA, Client.KAFKA_PYTHON])
@pytest.mark.parametrize("role", list(Role))
def test_the_defaults_are_those_of_the_installed_client(client: Client, role: Role) -> None:
    installed = installed_defaults(client, role)
    for known in TABLES[client][role].values():
        if known.name == "acks":
            continue  # -1 for all in one, left open in the other
        default = installed[known.name]
        assert known.default == (2_147_483_647 if default == float("inf") else default), known.name
