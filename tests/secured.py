"""A broker whose clients have to log in, and users in it."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka import KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError

from semel.client import sasl
from semel.client.cluster import Cluster
from semel.client.errors import AuthenticationFailed
from semel.client.settings import ClientSettings, from_options
from semel.log.security.listeners import Listener, SecurityProtocol
from semel.testing.broker import FaultyBroker
from semel.wire.scram import Mechanism

PASSWORD: Final = 'pass, "word"=1'
WRONG: Final = "let me in"


class SecuredBroker(FaultyBroker):
    """A broker of tests in which users can be made at once. The listener whose clients log in is its first one, and
    `open` is where nobody has to."""

    def __init__(self, protocol: SecurityProtocol = SecurityProtocol.SASL_PLAINTEXT, **settings: Any) -> None:
        listeners = [Listener("LOGINS", protocol, "localhost"), Listener("OPEN")]
        # Access rules are in force as soon as a listener asks for logins; these tests are about something else.
        everybody = [f"User:{name}" for name in ("ANONYMOUS", "alice", "alice, a=1", "bob")]
        super().__init__(listeners=listeners, super_users=everybody, **settings)

    @property
    def open(self) -> str:
        return self._broker.listeners[1].bootstrap

    def look(self, read: Callable[[Any], Any]) -> Any:
        """What `read` makes of the broker, in its thread."""

        async def answer() -> Any:
            return read(self._broker)

        return self._call(answer())


def login(mechanism: str, user: str, password: str, protocol: str = "SASL_PLAINTEXT") -> dict[str, str]:
    """The same settings for every client, by Java's names."""
    return {
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def own_client(mechanism: Mechanism, user: str, password: str) -> sasl.Steps:
    """The messages of a login, by semel's own client."""
    settings = ClientSettings((), sasl_mechanism=mechanism.sasl_name, sasl_username=user, sasl_password=password)
    return sasl.steps(settings)


# Each writes one record by another client, and answers "written" or the name of the client's own error.


def by_semel(bootstrap: str, settings: dict[str, str]) -> str:
    options = {f"kafka.{name}": value for name, value in settings.items()}
    try:
        with Cluster(from_options({"kafka.bootstrap.servers": bootstrap, **options})) as cluster:
            cluster.every_topic()
    except AuthenticationFailed as error:
        return type(error).__name__
    return "written"


def by_confluent(bootstrap: str, settings: dict[str, str]) -> str:
    errors: list[str] = []

    def note(error: KafkaError) -> None:
        # Once the handshake is over on its side, it takes the broker's refusal for a connection that was lost.
        errors.append("_SSL" if "SSL alert" in error.str() else error.name())

    client = {"bootstrap.servers": bootstrap, "log_level": 0, "error_cb": note}
    if "sasl.mechanism" in settings:
        settings = {**settings, "sasl.mechanisms": settings["sasl.mechanism"]}
        del settings["sasl.mechanism"]
    producer = Producer({**client, **settings})
    with contextlib.suppress(KafkaException):
        producer.produce("logins", b"confluent")
    for _ in range(300):
        if not producer.flush(0.1):
            return "written"
        wrong = [name for name in errors if name in ("_AUTHENTICATION", "_SSL")]
        if wrong:
            producer.purge()
            producer.flush(1)
            return wrong[0]
    return "hangs"


def by_kafka_python(bootstrap: str, settings: dict[str, str]) -> str:
    options = {_PYTHON_NAMES.get(name, name.replace(".", "_")): value for name, value in settings.items()}
    producer = None
    try:
        producer = KafkaProducer(bootstrap_servers=bootstrap, bootstrap_timeout_ms=3_000, **options)
        producer.send("logins", b"kafka-python").get(20)
    except KafkaPythonError as error:
        return type(error).__name__
    finally:
        if producer is not None:
            producer.close(1)
    return "written"


_PYTHON_NAMES: Final = {
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
}


def by_aiokafka(bootstrap: str, settings: dict[str, str]) -> str:
    from aiokafka.helpers import create_ssl_context

    options: dict[str, Any] = {
        _PYTHON_NAMES.get(name, name.replace(".", "_")): value for name, value in settings.items()
    }
    files = {name: options.pop(f"ssl_{name}", None) for name in ("cafile", "certfile", "keyfile")}
    if options["security_protocol"].endswith("SSL"):
        options["ssl_context"] = create_ssl_context(**files)

    async def produce() -> str:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, **options)
        try:
            await producer.start()
            await producer.send_and_wait("logins", b"aiokafka")
        except Exception as error:
            return type(error).__name__
        finally:
            await producer.stop()
        return "written"

    return asyncio.run(asyncio.wait_for(produce(), 30))


CLIENTS: Final = {
    "semel": by_semel,
    "confluent": by_confluent,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
}
# What each calls a login that the broker refused.
REFUSALS: Final = {
    "semel": {"AuthenticationFailed"},
    "confluent": {"_AUTHENTICATION"},
    # It logs the broker's answer, and tries again until its time is over.
    "kafka-python": {"KafkaTimeoutError"},
    # It reports only that no broker could be used, and logs the reason.
    "aiokafka": {"KafkaConnectionError", "AuthenticationFailedError"},
}
# The same of certificates that the broker, or the client, does not take.
TLS_REFUSALS: Final = {**REFUSALS, "confluent": {"_SSL"}}
