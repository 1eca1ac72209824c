"""The topics to which the members of a consumer group subscribe: names and regular expressions.

An expression is matched against the catalog only after topics were created or deleted, and against each name once. That
takes long if there are many topics, so it is done in steps before a decision; the decision itself matches only the
topics that were created since. The matches are kept in memory and never stored: they follow from the subscriptions and
the catalog.

As in Apache Kafka, an expression stands only for topics that its member may see. `Sight` says which these are. When the
access rules change, each expression is looked at again, and a group in which that makes a difference gets a new epoch.
A member that names a topic is refused before it gets here, if it may not see that.
"""

import hashlib
from collections.abc import Container, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from semel.log.core.access import Asker
from semel.log.core.entries import ConsumerSubscription
from semel.log.core.groups.assignors import DEFAULT_ASSIGNOR, Assignor, Reader
from semel.log.core.groups.partitions import NOTHING, Partitions
from semel.log.core.groups.topic_patterns import TopicPattern
from semel.log.core.topics import Catalog
from semel.wire.refusals import GROUP_MAX_SIZE_REACHED, Refused
from semel.wire.steps import Steps, finish

# Different expressions in one group, counted for each of those who see different topics. Its members usually share one,
# and each expression is matched against all topics.
EXPRESSIONS_MAX: Final = 100
# The targets of a group with more pairs of a member and a topic are computed in steps. Between members with different
# topics, partitions are moved one by one, so then more partitions count as well.
ASSIGNED_AT_ONCE: Final = 2_000
# Names in the different subscriptions of one group together: each decision looks all of them up. Its members usually
# share one list.
NAMES_MAX: Final = 100_000
# How often a look-up in steps begins again because topics were created meanwhile. Each time it has less to do.
_ROUNDS_MAX: Final = 3
# Names of topics between two steps.
_NAMES_AT_ONCE: Final = 50
_NO_TOPICS: Final[frozenset[int]] = frozenset()
# Name, number and partitions of each topic, in the order of the names.
Wanted = list[tuple[str, int, int]]


class Sight(Protocol):
    """Says who may see which topics."""

    @property
    def changes(self) -> int:
        """Rises when a rule changes."""

    def viewer(self, principal: str, host: str) -> Asker | None:
        """The same viewer for all clients for whom the same rules hold; None for one that sees every topic."""

    def shows(self, viewer: Asker, topic_name: str) -> bool:
        """Whether the viewer may see the topic of this name."""


class _Everything:
    """No access rules are in force."""

    changes = 0

    def viewer(self, principal: str, host: str) -> Asker | None:
        return None

    def shows(self, viewer: Asker, topic_name: str) -> bool:
        return True


EVERYTHING_IS_SEEN: Final[Sight] = _Everything()


class WantedTopics:
    """Finds the topics of subscriptions, and caches the matches of each expression."""

    def __init__(self) -> None:
        self.sight = EVERYTHING_IS_SEEN
        self._patterns: dict[str, ResolvedPattern] = {}
        # The names in the members' subscriptions; each value is its own key.
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        # `changes` when the expressions of all members were last looked up.
        self._looked_up = (-1, -1)

    def changes(self, catalog: Catalog) -> tuple[int, int]:
        """Rises when an expression may stand for other topics than before."""
        return catalog.changes, self.sight.changes

    def viewer(self, subscription: ConsumerSubscription) -> Asker | None:
        """The viewer that decides for which topics the expression of a member stands; None for a member without an
        expression, or that sees every topic.
        """
        if not subscription.topic_regex:
            return None
        return self.sight.viewer(subscription.principal, subscription.client_host.removeprefix("/"))

    def is_same_wish(self, one: ConsumerSubscription, other: ConsumerSubscription) -> bool:
        """Whether two subscriptions have the same names and the same expression, and see the same topics."""
        return self._wish(one) == self._wish(other)

    def _wish(self, subscription: ConsumerSubscription) -> tuple[tuple[str, ...], str, Asker | None]:
        return subscription.topic_names, subscription.topic_regex, self.viewer(subscription)

    def with_known_names(self, subscription: ConsumerSubscription) -> ConsumerSubscription:
        """The same subscription, with the names of an earlier one if these are equal, so that they exist once."""
        names = subscription.topic_names
        return subscription._replace(topic_names=self._names.setdefault(names, names))

    def of(self, subscription: ConsumerSubscription, catalog: Catalog) -> frozenset[int]:
        """The numbers of the existing topics to which one member subscribes."""
        topics = map(catalog.named, subscription.topic_names)
        numbers = frozenset(topic.number for topic in topics if topic is not None)
        if subscription.topic_regex:
            pattern = self._resolved(subscription.topic_regex)
            matching = pattern.numbers(catalog, self.sight, self.viewer(subscription))
            # The set of the expression is not copied without need.
            numbers = numbers | matching if numbers else matching
        return numbers

    def of_each(
        self, subscriptions: Mapping[str, ConsumerSubscription], catalog: Catalog
    ) -> Mapping[str, frozenset[int]]:
        """The same for many members, by their ids. Members with the same subscription share one set."""
        # By the identity of the names: a group keeps equal names once, and to compare five hundred takes long.
        numbers_by_subscription: dict[tuple[int, str, Asker | None], frozenset[int]] = {}
        of_each = {}
        for member_id, one in subscriptions.items():
            wish = id(one.topic_names), one.topic_regex, self.viewer(one)
            if wish not in numbers_by_subscription:
                numbers_by_subscription[wish] = self.of(one, catalog)
            of_each[member_id] = numbers_by_subscription[wish]
        return of_each

    def digest(self, subscriptions: Mapping[str, ConsumerSubscription], catalog: Catalog) -> str:
        """A digest of all topics to which members subscribe, and of what each of them may see."""
        topics = self.of_each(subscriptions, catalog)
        return self.digest_of(wanted_of(topics, catalog), subscriptions, topics)

    def digest_of(
        self,
        wanted: Wanted,
        subscriptions: Mapping[str, ConsumerSubscription],
        topics: Mapping[str, frozenset[int]],
    ) -> str:
        """The same; `wanted` and `topics` follow from the subscriptions. It changes when a topic is added, removed or
        grows, and when a member may see other topics; it is empty for no topics.
        """
        seen = {
            (viewer, hash(topics[member_id]))
            for member_id, one in subscriptions.items()
            if (viewer := self.viewer(one)) is not None
        }
        if not wanted and not seen:
            return ""
        return hashlib.sha256(repr((wanted, sorted(seen)) if seen else wanted).encode()).hexdigest()[:16]

    def includes(self, subscription: ConsumerSubscription, topic_name: str) -> bool:
        """Whether a subscription includes a topic of this name."""
        if topic_name in subscription.topic_names:
            return True
        regex, viewer = subscription.topic_regex, self.viewer(subscription)
        if not regex or not (viewer is None or self.sight.shows(viewer, topic_name)):
            return False
        return self._resolved(regex).pattern.matches(topic_name)

    def look_up(
        self, subscriptions: Iterable[ConsumerSubscription], catalog: Catalog, new: ConsumerSubscription | None = None
    ) -> Steps["ResolvedPattern | None"]:
        """Find in steps the topics for which the members' expressions stand, and those for which the expression in
        `new` stands, which may be another. Refused if that is not a regular expression.
        """
        members: list[ConsumerSubscription] | None = None
        for _ in range(_ROUNDS_MAX):
            changes = self.changes(catalog)
            if self._looked_up == changes:
                break
            members = list(subscriptions) if members is None else members
            for regex, viewer in {(one.topic_regex, self.viewer(one)): 0 for one in members if one.topic_regex}:
                yield from self._resolved(regex).look_up(catalog)
                yield from self._resolved(regex).look_at(catalog, self.sight, viewer)
            self._looked_up = changes
        if new is None or not new.topic_regex:
            return None
        pattern = self._patterns.get(new.topic_regex) or ResolvedPattern(new.topic_regex)
        yield from pattern.look_up(catalog)
        yield from pattern.look_at(catalog, self.sight, self.viewer(new))
        return pattern

    def remember(self, pattern: "ResolvedPattern") -> None:
        """Keep a pattern and its matches for the decision that follows."""
        self._patterns.setdefault(pattern.pattern.text, pattern)

    def check_pattern(self, new: ConsumerSubscription, others: Iterable[ConsumerSubscription]) -> None:
        """Refused if the expression in `new` is none, or if the group would have too many of them."""
        regex = new.topic_regex
        members = [one for one in others if one.topic_regex]
        regexes = {one.topic_regex for one in members}
        # Expressions of heartbeats that were refused later are still kept.
        self._forget_all_but({*regexes, regex})
        if len({(one.topic_regex, self.viewer(one)) for one in (*members, new)}) > EXPRESSIONS_MAX:
            self._forget_all_but(regexes)
            raise Refused(GROUP_MAX_SIZE_REACHED, f"the group has {EXPRESSIONS_MAX} expressions, no more are allowed")
        self._resolved(regex)

    def check_names(self, names: tuple[str, ...]) -> None:
        """Refused if the different lists of names in the group would be too long together."""
        if names not in self._names and sum(map(len, self._names)) + len(names) > NAMES_MAX:
            raise Refused(GROUP_MAX_SIZE_REACHED, f"different members subscribe to more than {NAMES_MAX} names in all")

    def forget_all_but(self, subscriptions: Iterable[ConsumerSubscription]) -> None:
        """Forget the expressions and the names that none of these subscriptions has."""
        self._looked_up = (-1, -1)
        regexes, names = set(), {}
        for subscription in subscriptions:
            regexes.add(subscription.topic_regex)
            names[id(subscription.topic_names)] = subscription.topic_names
        self._forget_all_but(regexes)
        if len(names) < len(self._names):
            self._names = {one: one for one in names.values()}

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
        # For each viewer: the state of the rules, the topics that matched, and those of them that it may see.
        self._shown: dict[Asker, tuple[int, frozenset[int], frozenset[int]]] = {}

    def numbers(self, catalog: Catalog, sight: Sight, viewer: Asker | None) -> frozenset[int]:
        """The numbers of the topics that match now, and that this viewer may see."""
        finish(self.look_up(catalog))
        finish(self.look_at(catalog, sight, viewer))
        return self._numbers if viewer is None else self._shown[viewer][2]

    def look_at(self, catalog: Catalog, sight: Sight, viewer: Asker | None) -> Steps[None]:
        """Find in steps which of the topics that match this viewer may see. A topic is asked about again only when a
        rule has changed.
        """
        if viewer is None:
            return
        for _ in range(_ROUNDS_MAX):
            rules, numbers = sight.changes, self._numbers
            as_of, looked_at, shown = self._shown.get(viewer, (None, _NO_TOPICS, _NO_TOPICS))
            if as_of != rules:
                looked_at = shown = _NO_TOPICS
            elif looked_at is numbers:
                return
            new = []
            for count, number in enumerate(numbers - looked_at, start=1):
                topic = catalog.numbered(number)
                if topic is not None and sight.shows(viewer, topic.name):
                    new.append(number)
                if count % _NAMES_AT_ONCE == 0:
                    yield _NAMES_AT_ONCE // 5
            # What others saw by earlier rules is of no use any more.
            self._shown = {other: known for other, known in self._shown.items() if known[0] == rules}
            self._shown[viewer] = rules, numbers, (shown & numbers).union(new)

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


class Plan(NamedTuple):
    """The group's epochs after a step, and the targets that the step changes."""

    epoch: int
    target_epoch: int
    topics_digest: str
    left: tuple[str, ...]
    targets: Mapping[str, Partitions]


def wanted_of(topics: Mapping[str, frozenset[int]], catalog: Catalog) -> Wanted:
    """Every existing topic to which a member subscribes; `topics` has the numbers for each member."""
    numbers: frozenset[int] = frozenset().union(*set(topics.values()))
    existing = [topic for number in numbers if (topic := catalog.numbered(number)) is not None]
    return sorted([(topic.name, topic.number, topic.partition_count) for topic in existing])


def preferred_assignor(subscriptions: Iterable[ConsumerSubscription]) -> str:
    """The assignor that most members ask for; in a tie, the first by its name."""
    votes: dict[str, int] = {}
    for subscription in subscriptions:
        if subscription.assignor is not None:
            votes[subscription.assignor] = votes.get(subscription.assignor, 0) + 1
    return max(sorted(votes), key=lambda name: votes[name], default=DEFAULT_ASSIGNOR)


def new_targets(
    assign: Assignor,
    subscriptions: Mapping[str, ConsumerSubscription],
    targets: Mapping[str, Partitions],
    topics: Mapping[str, frozenset[int]],
    wanted: Wanted,
) -> Steps[Mapping[str, Partitions]]:
    """The new target of each member, in steps; `topics` are those that it subscribes to, and `targets` those before."""
    readers = {
        member_id: Reader(topics[member_id], targets.get(member_id, NOTHING), subscription.instance_id)
        for member_id, subscription in subscriptions.items()
    }
    counts = {number: count for _, number, count in wanted}
    return (yield from assign(readers, counts))


def is_large(topics: Mapping[str, frozenset[int]], topics_wanted: Wanted) -> bool:
    """Whether other clients would have to wait while such a group is assigned at once; `topics` are those of each
    member.
    """
    is_mixed = len(set(topics.values())) > 1
    partition_count = sum(count for _, _, count in topics_wanted) if is_mixed else 0
    return max(len(topics) * len(topics_wanted), partition_count) > ASSIGNED_AT_ONCE
