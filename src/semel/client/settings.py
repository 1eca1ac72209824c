"""The `kafka.*` options of a user, made into the settings of the client.

A user may write an option as Java's clients call it or as librdkafka does. The options that Spark's own source refuses
are refused here for the same reason, and an unknown option is refused by name, with the name that was probably meant: a
typing error must never be accepted silently. Settings go to other machines, so they can be pickled; a `repr` never
shows a password.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from semel.client.errors import SettingsRefused
from semel.wire.batch import HEADER_BYTES
from semel.wire.records import CODECS, LEVELS

PREFIX: Final = "kafka."
BOOTSTRAP: Final = "bootstrap.servers"
PORT_DEFAULT: Final = 9092

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

Address = tuple[str, int]


@dataclass(frozen=True)
class ClientSettings:
    """How to reach the brokers, and how much to request at once.

    Fields are the options of the same names. The defaults are Kafka's, except for the sizes of fetches: those are for a
    batch reader, which wants everything up to an offset.
    """

    bootstrap: tuple[Address, ...]
    client_id: str = "semel-spark"
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = "PLAIN"
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    # The function that returns a token, as its name: the process of the client calls it.
    sasl_token_callback: str | None = None
    ssl_ca_location: str | None = None
    ssl_ca_pem: str | None = field(default=None, repr=False)
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    isolation_level: str | None = None
    fetch_wait_ms_max: int = 500
    fetch_bytes_min: int = 1
    fetch_bytes_max: int = 50 * 1024 * 1024
    partition_bytes_max: int = 4 * 1024 * 1024
    request_timeout_ms: int = 30_000
    api_timeout_ms: int = 60_000
    connect_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_ms_max: int = 1_000
    receive_buffer_bytes: int = -1
    group_id: str | None = None
    compression: str = "none"
    compression_level: int | None = None
    batch_bytes: int = 1_000_000
    request_bytes_max: int = 1_048_576
    delivery_timeout_ms: int | None = None
    transaction_timeout_ms: int | None = None

    @property
    def payload_bytes_max(self) -> int:
        """How many bytes of records a batch has after its header."""
        return max(min(self.batch_bytes, self.request_bytes_max) - HEADER_BYTES, 1)

    @property
    def uses_tls(self) -> bool:
        return self.security_protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.security_protocol.startswith("SASL")


def from_options(options: Mapping[str, str]) -> ClientSettings:
    """The settings in a user's options, of which only those that begin with `kafka.` are read."""
    texts: dict[str, str] = {}
    for option, value in options.items():
        if not option.lower().startswith(PREFIX):
            continue
        written = option[len(PREFIX) :].lower()
        _refuse_what_is_ours(written)
        name = _JAVA_NAME_OF.get(written, written)
        if name not in _READ and name not in _WITHOUT_MEANING:
            known = (*_READ, *_WITHOUT_MEANING, *_JAVA_NAME_OF)
            raise SettingsRefused(unknown_option(written, known, PREFIX))
        if texts.setdefault(name, value.strip()) != value.strip():
            raise SettingsRefused(f"option kafka.{written} is given twice, under two names and with two values")
    if not texts.get(BOOTSTRAP):
        raise SettingsRefused("option kafka.bootstrap.servers is missing: HOST:PORT, or several with commas between")
    fields: dict[str, Any] = {}
    for name, value in texts.items():
        if name in _READ:
            target, read = _READ[name]
            fields[target] = _read(name, value, read)
    return ClientSettings(**_with_compression(_with_files(_with_login(fields, texts))))


def unknown_option(name: str, known: Iterable[str], prefix: str = "") -> str:
    """The message about an unknown option, with the name that was probably meant. Case does not count."""
    spelled = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), spelled, n=1)
    return f"option {prefix}{name} is not known" + (f"; was {prefix}{spelled[close[0]]} meant?" if close else "")


def _refuse_what_is_ours(name: str) -> None:
    reason = _REFUSED.get(name)
    if reason is not None:
        raise SettingsRefused(f"option kafka.{name} cannot be set: {reason}")


def _read(name: str, value: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(value)
    except ValueError as error:
        shown = "the value" if "password" in name or name == "sasl.jaas.config" else repr(value)
        raise SettingsRefused(f"option kafka.{name}: {shown} is not {error}") from None


def _with_login(fields: dict[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """The user of SASL, from `sasl.username` and `sasl.password` or from Java's `sasl.jaas.config`."""
    jaas = fields.pop("jaas", None)
    if jaas is not None:
        if "sasl.username" in texts or "sasl.password" in texts:
            raise SettingsRefused("options kafka.sasl.jaas.config and kafka.sasl.username both name a user: give one")
        module, fields["sasl_username"], fields["sasl_password"] = jaas
        mechanism = fields.get("sasl_mechanism", "PLAIN")
        if (module == "plain") != (mechanism == "PLAIN"):
            raise SettingsRefused(f"option kafka.sasl.jaas.config names a login for {module}, and not for {mechanism}")
    if (fields.get("sasl_mechanism") == "OAUTHBEARER") != (fields.get("sasl_token_callback") is not None):
        raise SettingsRefused(
            "option kafka.sasl.mechanism=OAUTHBEARER and option kafka.sasl.oauthbearer.token.callback need each other"
        )
    if fields.get("security_protocol", "PLAINTEXT").startswith("SASL"):
        if fields.get("sasl_token_callback") is not None:
            return fields
        if fields.get("sasl_username") is None or fields.get("sasl_password") is None:
            raise SettingsRefused(
                "option kafka.security.protocol asks for SASL: give kafka.sasl.username and kafka.sasl.password, "
                "or kafka.sasl.jaas.config"
            )
    elif fields.get("sasl_username") is not None or fields.get("sasl_token_callback") is not None:
        raise SettingsRefused(
            "a user of SASL is given, and option kafka.security.protocol does not ask for SASL: "
            "set it to SASL_SSL or SASL_PLAINTEXT"
        )
    return fields


def _with_files(fields: dict[str, Any]) -> dict[str, Any]:
    """Java's stores, if they are PEM files: one with the trusted authorities, one with the client's certificate."""
    stores = {name: (fields.pop(name, None), fields.pop(f"{name}_type", None)) for name in ("truststore", "keystore")}
    for name, (location, kind) in stores.items():
        if location is not None and kind != "PEM":
            raise SettingsRefused(
                f"option kafka.ssl.{name}.location is {location!r}: only PEM files can be read here; convert it and "
                f"set kafka.ssl.{name}.type=PEM"
            )
    trust, keys = stores["truststore"][0], stores["keystore"][0]
    if trust:
        fields.setdefault("ssl_ca_location", trust)
    if keys:
        fields.setdefault("ssl_certificate_location", keys)
        fields.setdefault("ssl_key_location", keys)
    return fields


def _with_compression(fields: dict[str, Any]) -> dict[str, Any]:
    """The compression level, checked by the codec."""
    level, codec = fields.get("compression_level"), fields.get("compression", "none")
    # In librdkafka, -1 lets the codec choose.
    if level is None or level == -1:
        return fields | {"compression_level": None}
    if codec not in LEVELS:
        raise SettingsRefused(f"option kafka.compression.level: compression.type={codec} has no levels")
    if not LEVELS[codec].start <= level < LEVELS[codec].stop:
        raise SettingsRefused(
            f"option kafka.compression.level: {level} is not a level of {codec}, {LEVELS[codec].start} to "
            f"{LEVELS[codec].stop - 1}"
        )
    return fields


def _text(value: str) -> str:
    if not value:
        raise ValueError("a name: it is empty")
    return value


def _secret(value: str) -> str:
    return value


def _number(lowest: int) -> Callable[[str], int]:
    def read(value: str) -> int:
        if not re.fullmatch(r"-?\d{1,10}", value) or not lowest <= int(value) < 1 << 31:
            raise ValueError(f"a whole number from {lowest} to {(1 << 31) - 1}")
        return int(value)

    return read


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value.upper() not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return value.upper()

    return read


def _codec(value: str) -> str:
    if value.lower() not in CODECS:
        raise ValueError(f"one of {', '.join(CODECS)}")
    return value.lower()


def _level(value: str) -> int:
    if not re.fullmatch(r"-?\d{1,6}", value):
        raise ValueError("a whole number")
    return int(value)


def _isolation(value: str) -> str:
    if value.lower() not in ("read_committed", "read_uncommitted"):
        raise ValueError("read_committed or read_uncommitted")
    return value.lower()


def _check_hostname(value: str) -> bool:
    if value.lower() not in ("https", "none", ""):
        raise ValueError("https, or none")
    return value.lower() == "https"


def _addresses(value: str) -> tuple[Address, ...]:
    return tuple(_address(one.strip()) for one in value.split(",") if one.strip())


def _address(text: str) -> Address:
    match = re.fullmatch(r"(?:[A-Za-z_]+://)?(?:\[([^\s\[\]]+)\]|([^\s\[\]:/]+))(?::(\d{1,5}))?", text)
    port = int(match[3] or PORT_DEFAULT) if match else 0
    if match is None or not 0 < port < 1 << 16:
        raise ValueError("HOST:PORT, or several with commas between")
    return match[1] or match[2], port


def _jaas(value: str) -> tuple[str, str, str]:
    """Which module logs in, and the user: `org...PlainLoginModule required username="u" password="p";`."""
    module = re.match(r"\s*[\w.]*\b(Plain|Scram)LoginModule\s+(?:required|requisite|sufficient|optional)\s", value)
    login = {
        name: re.sub(r"\\(.)", r"\1", quoted[1:-1])
        for name, quoted in re.findall(r"(\w+)\s*=\s*(\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')", value)
    }
    if module is None or "username" not in login or "password" not in login:
        raise ValueError("a PlainLoginModule or a ScramLoginModule with username and password")
    return module[1].lower(), login["username"], login["password"]


def _function(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", value):
        raise ValueError("MODULE:FUNCTION, for a function without arguments that returns a token")
    return value


# The options that the client uses: Java's name, the field that it sets, and how its text is read. librdkafka's own
# names for the same options follow.
_LOGIN: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "security.protocol": ("security_protocol", _one_of(*SECURITY_PROTOCOLS)),
    "sasl.mechanism": ("sasl_mechanism", _one_of(*SASL_MECHANISMS)),
    "sasl.username": ("sasl_username", _text),
    "sasl.password": ("sasl_password", _secret),
    "sasl.jaas.config": ("jaas", _jaas),
    "sasl.oauthbearer.token.callback": ("sasl_token_callback", _function),
}
_FILES: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "ssl.ca.location": ("ssl_ca_location", _text),
    "ssl.truststore.certificates": ("ssl_ca_pem", _text),
    "ssl.truststore.location": ("truststore", _text),
    "ssl.truststore.type": ("truststore_type", _one_of("PEM", "JKS", "PKCS12")),
    "ssl.certificate.location": ("ssl_certificate_location", _text),
    "ssl.key.location": ("ssl_key_location", _text),
    "ssl.key.password": ("ssl_key_password", _secret),
    "ssl.keystore.location": ("keystore", _text),
    "ssl.keystore.type": ("keystore_type", _one_of("PEM", "JKS", "PKCS12")),
    "ssl.endpoint.identification.algorithm": ("ssl_check_hostname", _check_hostname),
}
_READ: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    BOOTSTRAP: ("bootstrap", _addresses),
    "client.id": ("client_id", _text),
    **_LOGIN,
    **_FILES,
    "isolation.level": ("isolation_level", _isolation),
    "fetch.max.wait.ms": ("fetch_wait_ms_max", _number(0)),
    "fetch.min.bytes": ("fetch_bytes_min", _number(0)),
    "fetch.max.bytes": ("fetch_bytes_max", _number(1)),
    "max.partition.fetch.bytes": ("partition_bytes_max", _number(1)),
    "request.timeout.ms": ("request_timeout_ms", _number(1)),
    "default.api.timeout.ms": ("api_timeout_ms", _number(1)),
    "socket.connection.setup.timeout.ms": ("connect_timeout_ms", _number(1)),
    "retry.backoff.ms": ("retry_backoff_ms", _number(0)),
    "retry.backoff.max.ms": ("retry_backoff_ms_max", _number(0)),
    "receive.buffer.bytes": ("receive_buffer_bytes", _number(-1)),
    "group.id": ("group_id", _text),
    "compression.type": ("compression", _codec),
    "compression.level": ("compression_level", _level),
    "batch.size": ("batch_bytes", _number(1)),
    "max.request.size": ("request_bytes_max", _number(1_000)),
    "delivery.timeout.ms": ("delivery_timeout_ms", _number(1)),
    "transaction.timeout.ms": ("transaction_timeout_ms", _number(1_000)),
}
_JAVA_NAME_OF: Final = {
    "metadata.broker.list": BOOTSTRAP,
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "socket.timeout.ms": "request.timeout.ms",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "compression.codec": "compression.type",
    "queue.buffering.max.ms": "linger.ms",
    "message.timeout.ms": "delivery.timeout.ms",
    "message.max.bytes": "max.request.size",
}
# Options for a consumer that polls or is a member of a group, or for a producer that waits for records. This client
# does neither, so a user may set them, and they change nothing.
_WITHOUT_MEANING: Final = frozenset(
    (
        *("max.poll.records", "max.poll.interval.ms", "session.timeout.ms", "heartbeat.interval.ms", "check.crcs"),
        *("partition.assignment.strategy", "client.dns.lookup", "metadata.max.age.ms", "connections.max.idle.ms"),
        *("reconnect.backoff.ms", "reconnect.backoff.max.ms", "send.buffer.bytes", "allow.auto.create.topics"),
        *("group.instance.id", "group.protocol", "socket.connection.setup.timeout.max.ms"),
        *("linger.ms", "batch.num.messages", "buffer.memory", "max.block.ms", "queue.buffering.max.messages"),
        "queue.buffering.max.kbytes",
    )
)
_POLLED: Final = "records are handed on as they are, and columns of the data frame are cast instead"
_OURS: Final = "the sink's protocol sets it"
# With the words of Spark's own source, if it refuses the same option.
_REFUSED: Final = {
    "auto.offset.reset": "the option startingOffsets says where a query begins; after that Spark's checkpoint does",
    "enable.auto.commit": "no offsets are committed; Spark's checkpoint says how far a query has come",
    "key.deserializer": _POLLED,
    "value.deserializer": _POLLED,
    "key.serializer": _POLLED,
    "value.serializer": _POLLED,
    "interceptor.classes": "it could change what is read, and no Java class is run here",
    "acks": _OURS,
    "enable.idempotence": _OURS,
    "transactional.id": _OURS,
    "max.in.flight": _OURS,
    "max.in.flight.requests.per.connection": _OURS,
    "retries": "a request is retried until its deadline: set kafka.default.api.timeout.ms",
}
