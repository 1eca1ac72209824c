"""The settings of each semantic for each client, and why each one is as it is.

A bundle has only the settings that the semantic depends on: addresses, names and sizes are up to the program. This file
must never have a setting that `conflicts` objects to; a test checks that, and runs every bundle with the real client.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from semel.settings.clients import RETRIES_MAX, TABLES, Client, Role, Semantics, Value


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of a bundle, in the client's own words."""

    name: str
    value: Value
    why: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """All settings that one client needs for a semantic."""

    semantics: Semantics
    client: Client
    producer_settings: tuple[Setting, ...]
    consumer_settings: tuple[Setting, ...]
    # Both are empty for a client without share consumers, and where a share group cannot keep the guarantee.
    share_consumer_settings: tuple[Setting, ...] = ()
    share_group_settings: tuple[Setting, ...] = ()

    @property
    def producer(self) -> dict[str, Value]:
        """The settings of a producer, without its addresses."""
        return {setting.name: setting.value for setting in self.producer_settings}

    @property
    def consumer(self) -> dict[str, Value]:
        """The settings of a consumer, without its addresses and its group."""
        return {setting.name: setting.value for setting in self.consumer_settings}

    @property
    def share_consumer(self) -> dict[str, Value]:
        """The settings of a consumer of a share group, without its addresses and its group."""
        return {setting.name: setting.value for setting in self.share_consumer_settings}

    @property
    def share_group(self) -> dict[str, Value]:
        """The configurations of a share group, which the broker keeps."""
        return {setting.name: setting.value for setting in self.share_group_settings}

    def of(self, role: Role) -> tuple[Setting, ...]:
        return self.producer_settings if role is Role.PRODUCER else self.consumer_settings


_PATIENCE = Setting(
    "request.timeout.ms", 30_000, "how long the client waits for an answer before it sends the batch again"
)

# These and the tables below have Java's names.
_PRODUCERS: Final[Mapping[Semantics, tuple[Setting, ...]]] = {
    Semantics.AT_MOST_ONCE: (
        Setting(
            "enable.idempotence", False, "the client sends nothing twice, so the broker need not recognise retries"
        ),
        Setting(
            "acks",
            "1",
            "the broker answers when the record is written: the program learns what failed, and may count it",
        ),
        Setting("retries", 0, "the client never sends a record again: a record that is lost on the way stays lost"),
        Setting("request.timeout.ms", 30_000, "how long the client waits for an answer before it gives up the batch"),
        Setting("delivery.timeout.ms", 60_000, "how long a record may wait for its turn"),
    ),
    Semantics.AT_LEAST_ONCE: (
        Setting("enable.idempotence", False, "a batch that is sent again is stored again: readers have to expect that"),
        Setting("acks", "all", "an answer when the record is safe: what was answered survives the broker"),
        Setting(
            "retries",
            RETRIES_MAX,
            "the client sends again until it gets an answer, or until delivery.timeout.ms is over",
        ),
        Setting(
            "max.in.flight.requests.per.connection",
            1,
            "a batch that is sent again must not arrive after its successors",
        ),
        _PATIENCE,
        Setting(
            "delivery.timeout.ms", 120_000, "longer than any restart of the broker: a record that is given up is lost"
        ),
    ),
    Semantics.EXACTLY_ONCE: (
        Setting("enable.idempotence", True, "the client numbers its batches, so the broker recognises retries"),
        Setting("acks", "all", "an answer when the record is safe: what was answered survives the broker"),
        Setting("retries", RETRIES_MAX, "the client sends again until it gets an answer, which stores nothing twice"),
        Setting(
            "max.in.flight.requests.per.connection", 5, "the broker remembers the last five batches of each producer"
        ),
        _PATIENCE,
        Setting(
            "delivery.timeout.ms",
            120_000,
            "longer than any restart of the broker: a record that is given up may be stored",
        ),
    ),
}
_TRANSACTION_MS: Final = 60_000
_IN_TRANSACTIONS: Final = (
    Setting(
        "transaction.timeout.ms",
        _TRANSACTION_MS,
        "longer than the work between begin and commit; readers wait that long",
    ),
    Setting(
        "delivery.timeout.ms", _TRANSACTION_MS, "the client waits for a record no longer than its transaction is open"
    ),
)

# Strict order costs throughput; larger batches compensate for a part of that. librdkafka's are large already.
_IN_STRICT_ORDER: Final = (
    Setting(
        "max.in.flight.requests.per.connection", 1, "a record that is given up must not have successors in the log"
    ),
    Setting("linger.ms", 20, "one request at a time, so each has to carry more: wait a moment for others"),
    Setting("batch.size", 65_536, "one request at a time, so each has to carry more"),
)
_IN_STRICT_ORDER_LEFT_OUT: Final = {Client.CONFLUENT: "batch.size"}

_COMMITTED_ONLY: Final = Setting("isolation.level", "read_committed", "the consumer does not see aborted records")
_BACK_IN_TIME: Final = (
    Setting(
        "session.timeout.ms",
        45_000,
        "how long the group waits for a member that died before others take its partitions",
    ),
    Setting("max.poll.interval.ms", 300_000, "longer than the work between two polls, or others do the same work"),
    Setting(
        "request.timeout.ms", 30_000, "how long the client waits for a broker that is switched off or stands still"
    ),
)
_CONSUMERS: Final[Mapping[Semantics, tuple[Setting, ...]]] = {
    Semantics.AT_MOST_ONCE: (
        _COMMITTED_ONLY,
        Setting("enable.auto.commit", False, "commit before the work: the records of failed work are not read again"),
        Setting("auto.offset.reset", "latest", "a group without offsets begins with new records"),
        *_BACK_IN_TIME,
    ),
    Semantics.AT_LEAST_ONCE: (
        _COMMITTED_ONLY,
        Setting("enable.auto.commit", False, "commit after the work: the records of failed work are read again"),
        Setting("auto.offset.reset", "earliest", "a group without offsets reads all there is, and skips nothing"),
        *_BACK_IN_TIME,
    ),
    Semantics.EXACTLY_ONCE: (
        _COMMITTED_ONLY,
        Setting(
            "enable.auto.commit", False, "the offsets are committed with the effect: in its transaction, in its row"
        ),
        Setting("auto.offset.reset", "earliest", "a group without offsets reads all there is, and skips nothing"),
        *_BACK_IN_TIME,
    ),
}

# A share group delivers again, so it is never at most once.
_SHARES: Final = frozenset({Semantics.AT_LEAST_ONCE, Semantics.EXACTLY_ONCE})
_SHARERS: Final = frozenset({Client.CONFLUENT, Client.JAVA})
_SHARE_CONSUMERS: Final = (
    Setting("share.acknowledgement.mode", "explicit", "accept a record after the work, and not with the next poll"),
    Setting("max.poll.interval.ms", 300_000, "longer than the work between two polls, or others get its records"),
)
_SHARE_GROUPS: Final = (
    Setting("share.isolation.level", "read_committed", "nobody gets a record of an open or aborted transaction"),
    Setting("share.auto.offset.reset", "earliest", "a new group begins with the first record, and skips nothing"),
    Setting("share.delivery.count.limit", 5, "how often a record is delivered at most; the consumers have to know it"),
)

# The exceptions: a client that cannot do this, or means something else by the setting.
_OTHERWISE: Final[Mapping[tuple[Semantics, Client], tuple[Setting, ...]]] = {
    (Semantics.AT_MOST_ONCE, Client.CONFLUENT): (
        Setting(
            "metadata.recovery.strategy",
            "none",
            "otherwise the client sends the batches under way again when it has lost all brokers",
        ),
    ),
    (Semantics.AT_MOST_ONCE, Client.AIOKAFKA): (
        Setting(
            "acks", "0", "no answers: aiokafka always sends again if it gets no answer, and has no setting against that"
        ),
        Setting("delivery.timeout.ms", 30_000, "how long a record may wait for its turn"),
    ),
    (Semantics.AT_LEAST_ONCE, Client.AIOKAFKA): (
        Setting("delivery.timeout.ms", 120_000, "for one answer, and for all retries: longer than the broker is down"),
    ),
    (Semantics.EXACTLY_ONCE, Client.AIOKAFKA): (
        Setting("delivery.timeout.ms", 30_000, "for one answer; the client retries until it gets one"),
    ),
}
_IN_TRANSACTIONS_OTHERWISE: Final[Mapping[Client, tuple[Setting, ...]]] = {
    Client.CONFLUENT: (
        Setting(
            "metadata.recovery.strategy",
            "none",
            "otherwise the client hangs for ever when its broker was killed and is back",
        ),
    ),
}


def bundle(
    semantics: Semantics | str,
    client: Client | str,
    transactional_id: str | None = None,
    *,
    strict_order: bool = False,
) -> Bundle:
    """The settings of a semantic; with a transactional id, those of a producer that writes in transactions.

    `strict_order` is for a program that goes on after a record was given up: then the log has no later record of the
    partition, because the producer has one request under way at a time. (aiokafka never has more for one partition.)
    """
    semantics, client = Semantics(semantics), Client(client)
    if strict_order and semantics is Semantics.AT_MOST_ONCE:
        raise ValueError(f"{Semantics.AT_MOST_ONCE} never sends again, so nothing arrives out of order")
    if transactional_id is not None and semantics is not Semantics.EXACTLY_ONCE:
        raise ValueError(f"transactions are for {Semantics.EXACTLY_ONCE}, and not for {semantics}")
    produced = {line.name: line for line in _PRODUCERS[semantics]}
    produced |= {line.name: line for line in _OTHERWISE.get((semantics, client), ())}
    if strict_order:
        left_out = _IN_STRICT_ORDER_LEFT_OUT.get(client)
        produced |= {line.name: line for line in _IN_STRICT_ORDER if line.name != left_out}
    if transactional_id is not None:
        produced |= {line.name: line for line in _IN_TRANSACTIONS_OTHERWISE.get(client, ())}
        named = Setting(
            "transactional.id", transactional_id, "the same at every start: it fences the process that had it before"
        )
        told_apart = client is not Client.AIOKAFKA
        produced |= {line.name: line for line in (named, *_IN_TRANSACTIONS[: 1 + told_apart])}
    shares = semantics in _SHARES and client in _SHARERS
    return Bundle(
        semantics,
        client,
        tuple(_in_the_words_of(client, Role.PRODUCER, produced.values())),
        tuple(_in_the_words_of(client, Role.CONSUMER, _CONSUMERS[semantics])),
        tuple([_as_written(client, line) for line in _SHARE_CONSUMERS if shares]),
        _SHARE_GROUPS if shares else (),
    )


def _as_written(client: Client, line: Setting) -> Setting:
    """In Java all values are strings."""
    value = line.value
    if client is Client.JAVA:
        value = str(value).lower() if isinstance(value, bool) else str(value)
    return replace(line, value=value)


def _in_the_words_of(client: Client, role: Role, lines: Iterable[Setting]) -> Iterator[Setting]:
    """The settings that the client has, under its own names; in Java all values are strings."""
    for line in lines:
        known = TABLES[client][role].get(line.name)
        if known is not None:
            value = _as_written(client, line).value
            if client is not Client.JAVA and line.name == "acks" and isinstance(value, str) and value.isdigit():
                value = int(value)
            yield Setting(known.name, value, line.why)


def at_most_once(client: Client | str) -> Bundle:
    """No record is stored twice, and a record that meets a fault is lost."""
    return bundle(Semantics.AT_MOST_ONCE, client)


def at_least_once(client: Client | str, *, strict_order: bool = False) -> Bundle:
    """No record is lost, and a record that meets a fault may be stored twice."""
    return bundle(Semantics.AT_LEAST_ONCE, client, strict_order=strict_order)


def exactly_once(client: Client | str, transactional_id: str | None = None, *, strict_order: bool = False) -> Bundle:
    """No record is lost or stored twice while a producer runs; with a transactional id, which fences the earlier
    producers, also across restarts. `strict_order` is explained at `bundle`.
    """
    return bundle(Semantics.EXACTLY_ONCE, client, transactional_id, strict_order=strict_order)
