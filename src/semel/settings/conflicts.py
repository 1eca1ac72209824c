"""What in a configuration does not go together, or does not keep what a semantic promises, and what it would cost.

Each rule looks at what a configuration comes to and names one kind of conflict. What a client refuses by itself is
named as well: before the program starts, and with the reason. This file must never object to a bundle of its own room.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from semel.settings.clients import SOMETHING_ELSE, TABLES, client_of, names_of, roles_of
from semel.settings.reckoning import IN_FLIGHT_MAX, Reckoning
from semel.settings.vocabulary import Client, Role, Semantics

# The longest transaction that a broker allows where nothing else is set (transaction.max.timeout.ms).
TRANSACTION_MS_MAX: Final = 900_000


class Cost(StrEnum):
    """What a conflict comes to."""

    REFUSED = "refused"
    LOST = "lost"
    DOUBLED = "doubled"
    OUT_OF_ORDER = "out of order"
    STUCK = "stuck"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True)
class Conflict:
    """Settings that do not go together, or not with the semantic: why, at what cost, and what to do."""

    settings: tuple[str, ...]
    cost: Cost
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{' with '.join(self.settings)}: {self.problem} [{self.cost}]; {self.remedy}"


class UnknownSettings(ValueError):
    """Nothing tells whose settings these are, or for what; the message asks for it."""


def check(
    config: Mapping[str, object],
    *,
    semantics: Semantics | str = Semantics.EXACTLY_ONCE,
    client: Client | str | None = None,
    role: Role | str | None = None,
) -> list[Conflict]:
    """Every conflict in a client's configuration. The client and its role are told by the names, where nobody says."""
    names = set(config)
    client = Client(client) if client is not None else client_of(names)
    if client is None:
        raise UnknownSettings(f"cannot tell whose settings these are: say which of {', '.join(Client)} it is")
    roles = (Role(role),) if role is not None else roles_of(client, names)
    if not roles:
        raise UnknownSettings("cannot tell whether this is a producer or a consumer: say which")
    return list(_conflicts(config, Semantics(semantics), client, roles))


def _conflicts(
    config: Mapping[str, object], semantics: Semantics, client: Client, roles: tuple[Role, ...]
) -> Iterator[Conflict]:
    yield from _of_another_client(set(config), client, roles)
    for role in roles:
        reckoning = Reckoning(client, role, config)
        yield from _unread(reckoning)
        for rule in _RULES[role]:
            yield from rule(reckoning, semantics)


def _unread(reckoning: Reckoning) -> Iterator[Conflict]:
    """The clients in Python take any value, and then do something or other with it."""
    judged = reckoning.client in (Client.CONFLUENT, Client.JAVA)
    for unread in reckoning.unread:
        yield Conflict(
            (f"{unread.name}={unread.value}",),
            Cost.REFUSED if judged else Cost.IGNORED,
            "the setting has no such value",
            f"set it to {unread.wanted}",
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


def _against_idempotence(reckoning: Reckoning, _: Semantics) -> Iterator[Conflict]:
    """What cannot be had together with idempotence, and is refused with it."""
    wish = reckoning.name("transactional.id") if reckoning.transactional else reckoning.shown("enable.idempotence")
    if reckoning.wants_idempotence and reckoning.value("acks") != "all" and reckoning.given("acks"):
        yield Conflict(
            (reckoning.shown("acks"), wish),
            Cost.REFUSED,
            "a number says nothing of a batch whose answer came before it was safe",
            f"set {reckoning.name('acks')}=all",
        )
    if reckoning.wants_idempotence and not reckoning.repeats and reckoning.has("retries"):
        yield Conflict(
            (reckoning.shown("retries"), wish),
            Cost.REFUSED,
            "there is nothing to know again where nothing is sent again",
            f"leave {reckoning.name('retries')} out, and let the delivery timeout end it",
        )
    # Java looks at this one also where it has just turned idempotence off for the sake of another.
    is_looked_at = reckoning.idempotent or (
        reckoning.client is Client.JAVA and bool(reckoning.value("enable.idempotence"))
    )
    if is_looked_at and reckoning.in_flight > IN_FLIGHT_MAX:
        java = "max.in.flight.requests.per.connection"
        yield Conflict(
            (reckoning.shown(java), wish),
            Cost.REFUSED,
            f"the broker knows the last {IN_FLIGHT_MAX} batches of a producer, and no sixth",
            f"set {reckoning.name(java)} to {IN_FLIGHT_MAX} or less",
        )
    is_off = reckoning.given("enable.idempotence") and not reckoning.value("enable.idempotence")
    if reckoning.transactional and is_off and reckoning.client is not Client.AIOKAFKA:
        off = reckoning.shown("enable.idempotence")
        yield Conflict((off, wish), Cost.REFUSED, "a transaction is made of numbered batches", "leave it on")


def _without_idempotence(reckoning: Reckoning, semantics: Semantics) -> Iterator[Conflict]:
    """Exactly once, without numbers on the batches."""
    if semantics is not Semantics.EXACTLY_ONCE or reckoning.idempotent:
        return
    remedy = f"set {reckoning.name('enable.idempotence')}=true"
    forgone = reckoning.forgoes_idempotence
    for java in forgone:
        yield Conflict(
            (reckoning.shown(java),),
            Cost.DOUBLED if reckoning.repeats else Cost.LOST,
            f"{reckoning.client} turns idempotence off for it, and says so in its log at most",
            f"{remedy}, and it is refused instead",
        )
    if not forgone:
        yield Conflict(
            (reckoning.shown("enable.idempotence"),),
            Cost.DOUBLED,
            "a batch whose answer was lost is sent again, and written again",
            remedy,
        )


def _early_answers(reckoning: Reckoning, semantics: Semantics) -> Iterator[Conflict]:
    """Answers before the record is safe, where nothing may be lost."""
    acks = reckoning.value("acks")
    if semantics is Semantics.AT_MOST_ONCE or acks == "all" or reckoning.wants_idempotence:
        return
    if semantics is Semantics.EXACTLY_ONCE and reckoning.idempotent:
        return
    problem = {
        "0": "nothing is answered, so nothing that is lost is missed",
        "1": "what was answered is lost with the broker that had not made it safe yet",
    }
    yield Conflict((reckoning.shown("acks"),), Cost.LOST, problem[str(acks)], f"set {reckoning.name('acks')}=all")


def _giving_up(reckoning: Reckoning, semantics: Semantics) -> Iterator[Conflict]:
    """Batches that are not sent again, where nothing may be lost."""
    if semantics is Semantics.AT_MOST_ONCE or reckoning.repeats or reckoning.wants_idempotence:
        return
    if reckoning.has("retries"):
        yield Conflict(
            (reckoning.shown("retries"),),
            Cost.LOST,
            "a batch that meets a fault is given up",
            f"leave {reckoning.name('retries')} out, and let the delivery timeout end it",
        )


def _sending_again(reckoning: Reckoning, semantics: Semantics) -> Iterator[Conflict]:
    """Batches that are sent again, where nothing may be there twice."""
    if semantics is not Semantics.AT_MOST_ONCE or reckoning.idempotent or not reckoning.repeats:
        return
    setting = "retries" if reckoning.has("retries") else "acks"
    yield Conflict(
        (reckoning.shown(setting),),
        Cost.DOUBLED,
        "a batch whose answer was lost is sent again, and written again",
        f"set {reckoning.name(setting)}=0",
    )


def _beginning_anew(reckoning: Reckoning, semantics: Semantics) -> Iterator[Conflict]:
    """librdkafka, when it has lost its last broker: it forgets which there were. The offsets of a transaction then wait
    for one that never comes, and what was under way is sent again, whatever it was told of that."""
    java = "metadata.recovery.strategy"
    if not reckoning.has(java) or reckoning.value(java) != "rebootstrap":
        return
    if reckoning.transactional:
        yield Conflict(
            (reckoning.shown(java), reckoning.name("transactional.id")),
            Cost.STUCK,
            "send_offsets_to_transaction may wait for ever, whatever its timeout, once all brokers were away",
            f"set {reckoning.name(java)}=none",
        )
    if semantics is Semantics.AT_MOST_ONCE and not reckoning.idempotent and not reckoning.repeats:
        yield Conflict(
            (reckoning.shown(java), reckoning.shown("retries")),
            Cost.DOUBLED,
            "a client that lost all brokers begins anew, and sends again what was under way",
            f"set {reckoning.name(java)}=none",
        )


def _overtaking(reckoning: Reckoning, semantics: Semantics) -> Iterator[Conflict]:
    """Several batches under way that nothing keeps in order when one is sent again."""
    if semantics is Semantics.AT_MOST_ONCE or reckoning.idempotent or not reckoning.repeats:
        return
    if reckoning.in_flight > 1:
        java = "max.in.flight.requests.per.connection"
        yield Conflict(
            (reckoning.shown(java),),
            Cost.OUT_OF_ORDER,
            "without idempotence, a batch that is sent again arrives behind its successors",
            f"turn idempotence on, or set {reckoning.name(java)}=1",
        )


def _impatience(reckoning: Reckoning, _: Semantics) -> Iterator[Conflict]:
    """A record that is given up before it could be sent a second time."""
    if not reckoning.has("request.timeout.ms") or not reckoning.given("delivery.timeout.ms"):
        return
    delivery, linger = reckoning.number("delivery.timeout.ms"), reckoning.number("linger.ms")
    request = reckoning.number("request.timeout.ms")
    in_librdkafka = reckoning.client is Client.CONFLUENT
    if delivery >= linger + request or (in_librdkafka and delivery == 0):  # its word for ever
        return
    is_refused = not in_librdkafka or delivery <= linger
    if not is_refused and not reckoning.repeats:
        return
    yield Conflict(
        (reckoning.shown("delivery.timeout.ms"), reckoning.shown("request.timeout.ms")),
        Cost.REFUSED if is_refused else Cost.LOST,
        "a record is given up while its first request may still be answered: it may be stored, or not",
        f"set {reckoning.name('delivery.timeout.ms')} to {linger + request} or more, or wait less for answers",
    )


def _transactions(reckoning: Reckoning, _: Semantics) -> Iterator[Conflict]:
    """The times of a transaction, and times for a transaction that there is not."""
    java = "transaction.timeout.ms"
    if not reckoning.transactional:
        named = reckoning.given("transactional.id")
        if named or reckoning.given(java):
            yield Conflict(
                (f"{reckoning.name('transactional.id')}=" if named else reckoning.shown(java),),
                Cost.REFUSED if named and reckoning.client is Client.JAVA else Cost.IGNORED,
                "there are no transactions without a transactional id",
                f"set {reckoning.name('transactional.id')} to a name that stays the same at every start",
            )
        return
    transaction = reckoning.number(java)
    if transaction > TRANSACTION_MS_MAX:
        yield Conflict(
            (reckoning.shown(java),),
            Cost.REFUSED,
            f"brokers allow {TRANSACTION_MS_MAX} at most, where nothing else is set, and readers wait as long",
            f"set it to {TRANSACTION_MS_MAX} or less",
        )
    yield from _longer_than_the_transaction(reckoning, transaction)


def _longer_than_the_transaction(reckoning: Reckoning, transaction_ms: int) -> Iterator[Conflict]:
    """Waiting on for a record, or an answer, when the broker has aborted its transaction."""
    for java, what in (("delivery.timeout.ms", "a record"), ("request.timeout.ms", "an answer")):
        if not reckoning.given(java) or reckoning.number(java) <= transaction_ms:
            continue
        yield Conflict(
            (reckoning.shown(java), reckoning.shown("transaction.timeout.ms")),
            Cost.REFUSED if reckoning.client is Client.CONFLUENT else Cost.STUCK,
            f"{what} is waited for when the broker has aborted the transaction, and fenced the producer",
            f"set {reckoning.name(java)} to {transaction_ms} or less",
        )


# -- consumers --------------------------------------------------------------------------------------------------------


def _committing_by_itself(reckoning: Reckoning, semantics: Semantics) -> Iterator[Conflict]:
    """Offsets that are committed beside the work."""
    if not reckoning.value("enable.auto.commit"):
        return
    stored_by_hand = reckoning.has("enable.auto.offset.store") and not reckoning.value("enable.auto.offset.store")
    if semantics is Semantics.AT_LEAST_ONCE and stored_by_hand:
        return
    problem, cost = {
        Semantics.AT_MOST_ONCE: ("offsets are committed after the work has begun: it is done again", Cost.DOUBLED),
        Semantics.AT_LEAST_ONCE: ("offsets are committed while the work is still to be done", Cost.LOST),
        Semantics.EXACTLY_ONCE: ("offsets are committed apart from the effect, before it or after it", Cost.DOUBLED),
    }[semantics]
    yield Conflict(
        (reckoning.shown("enable.auto.commit"),),
        cost,
        problem,
        f"set {reckoning.name('enable.auto.commit')}=false, and commit where the semantic says",
    )


def _aborted_records(reckoning: Reckoning, semantics: Semantics) -> Iterator[Conflict]:
    """Records of transactions that were aborted, and done again."""
    if reckoning.value("isolation.level") == "read_committed" or semantics is Semantics.AT_LEAST_ONCE:
        return
    yield Conflict(
        (reckoning.shown("isolation.level"),),
        Cost.DOUBLED,
        "what was aborted is read, and read again when it was done anew",
        f"set {reckoning.name('isolation.level')}=read_committed",
    )


def _beginning_at_the_end(reckoning: Reckoning, semantics: Semantics) -> Iterator[Conflict]:
    """A group that skips what was written before it had offsets."""
    if semantics is Semantics.AT_MOST_ONCE or reckoning.value("auto.offset.reset") != "latest":
        return
    yield Conflict(
        (reckoning.shown("auto.offset.reset"),),
        Cost.LOST,
        "a group without offsets, a new one or one whose offsets are forgotten, skips what is there",
        f"set {reckoning.name('auto.offset.reset')}=earliest",
    )


def _sessions(reckoning: Reckoning, _: Semantics) -> Iterator[Conflict]:
    """The times by which a group takes a member for dead."""
    session = reckoning.number("session.timeout.ms")
    if reckoning.number("heartbeat.interval.ms") >= session:
        refused = reckoning.client in (Client.JAVA, Client.KAFKA_PYTHON)
        yield Conflict(
            (reckoning.shown("heartbeat.interval.ms"), reckoning.shown("session.timeout.ms")),
            Cost.REFUSED if refused else Cost.DOUBLED,
            "a member is taken for dead between two heartbeats, and others do its work again",
            f"set {reckoning.name('heartbeat.interval.ms')} to {session // 3} or less",
        )
    if reckoning.client is Client.CONFLUENT and reckoning.number("max.poll.interval.ms") < session:
        yield Conflict(
            (reckoning.shown("max.poll.interval.ms"), reckoning.shown("session.timeout.ms")),
            Cost.REFUSED,
            "a member is out for its silence before its session is over",
            f"set {reckoning.name('max.poll.interval.ms')} to {session} or more",
        )


_Rule = Callable[[Reckoning, Semantics], Iterator[Conflict]]
_RULES: Final[Mapping[Role, tuple[_Rule, ...]]] = {
    Role.PRODUCER: (
        *(_against_idempotence, _without_idempotence, _early_answers, _giving_up, _sending_again, _overtaking),
        *(_beginning_anew, _impatience, _transactions),
    ),
    Role.CONSUMER: (_committing_by_itself, _aborted_records, _beginning_at_the_end, _sessions),
}
