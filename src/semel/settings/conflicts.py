"""Finds settings in a configuration that contradict each other or break the promise of a semantic, and says what that
would cost. Each rule looks at the effective settings and names one kind of conflict. The rules also name conflicts that
the client itself refuses, but before the program starts, and with the reason. This file must never object to one of
`bundles`.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from semel.settings.clients import SOMETHING_ELSE, TABLES, Client, Role, Semantics, client_of, names_of, roles_of
from semel.settings.configuration import IN_FLIGHT_MAX, Configuration

# The longest transaction that a broker allows by default (transaction.max.timeout.ms).
TRANSACTION_MS_MAX: Final = 900_000


class Cost(StrEnum):
    """The consequence of a conflict."""

    REFUSED = "refused"
    LOST = "lost"
    DOUBLED = "doubled"
    OUT_OF_ORDER = "out of order"
    STUCK = "stuck"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True)
class Conflict:
    """Settings that contradict each other or the semantic, with the reason, the cost, and what to do."""

    settings: tuple[str, ...]
    cost: Cost
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{' with '.join(self.settings)}: {self.problem} [{self.cost}]; {self.remedy}"


class UnknownSettings(ValueError):
    """The names do not tell which client these settings are for, or which role; pass `argument`, one of `choices`."""

    def __init__(self, problem: str, argument: str, choices: Iterable[str]) -> None:
        self.problem = problem
        self.argument = argument
        self.choices = tuple(choices)
        super().__init__(f"{problem}: pass {argument}, one of {', '.join(self.choices)}")


def check(
    config: Mapping[str, object],
    *,
    semantics: Semantics | str = Semantics.EXACTLY_ONCE,
    client: Client | str | None = None,
    role: Role | str | None = None,
    strict_order: bool = False,
) -> list[Conflict]:
    """Every conflict in a client's configuration. If you do not pass the client and its role, the names of the settings
    tell. `strict_order` asks for one request under way at a time."""
    names = set(config)
    client = Client(client) if client is not None else client_of(names)
    if client is None:
        raise UnknownSettings("cannot tell whose settings these are", "client", Client)
    roles = (Role(role),) if role is not None else roles_of(client, names)
    if not roles:
        raise UnknownSettings("cannot tell whether this is a producer or a consumer", "role", Role)
    conflicts = list(_conflicts(config, Semantics(semantics), client, roles))
    if strict_order and Role.PRODUCER in roles:
        conflicts += _several_under_way(Configuration(client, Role.PRODUCER, config), conflicts)
    return conflicts


def _conflicts(
    raw: Mapping[str, object], semantics: Semantics, client: Client, roles: tuple[Role, ...]
) -> Iterator[Conflict]:
    yield from _of_another_client(set(raw), client, roles)
    for role in roles:
        config = Configuration(client, role, raw)
        yield from _unread(config)
        for rule in _RULES[role]:
            yield from rule(config, semantics)


def _unread(config: Configuration) -> Iterator[Conflict]:
    """The clients in Python accept any value, and what they then do differs."""
    is_checked = config.client in (Client.CONFLUENT, Client.JAVA)
    for unread in config.unread:
        yield Conflict(
            (f"{unread.name}={unread.value}",),
            Cost.REFUSED if is_checked else Cost.IGNORED,
            "the setting has no such value",
            f"set it to {unread.expected}",
        )


def _of_another_client(names: set[str], client: Client, roles: tuple[Role, ...]) -> Iterator[Conflict]:
    """Settings in the spelling of another client: Java ignores them, the others refuse them."""
    foreign = names - {name for role in Role for name in names_of(client, role)} - SOMETHING_ELSE[client]
    for role, other in itertools.product(roles, Client):
        for java, known in TABLES[other][role].items():
            for name in foreign.intersection((known.name, *known.other_names)):
                foreign.discard(name)
                own = TABLES[client][role].get(java)
                yield Conflict(
                    (name,),
                    Cost.IGNORED if client is Client.JAVA else Cost.REFUSED,
                    f"{client} has no setting of this name",
                    f"it is called {own.name}" if own is not None else "leave it out",
                )


# -- producers --------------------------------------------------------------------------------------------------------


def _against_idempotence(config: Configuration, _: Semantics) -> Iterator[Conflict]:
    """Settings that contradict idempotence, and that the client refuses."""
    wish = config.name("transactional.id") if config.transactional else config.shown("enable.idempotence")
    if config.wants_idempotence and config.value("acks") != "all" and config.is_set("acks"):
        yield Conflict(
            (config.shown("acks"), wish),
            Cost.REFUSED,
            "the broker answers before the batch is safe, so sequence numbers cannot save it",
            f"set {config.name('acks')}=all",
        )
    if config.wants_idempotence and not config.repeats and config.has("retries"):
        yield Conflict(
            (config.shown("retries"), wish),
            Cost.REFUSED,
            "if no batch is sent again, there is no duplicate to recognise",
            f"leave {config.name('retries')} out, and let the delivery timeout end it",
        )
    # Java checks this one even if it has just turned idempotence off because of another setting.
    is_looked_at = config.idempotent or (config.client is Client.JAVA and bool(config.value("enable.idempotence")))
    if is_looked_at and config.in_flight > IN_FLIGHT_MAX:
        java = "max.in.flight.requests.per.connection"
        yield Conflict(
            (config.shown(java), wish),
            Cost.REFUSED,
            f"the broker remembers the last {IN_FLIGHT_MAX} batches of a producer, and no more",
            f"set {config.name(java)} to {IN_FLIGHT_MAX} or less",
        )
    is_off = config.is_set("enable.idempotence") and not config.value("enable.idempotence")
    if config.transactional and is_off and config.client is not Client.AIOKAFKA:
        off = config.shown("enable.idempotence")
        yield Conflict((off, wish), Cost.REFUSED, "a transaction is made of numbered batches", "leave it on")


def _without_idempotence(config: Configuration, semantics: Semantics) -> Iterator[Conflict]:
    """Exactly once, but without numbered batches."""
    if semantics is not Semantics.EXACTLY_ONCE or config.idempotent:
        return
    remedy = f"set {config.name('enable.idempotence')}=true"
    forgoing = config.forgoes_idempotence
    for java in forgoing:
        yield Conflict(
            (config.shown(java),),
            Cost.DOUBLED if config.repeats else Cost.LOST,
            f"{config.client} turns idempotence off for it, and says so in its log at most",
            f"{remedy}, and it is refused instead",
        )
    if not forgoing:
        yield Conflict(
            (config.shown("enable.idempotence"),),
            Cost.DOUBLED,
            "a batch whose answer was lost is sent again, and written again",
            remedy,
        )


def _early_answers(config: Configuration, semantics: Semantics) -> Iterator[Conflict]:
    """Answers before the record is safe, though nothing may be lost."""
    acks = config.value("acks")
    if semantics is Semantics.AT_MOST_ONCE or acks == "all" or config.wants_idempotence:
        return
    if semantics is Semantics.EXACTLY_ONCE and config.idempotent:
        return
    problem = {
        "0": "the broker does not answer, so nobody notices a lost record",
        "1": "the broker answers before the record is safe: if it crashes then, the record is lost",
    }
    yield Conflict((config.shown("acks"),), Cost.LOST, problem[str(acks)], f"set {config.name('acks')}=all")


def _giving_up(config: Configuration, semantics: Semantics) -> Iterator[Conflict]:
    """Batches that are not sent again, though nothing may be lost."""
    if semantics is Semantics.AT_MOST_ONCE or config.repeats or config.wants_idempotence:
        return
    if config.has("retries"):
        yield Conflict(
            (config.shown("retries"),),
            Cost.LOST,
            "a batch that meets a fault is given up",
            f"leave {config.name('retries')} out, and let the delivery timeout end it",
        )


def _sending_again(config: Configuration, semantics: Semantics) -> Iterator[Conflict]:
    """Batches that are sent again, though nothing may be stored twice."""
    if semantics is not Semantics.AT_MOST_ONCE or config.idempotent or not config.repeats:
        return
    setting = "retries" if config.has("retries") else "acks"
    yield Conflict(
        (config.shown(setting),),
        Cost.DOUBLED,
        "a batch whose answer was lost is sent again, and written again",
        f"set {config.name(setting)}=0",
    )


def _beginning_anew(config: Configuration, semantics: Semantics) -> Iterator[Conflict]:
    """When librdkafka has lost its last broker, it forgets all brokers. The offsets of a transaction then wait for a
    broker that never comes, and batches under way are sent again even with `retries=0`.
    """
    java = "metadata.recovery.strategy"
    if not config.has(java) or config.value(java) != "rebootstrap":
        return
    if config.transactional:
        yield Conflict(
            (config.shown(java), config.name("transactional.id")),
            Cost.STUCK,
            "send_offsets_to_transaction may wait for ever, whatever its timeout, once all brokers were away",
            f"set {config.name(java)}=none",
        )
    if semantics is Semantics.AT_MOST_ONCE and not config.idempotent and not config.repeats:
        yield Conflict(
            (config.shown(java), config.shown("retries")),
            Cost.DOUBLED,
            "a client that lost all brokers starts again, and sends the batches under way a second time",
            f"set {config.name(java)}=none",
        )


def _overtaking(config: Configuration, semantics: Semantics) -> Iterator[Conflict]:
    """Several batches under way that lose their order when one is sent again."""
    if semantics is Semantics.AT_MOST_ONCE or config.idempotent or not config.repeats:
        return
    if config.in_flight > 1:
        java = "max.in.flight.requests.per.connection"
        yield Conflict(
            (config.shown(java),),
            Cost.OUT_OF_ORDER,
            "without idempotence, a batch that is sent again arrives after its successors",
            f"turn idempotence on, or set {config.name(java)}=1",
        )


def _several_under_way(config: Configuration, others: Sequence[Conflict]) -> Iterator[Conflict]:
    """Only checked for strict order, because idempotence keeps the order of batches as long as none is given up."""
    java = "max.in.flight.requests.per.connection"
    if config.in_flight > 1 and not any(config.shown(java) in conflict.settings for conflict in others):
        yield Conflict(
            (config.shown(java),),
            Cost.OUT_OF_ORDER,
            "if a batch is given up, its successors may be in the log, and it is after them when it is produced again",
            f"set {config.name(java)}=1",
        )


def _impatience(config: Configuration, _: Semantics) -> Iterator[Conflict]:
    """A timeout after which a record is given up before it could be sent a second time."""
    if not config.has("request.timeout.ms") or not config.is_set("delivery.timeout.ms"):
        return
    delivery, linger = config.number("delivery.timeout.ms"), config.number("linger.ms")
    request = config.number("request.timeout.ms")
    in_librdkafka = config.client is Client.CONFLUENT
    if delivery >= linger + request or (in_librdkafka and delivery == 0):  # 0 means infinity
        return
    is_refused = not in_librdkafka or delivery <= linger
    if not is_refused and not config.repeats:
        return
    yield Conflict(
        (config.shown("delivery.timeout.ms"), config.shown("request.timeout.ms")),
        Cost.REFUSED if is_refused else Cost.LOST,
        "a record is given up while its first request may still be answered: it may be stored, or not",
        f"set {config.name('delivery.timeout.ms')} to {linger + request} or more, or wait less for answers",
    )


def _transactions(config: Configuration, _: Semantics) -> Iterator[Conflict]:
    """The timeouts of a transaction, also if the producer has no transactions."""
    java = "transaction.timeout.ms"
    if not config.transactional:
        named = config.is_set("transactional.id")
        if named or config.is_set(java):
            yield Conflict(
                (f"{config.name('transactional.id')}=" if named else config.shown(java),),
                Cost.REFUSED if named and config.client is Client.JAVA else Cost.IGNORED,
                "there are no transactions without a transactional id",
                f"set {config.name('transactional.id')} to a name that stays the same at every start",
            )
        return
    transaction = config.number(java)
    if transaction > TRANSACTION_MS_MAX:
        yield Conflict(
            (config.shown(java),),
            Cost.REFUSED,
            f"brokers allow {TRANSACTION_MS_MAX} at most, where nothing else is set, and readers wait as long",
            f"set it to {TRANSACTION_MS_MAX} or less",
        )
    yield from _longer_than_the_transaction(config, transaction)


def _longer_than_the_transaction(config: Configuration, transaction_ms: int) -> Iterator[Conflict]:
    """Timeouts that are longer than the transaction: the client would wait for a record or an answer after the broker
    has aborted it.
    """
    for java, what in (("delivery.timeout.ms", "a record"), ("request.timeout.ms", "an answer")):
        if not config.is_set(java) or config.number(java) <= transaction_ms:
            continue
        yield Conflict(
            (config.shown(java), config.shown("transaction.timeout.ms")),
            Cost.REFUSED if config.client is Client.CONFLUENT else Cost.STUCK,
            f"{what} is waited for when the broker has aborted the transaction, and fenced the producer",
            f"set {config.name(java)} to {transaction_ms} or less",
        )


# -- consumers --------------------------------------------------------------------------------------------------------


def _committing_by_itself(config: Configuration, semantics: Semantics) -> Iterator[Conflict]:
    """Offsets that the client commits automatically."""
    if not config.value("enable.auto.commit"):
        return
    stored_by_hand = config.has("enable.auto.offset.store") and not config.value("enable.auto.offset.store")
    if semantics is Semantics.AT_LEAST_ONCE and stored_by_hand:
        return
    problem, cost = {
        Semantics.AT_MOST_ONCE: (
            "the client commits offsets after the work has begun: after a crash the work is done again",
            Cost.DOUBLED,
        ),
        Semantics.AT_LEAST_ONCE: ("the client commits offsets before the work is done", Cost.LOST),
        Semantics.EXACTLY_ONCE: (
            "the client commits offsets separately from the effect, before it or after it",
            Cost.DOUBLED,
        ),
    }[semantics]
    yield Conflict(
        (config.shown("enable.auto.commit"),),
        cost,
        problem,
        f"set {config.name('enable.auto.commit')}=false, and commit where the semantic says",
    )


def _aborted_records(config: Configuration, semantics: Semantics) -> Iterator[Conflict]:
    """Records of aborted transactions."""
    if config.value("isolation.level") == "read_committed" or semantics is Semantics.AT_LEAST_ONCE:
        return
    yield Conflict(
        (config.shown("isolation.level"),),
        Cost.DOUBLED,
        "aborted records are read, and so are the records of the retry",
        f"set {config.name('isolation.level')}=read_committed",
    )


def _beginning_at_the_end(config: Configuration, semantics: Semantics) -> Iterator[Conflict]:
    """A group that skips the records from before its first offsets."""
    if semantics is Semantics.AT_MOST_ONCE or config.value("auto.offset.reset") != "latest":
        return
    yield Conflict(
        (config.shown("auto.offset.reset"),),
        Cost.LOST,
        "a group without offsets, a new one or one whose offsets have expired, skips the records in the topic",
        f"set {config.name('auto.offset.reset')}=earliest",
    )


def _sessions(config: Configuration, _: Semantics) -> Iterator[Conflict]:
    """The timeouts after which a group considers a member dead."""
    session = config.number("session.timeout.ms")
    if config.number("heartbeat.interval.ms") >= session:
        refused = config.client in (Client.JAVA, Client.KAFKA_PYTHON)
        yield Conflict(
            (config.shown("heartbeat.interval.ms"), config.shown("session.timeout.ms")),
            Cost.REFUSED if refused else Cost.DOUBLED,
            "the group considers a member dead between two heartbeats, and other members do its work again",
            f"set {config.name('heartbeat.interval.ms')} to {session // 3} or less",
        )
    if config.client is Client.CONFLUENT and config.number("max.poll.interval.ms") < session:
        yield Conflict(
            (config.shown("max.poll.interval.ms"), config.shown("session.timeout.ms")),
            Cost.REFUSED,
            "the group removes a member that does not poll before its session is over",
            f"set {config.name('max.poll.interval.ms')} to {session} or more",
        )


_Rule = Callable[[Configuration, Semantics], Iterator[Conflict]]
_RULES: Final[Mapping[Role, tuple[_Rule, ...]]] = {
    Role.PRODUCER: (
        *(_against_idempotence, _without_idempotence, _early_answers, _giving_up, _sending_again, _overtaking),
        *(_beginning_anew, _impatience, _transactions),
    ),
    Role.CONSUMER: (_committing_by_itself, _aborted_records, _beginning_at_the_end, _sessions),
}
