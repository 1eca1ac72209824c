"""The topics to which the members of a consumer group subscribe: names and regular expressions.

An expression is matched against the catalog only after topics were created or deleted, and against each name once. That
takes long if there are many topics, so it is done in steps before a decision; the decision itself matches only the
topics that were created since. The matches are kept in memory and never stored: they follow from the subscriptions and
the catalog.
"""

import hashlib
from collections.abc import Container, Iterable, Mapping
from typing import Final

from semel.core.entries import ConsumerSubscription
from semel.core.groups.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, Reader
from semel.core.groups.partitions import NOTHING, Partitions
from semel.core.groups.topic_patterns import TopicPattern
from semel.core.refusals import GROUP_MAX_SIZE_REACHED, Refused
from semel.core.steps import Steps, finish
from semel.core.topics import Catalog

# Different expressions in one group. Its members usually share one, and each expression is matched against all topics.
EXPRESSIONS_MAX: Final = 100
# How often a look-up in steps begins again because topics were created meanwhile. Each time it has less to do.
_ROUNDS_MAX: Final = 3
# Names of topics between two steps.
_NAMES_AT_ONCE: Final = 50
# Name, number and partitions of each topic, in the order of the names.
Wanted = list[tuple[str, int, int]]


class WantedTopics:
    """Finds the topics of subscriptions, and caches the matches of each expression."""

    def __init__(self) -> None:
        self._patterns: dict[str, ResolvedPattern] = {}
        # `Catalog.changes` when the expressions of all members were last looked up.
        self._looked_up = -1

    def of(self, subscription: ConsumerSubscription, catalog: Catalog) -> frozenset[int]:
        """The numbers of the existing topics to which one member subscribes."""
        topics = map(catalog.named, subscription.topic_names)
        numbers = frozenset(topic.number for topic in topics if topic is not None)
        if subscription.topic_regex:
            numbers |= self._resolved(subscription.topic_regex).numbers(catalog)
        return numbers

    def of_each(
        self, subscriptions: Mapping[str, ConsumerSubscription], catalog: Catalog
    ) -> Mapping[str, frozenset[int]]:
        """The same for many members, by their ids. Members with the same subscription share one set."""
        numbers_by_subscription: dict[tuple[tuple[str, ...], str], frozenset[int]] = {}
        of_each = {}
        for member_id, one in subscriptions.items():
            wish = one.topic_names, one.topic_regex
            if wish not in numbers_by_subscription:
                numbers_by_subscription[wish] = self.of(one, catalog)
            of_each[member_id] = numbers_by_subscription[wish]
        return of_each

    def wanted(self, subscriptions: Mapping[str, ConsumerSubscription], catalog: Catalog) -> Wanted:
        """Every existing topic to which a member subscribes."""
        return wanted_of(self.of_each(subscriptions, catalog), catalog)

    def includes(self, subscription: ConsumerSubscription, topic_name: str) -> bool:
        """Whether a subscription includes a topic of this name."""
        if topic_name in subscription.topic_names:
            return True
        regex = subscription.topic_regex
        return bool(regex) and self._resolved(regex).pattern.matches(topic_name)

    def look_up(
        self, subscriptions: Iterable[ConsumerSubscription], regex: str | None, catalog: Catalog
    ) -> Steps["ResolvedPattern | None"]:
        """Find in steps the topics that match the members' expressions, and those that match `regex`, which may be new.
        Refused if `regex` is not a regular expression.
        """
        changes = catalog.changes
        if self._looked_up != changes:
            for regex_of_member in sorted({subscription.topic_regex or "" for subscription in subscriptions} - {""}):
                yield from self._resolved(regex_of_member).look_up(catalog)
            self._looked_up = changes
        if not regex:
            return None
        pattern = self._patterns.get(regex) or ResolvedPattern(regex)
        yield from pattern.look_up(catalog)
        return pattern

    def remember(self, pattern: "ResolvedPattern") -> None:
        """Keep a pattern and its matches for the decision that follows."""
        self._patterns.setdefault(pattern.pattern.text, pattern)

    def check_pattern(self, regex: str, subscriptions: Iterable[ConsumerSubscription]) -> None:
        """Refused if this is not a regular expression, or if the group would have too many of them."""
        regexes = {subscription.topic_regex for subscription in subscriptions}
        # Expressions of heartbeats that were refused later are still kept.
        self._forget_all_but({*regexes, regex})
        if len({*self._patterns, regex}) > EXPRESSIONS_MAX:
            self._forget_all_but(regexes)
            raise Refused(GROUP_MAX_SIZE_REACHED, f"the group has {EXPRESSIONS_MAX} expressions, no more are allowed")
        self._resolved(regex)

    def forget_all_but(self, subscriptions: Iterable[ConsumerSubscription]) -> None:
        """Forget the expressions that none of these subscriptions has."""
        self._looked_up = -1
        self._forget_all_but({subscription.topic_regex for subscription in subscriptions})

    def _forget_all_but(self, regexes: Container[str | None]) -> None:
        self._patterns = {regex: pattern for regex, pattern in self._patterns.items() if regex in regexes}

    def _resolved(self, regex: str) -> "ResolvedPattern":
        pattern = self._patterns.get(regex)
        if pattern is None:
            pattern = self._patterns[regex] = ResolvedPattern(regex)
        return pattern


class ResolvedPattern:
    """An expression and the topics that match it. Each name is matched only once, because the result cannot change."""

    def __init__(self, regex: str) -> None:
        self.pattern = TopicPattern(regex)
        self._changes = -1
        self._matches: dict[str, bool] = {}
        self._numbers: frozenset[int] = frozenset()

    def numbers(self, catalog: Catalog) -> frozenset[int]:
        """The numbers of the topics that match now."""
        finish(self.look_up(catalog))
        return self._numbers

    def look_up(self, catalog: Catalog) -> Steps[None]:
        """Find in steps which topics match. The decision itself looks at topics that were created after the
        last step.
        """
        for _ in range(_ROUNDS_MAX):
            if self._changes == catalog.changes:
                return
            yield from self._look_through(catalog)

    def _look_through(self, catalog: Catalog) -> Steps[None]:
        changes = catalog.changes
        matches: dict[str, bool] = {}
        numbers = []
        for topic in list(catalog):
            known = self._matches.get(topic.name)
            if known is None:
                # Kept at once, because another request may look up the same pattern meanwhile.
                known = self._matches[topic.name] = yield from self.pattern.matches_in_steps(topic.name)
            matches[topic.name] = known
            if known:
                numbers.append(topic.number)
            if len(matches) % _NAMES_AT_ONCE == 0:
                yield _NAMES_AT_ONCE // 5
        self._matches, self._numbers, self._changes = matches, frozenset(numbers), changes
        self.pattern.forget_steps()


def wanted_of(topics: Mapping[str, frozenset[int]], catalog: Catalog) -> Wanted:
    """Every existing topic to which a member subscribes; `topics` has the numbers for each member."""
    numbers: frozenset[int] = frozenset().union(*set(topics.values()))
    existing = [topic for number in numbers if (topic := catalog.numbered(number)) is not None]
    return sorted([(topic.name, topic.number, topic.partition_count) for topic in existing])


def is_same_wish(one: ConsumerSubscription, other: ConsumerSubscription) -> bool:
    """Whether two subscriptions have the same names and the same expression."""
    return (one.topic_names, one.topic_regex) == (other.topic_names, other.topic_regex)


def digest_of(wanted: Wanted) -> str:
    """A digest of a set of topics, which changes when a topic is added, removed or grows; empty for no topics."""
    return hashlib.sha256(repr(wanted).encode()).hexdigest()[:16] if wanted else ""


def preferred_assignor(subscriptions: Iterable[ConsumerSubscription]) -> str:
    """The assignor that most members ask for; in a tie, the first by its name."""
    votes: dict[str, int] = {}
    for subscription in subscriptions:
        if subscription.assignor is not None:
            votes[subscription.assignor] = votes.get(subscription.assignor, 0) + 1
    return max(sorted(votes), key=lambda name: votes[name], default=DEFAULT_ASSIGNOR)


def new_targets(
    subscriptions: Mapping[str, ConsumerSubscription],
    targets: Mapping[str, Partitions],
    topics: Mapping[str, frozenset[int]],
    wanted: Wanted,
) -> Mapping[str, Partitions]:
    """The new target of each member; `topics` are those that it subscribes to, and `targets` the targets before."""
    readers = {
        member_id: Reader(topics[member_id], targets.get(member_id, NOTHING), subscription.instance_id)
        for member_id, subscription in subscriptions.items()
    }
    counts = {number: count for _, number, count in wanted}
    return ASSIGNORS[preferred_assignor(subscriptions.values())](readers, counts)
