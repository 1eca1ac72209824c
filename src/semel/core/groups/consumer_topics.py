"""Which topics the members of a consumer group want: names and regular expressions, held against the catalog.

An expression is held against the names of topics only when topics have come or gone, and against each name once. What
was found is remembered and never kept: it follows from the subscriptions and the catalog, and is found again.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

from semel.core.entries import ConsumerSubscription
from semel.core.groups.assignors import DEFAULT_ASSIGNOR
from semel.core.groups.topic_patterns import TopicPattern
from semel.core.refusals import GROUP_MAX_SIZE_REACHED, Refused
from semel.core.topics import Catalog

# Different ones in one group: members mostly have one in common. Each is held against every topic there is.
EXPRESSIONS_MAX: Final = 100
# Name, number and partitions of each topic, in the order of the names.
Wanted = list[tuple[str, int, int]]


class WantedTopics:
    """The topics that subscriptions mean, with what was found for each expression."""

    def __init__(self) -> None:
        self._patterns: dict[str, _ResolvedPattern] = {}

    def of(self, subscription: ConsumerSubscription, catalog: Catalog) -> frozenset[int]:
        """The numbers of the topics that one member wants, of those that are there."""
        topics = map(catalog.named, subscription.topic_names)
        numbers = frozenset(topic.number for topic in topics if topic is not None)
        if subscription.topic_regex:
            numbers |= self._resolved(subscription.topic_regex).numbers(catalog)
        return numbers

    def of_each(
        self, subscriptions: Mapping[str, ConsumerSubscription], catalog: Catalog
    ) -> Mapping[str, frozenset[int]]:
        """The same of many members, by their ids. Those who want the same share one set: mostly that is all of them."""
        found: dict[tuple[tuple[str, ...], str], frozenset[int]] = {}
        of_each = {}
        for member_id, one in subscriptions.items():
            wish = one.topic_names, one.topic_regex
            if wish not in found:
                found[wish] = self.of(one, catalog)
            of_each[member_id] = found[wish]
        return of_each

    def wanted(self, subscriptions: Iterable[ConsumerSubscription], catalog: Catalog) -> Wanted:
        """Every topic that is there and that somebody wants."""
        wishes = {(one.topic_names, one.topic_regex): one for one in subscriptions}.values()
        numbers: set[int] = set().union(*(self.of(one, catalog) for one in wishes))
        topics = [topic for number in numbers if (topic := catalog.numbered(number)) is not None]
        return sorted((topic.name, topic.number, topic.partition_count) for topic in topics)

    def includes(self, subscription: ConsumerSubscription, topic_name: str) -> bool:
        """Whether a member would read a topic of this name."""
        if topic_name in subscription.topic_names:
            return True
        regex = subscription.topic_regex
        return bool(regex) and self._resolved(regex).pattern.matches(topic_name)

    def check_pattern(self, regex: str, subscriptions: Iterable[ConsumerSubscription]) -> None:
        """Refused if this is no regular expression, or one too many beside those of the members there are."""
        # Those of heartbeats that were refused afterwards are still remembered.
        self.forget_all_but(subscriptions)
        if regex not in self._patterns and len(self._patterns) >= EXPRESSIONS_MAX:
            raise Refused(GROUP_MAX_SIZE_REACHED, f"the group has {EXPRESSIONS_MAX} expressions, no more are allowed")
        self._resolved(regex)

    def forget_all_but(self, subscriptions: Iterable[ConsumerSubscription]) -> None:
        """Nobody asks for other expressions any more."""
        used = {subscription.topic_regex for subscription in subscriptions}
        self._patterns = {regex: pattern for regex, pattern in self._patterns.items() if regex in used}

    def _resolved(self, regex: str) -> "_ResolvedPattern":
        resolved = self._patterns.get(regex)
        if resolved is None:
            resolved = self._patterns[regex] = _ResolvedPattern(regex)
        return resolved


class _ResolvedPattern:
    """An expression and the topics that match it. Whether a name matches never changes, so each is looked at once."""

    def __init__(self, regex: str) -> None:
        self.pattern = TopicPattern(regex)
        self._changes = -1
        self._matches: dict[str, bool] = {}
        self._numbers: frozenset[int] = frozenset()

    def numbers(self, catalog: Catalog) -> frozenset[int]:
        if self._changes != catalog.changes:
            known = self._matches
            self._matches = {
                topic.name: known[topic.name] if topic.name in known else self.pattern.matches(topic.name)
                for topic in catalog
            }
            self._numbers = frozenset(topic.number for topic in catalog if self._matches[topic.name])
            self.pattern.forget_steps()
            self._changes = catalog.changes
        return self._numbers


def is_same_wish(one: ConsumerSubscription, other: ConsumerSubscription) -> bool:
    """Whether two subscriptions want the same topics, whatever topics there are."""
    return (one.topic_names, one.topic_regex) == (other.topic_names, other.topic_regex)


def digest_of(wanted: Wanted) -> str:
    """What tells apart one set of topics from another, or from itself after one has grown; empty for none."""
    return hashlib.sha256(repr(wanted).encode()).hexdigest()[:16] if wanted else ""


def preferred_assignor(subscriptions: Iterable[ConsumerSubscription]) -> str:
    """The assignor that most members ask for; of equals, the first by its name."""
    votes: dict[str, int] = {}
    for subscription in subscriptions:
        if subscription.assignor is not None:
            votes[subscription.assignor] = votes.get(subscription.assignor, 0) + 1
    return max(sorted(votes), key=lambda name: votes[name], default=DEFAULT_ASSIGNOR)
