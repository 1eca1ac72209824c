"""Watches whether the brokers serve a loop. If they do not, it logs once, after some seconds, what is wrong and what to
do, and once that it is over.

It must never raise because of that, and never end a loop: brokers that are away come back, and a missing topic may be
made.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException

from semel.database.clock import Clock
from semel.publish.clients import NO_WAY_THERE, lacking, remedy_of

# Long enough for a broker to restart, and short enough for a person who reads the log.
SAY_AFTER_MS: Final = 5_000
# How long the loop waits for the answer to a check, which it makes while no record comes.
ASK_SECONDS: Final = 2.0
_PATTERN: Final = "^"
# As librdkafka reads a setting.
_TRUE: Final = ("true", "t", "1")
# Its older name.
_OTHER_AUTO_COMMITS: Final = ("auto.commit.enable",)

logger = logging.getLogger("semel.inbox")

NO_BROKER: Final = "no broker answers: {}: {}"
NO_TOPIC: Final = "there is no topic {!r}: make it (semel topics create), or mend its name"
# If a user has no right to see a topic, some brokers answer that the topic does not exist.
NO_TOPIC_SEEN: Final = f"{NO_TOPIC}; a user of a cluster with ACLs needs the right Read on it"
NO_ANSWER: Final = f"no broker has answered a commit of offsets for {{:.0f}} s: {NO_WAY_THERE}"
NO_PARTITIONS: Final = (
    "the group has given this loop no partitions{}: a member that was killed keeps them until its session is over "
    "(session.timeout.ms), unless it comes back with the same group.instance.id. If it lasts longer, the group has no "
    "coordinator: on a new cluster look at offsets.topic.replication.factor, which must not be more than there are "
    "brokers"
)


class LoopFailed(RuntimeError):
    """A loop cannot begin or continue: the settings of its client are wrong, or the broker refuses it."""


class Brokers:
    """What a loop knows about the brokers. Until they have assigned its partitions, it doubts whether they serve it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._doubted_since_ms: int | None = clock()
        self._ask_at_ms = self._doubted_since_ms + SAY_AFTER_MS
        self._complaint: str | None = None
        self._has_partitions = False
        self._last_error: KafkaError | None = None

    def doubt(self, error: KafkaError | None = None) -> None:
        """The client has met an error that it retries by itself, or has no record."""
        self._last_error = error or self._last_error
        if self._doubted_since_ms is None:
            self._doubted_since_ms = self._clock()
            self._ask_at_ms = self._doubted_since_ms + SAY_AFTER_MS

    def give_partitions(self) -> None:
        """The group has assigned its partitions; this loop may have got none."""
        self._has_partitions = True

    def take_partitions(self) -> None:
        self._has_partitions = False

    def are_well(self) -> None:
        """A record came, or a check found nothing wrong."""
        if self._complaint is not None:
            logger.warning("going on: the brokers give what they were waited for")
        self._doubted_since_ms = self._complaint = self._last_error = None

    def tell_of_commit(self, waited_ms: int) -> None:
        """A commit of offsets has held up the loop for this time, which may become a minute. From any thread."""
        if waited_ms > SAY_AFTER_MS:
            self.doubt()
            self.tell(NO_ANSWER.format(waited_ms / 1000))

    @property
    def why_not(self) -> str | None:
        """What is wrong with the brokers as far as is known, or that the group has assigned nothing yet."""
        return self._complaint or (None if self._has_partitions else "the group has not given it its partitions yet")

    def is_time_to_ask(self) -> bool:
        """Whether there has been doubt for some seconds; the caller then checks what is wrong."""
        at_ms = self._clock()
        if self._doubted_since_ms is None or at_ms < self._ask_at_ms:
            return False
        self._ask_at_ms = at_ms + SAY_AFTER_MS
        return True

    def tell(self, wrong: str | None) -> None:
        """Takes the result of the check, None if nothing is wrong, and logs it."""
        if wrong is None and not self._has_partitions:
            wrong = NO_PARTITIONS.format(f" ({self._last_error.str()})" if self._last_error is not None else "")
        if wrong is None:
            self.are_well()
        elif self._complaint is None:
            self._complaint = wrong
            logger.warning("waiting: %s", wrong)

    def wrong_with(self, client: Consumer, topics: Sequence[str], seconds: float = ASK_SECONDS) -> str | None:
        """What is wrong with the topics, or that no broker answers; None if nothing is wrong."""
        for topic in topics:
            if topic.startswith(_PATTERN):
                continue
            try:
                error = client.list_topics(topic, seconds).topics[topic].error
            except KafkaException as failure:
                error = self._last_error or failure.args[0]
                return NO_BROKER.format(error.str(), remedy_of(error))
            if error is None:
                continue
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return NO_TOPIC.format(topic)
            return f"topic {topic!r} cannot be read: {error.str()}{lacking(error.code(), 'Read', topic)}"
        return None


def checked_config(settings: Mapping[str, Any], group: str, auto_commit: str) -> dict[str, Any]:
    if not settings.get(group):
        raise LoopFailed(f"the consumer has no {group}, so its offsets could not be stored: name one")
    for name in (auto_commit, *_OTHER_AUTO_COMMITS):
        if str(settings.get(name)).lower() in _TRUE:
            raise LoopFailed(f"{name}=true would commit offsets before their effects, which loses events: leave it out")
    return dict(settings)
