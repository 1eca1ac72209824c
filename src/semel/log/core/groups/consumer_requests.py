"""The heartbeat of a member of a consumer group: whether it is valid, and how it changes the subscription.

A member that joins sends all fields. Later heartbeats send only the fields that have changed; a field that is left out
keeps its value. Nothing here knows the group.
"""

from collections.abc import Iterable
from typing import Any, Final

from semel.log.core.entries import ConsumerSubscription
from semel.log.core.groups.assignors import ASSIGNORS
from semel.log.core.groups.classic_members import MEMBER_BYTES, PROTOCOL_BYTES
from semel.log.core.groups.consumer_members import AWAY_EPOCH, JOIN_EPOCH
from semel.log.core.groups.partitions import Partitions
from semel.log.core.values import value
from semel.wire.refusals import INVALID_REQUEST, UNSUPPORTED_ASSIGNOR, Refused

LEAVE_EPOCH: Final = -1
# The characters in all topic names of one member, which the journal stores. A name has 249 at most, usually a dozen.
SUBSCRIPTION_CHARACTERS_MAX: Final = 256 * 1024


@value
class Heartbeat:
    """One heartbeat. A field that was left out is None, or -1 if it is a time.

    `owned` are the partitions that the member says it owns, by the numbers of topics; an unknown topic has number -1.
    """

    member_id: str
    epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    # The principal that sends it.
    principal: str = ""

    @property
    def says_all(self) -> bool:
        """Whether no field was left out: the member joins, or does not know whether the broker has got its fields."""
        names_topics = self.topic_names is not None or self.topic_regex is not None
        return self.epoch == JOIN_EPOCH or (self.rebalance_timeout_ms != -1 and names_topics and self.owned is not None)

    @property
    def leaves(self) -> bool:
        return self.epoch in (LEAVE_EPOCH, AWAY_EPOCH)


def check(beat: Heartbeat) -> None:
    """Refused if a heartbeat makes no sense in any group."""
    if not beat.member_id:
        _refuse("a member needs an id")
    if beat.instance_id == "":
        _refuse("an instance id may be left out, but not be empty")
    if beat.rack_id == "":
        _refuse("a rack id may be left out, but not be empty")
    if beat.epoch < AWAY_EPOCH:
        _refuse(f"{beat.epoch} is no member epoch")
    if beat.epoch == AWAY_EPOCH and beat.instance_id is None:
        _refuse("only a static member leaves for a while")
    if beat.epoch == JOIN_EPOCH:
        _check_joining(beat)
    if are_too_many(beat.topic_names or ()):
        _refuse(f"the names of the topics have more than {SUBSCRIPTION_CHARACTERS_MAX} characters")
    if beat.assignor is not None and beat.assignor not in ASSIGNORS:
        raise Refused(
            UNSUPPORTED_ASSIGNOR, f"assignor '{beat.assignor}' is not known; there are {', '.join(ASSIGNORS)}"
        )


def are_too_many(topic_names: Iterable[str]) -> bool:
    """Whether these names are more than one member may subscribe to."""
    return sum(map(len, topic_names)) > SUBSCRIPTION_CHARACTERS_MAX


def _check_joining(beat: Heartbeat) -> None:
    if beat.rebalance_timeout_ms == -1:
        _refuse("a member that joins must send its rebalance timeout")
    if beat.owned is None or beat.owned:
        _refuse("a member that joins must say that it owns no partitions")
    if beat.topic_names is None and beat.topic_regex is None:
        _refuse("a member that joins must say which topics it wants")


def _refuse(reason: str) -> None:
    raise Refused(INVALID_REQUEST, reason)


def subscription_bytes(subscription: ConsumerSubscription) -> int:
    """About how much memory a member takes, without its partitions."""
    texts = (
        subscription.member_id,
        subscription.instance_id or "",
        subscription.rack_id or "",
        subscription.client_id,
        subscription.principal,
        subscription.topic_regex,
        *subscription.topic_names,
        *(text for protocol in subscription.classic_protocols for text in protocol),
    )
    return MEMBER_BYTES + sum(map(len, texts)) + PROTOCOL_BYTES * len(subscription.classic_protocols)


def with_what_was_said(known: ConsumerSubscription, beat: Heartbeat) -> ConsumerSubscription:
    """The subscription of a member after this heartbeat."""
    news: dict[str, Any] = {
        "rack_id": beat.rack_id,
        "rebalance_timeout_ms": None if beat.rebalance_timeout_ms == -1 else beat.rebalance_timeout_ms,
        "topic_names": None if beat.topic_names is None else tuple(sorted(set(beat.topic_names))),
        "topic_regex": beat.topic_regex,
        "assignor": beat.assignor,
    }
    changes = {name: value for name, value in news.items() if value is not None}
    return known._replace(
        member_id=beat.member_id,
        client_id=beat.client_id,
        client_host=beat.client_host,
        principal=beat.principal,
        classic_session_timeout_ms=-1,
        classic_protocols=(),
        **changes,
    )
