"""Who of a group reads which partition: the server-side assignors `uniform` and `range` of KIP-848.

An assignor is a function from what the members want, and what they were given before, to what each is given now. Every
partition of every topic that anybody wants goes to exactly one of those who want it. An assignor remembers nothing and
never fails: a topic nobody wants is left out, and a member that wants nothing is given nothing.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heapreplace
from itertools import chain
from typing import Final, NamedTuple

from semel.core.entries import PartitionName


class Reader(NamedTuple):
    """One member as an assignor sees it: the numbers of the topics it wants, and the partitions it was given before."""

    topics: frozenset[int]
    given: frozenset[PartitionName]
    instance_id: str | None = None


Assignment = dict[str, frozenset[PartitionName]]
# The members by their ids, and how many partitions each topic has, by its number.
Assignor = Callable[[Mapping[str, Reader], Mapping[int, int]], Assignment]


def assign_ranges(readers: Mapping[str, Reader], partition_counts: Mapping[int, int]) -> Assignment:
    """Each topic is cut into ranges of nearly equal length, one for each of its readers, in the same order of readers.

    So topics with the same number of partitions and the same readers are cut alike, and can be joined partition by
    partition. Static members come first and keep their place by their instance ids, whoever else comes and goes.
    """
    given: dict[str, list[PartitionName]] = {member_id: [] for member_id in readers}
    in_order = sorted(readers, key=lambda member_id: _place_in_line(member_id, readers[member_id]))
    for number, partition_count in partition_counts.items():
        those_who_read = [member_id for member_id in in_order if number in readers[member_id].topics]
        begin = 0
        for place, member_id in enumerate(those_who_read):
            share, left_over = divmod(partition_count, len(those_who_read))
            end = begin + share + (place < left_over)
            given[member_id] += (PartitionName(number, index) for index in range(begin, end))
            begin = end
    return {member_id: frozenset(partitions) for member_id, partitions in given.items()}


def _place_in_line(member_id: str, reader: Reader) -> tuple[bool, str]:
    return reader.instance_id is None, reader.instance_id or member_id


def assign_uniformly(readers: Mapping[str, Reader], partition_counts: Mapping[int, int]) -> Assignment:
    """As even as the subscriptions allow, counted over all topics together, and with as few changes as that takes."""
    return _Spread(readers, partition_counts).even()


# From whom, which kind of topics, to whom.
_Step = tuple[str, int, str]


class _Spread:
    """An assignment on its way to be even.

    Topics with the same readers are of one kind, because a partition of one does for evenness what a partition of the
    other does. Where all members want the same there is one kind only, and each step is a glance.
    """

    def __init__(self, readers: Mapping[str, Reader], partition_counts: Mapping[int, int]) -> None:
        self._loads = dict.fromkeys(sorted(readers), 0)
        self._given: dict[str, dict[int, list[PartitionName]]] = {member_id: {} for member_id in self._loads}
        self._readers_of: list[tuple[str, ...]] = []
        kinds: dict[tuple[str, ...], int] = {}
        unread: list[list[PartitionName]] = []
        owner_before = {name: member_id for member_id, reader in readers.items() for name in reader.given}
        for number, those_who_read in _wanted_by(readers, partition_counts).items():
            kind = kinds.setdefault(those_who_read, len(kinds))
            if kind == len(self._readers_of):
                self._readers_of.append(those_who_read)
                unread.append([])
            for index in range(partition_counts[number]):
                name = PartitionName(number, index)
                owner = owner_before.get(name)
                if owner is not None and number in readers[owner].topics:
                    self._give(owner, kind, name)
                else:
                    unread[kind].append(name)
        if len(unread) == 1:
            unread[0] += self._take_back_beyond_share(sum(self._loads.values()) + len(unread[0]))
        # Those with the fewest readers first: they leave the least choice.
        for kind in sorted(range(len(unread)), key=lambda kind: len(self._readers_of[kind])):
            self._hand_out(kind, unread[kind])

    def even(self) -> Assignment:
        """Move partitions from those who have many to those who have few, until nothing is gained by it.

        A partition may have to go round by others: who has many and who has few need not want the same topics.
        """
        may_give = set(self._given)
        while may_give:
            richest = max(may_give, key=lambda member_id: (self._loads[member_id], member_id))
            way, met = self._way_to_someone_poorer(richest)
            for giver, kind, taker in way:
                self._loads[giver] -= 1
                self._give(taker, kind, self._given[giver][kind].pop())
            if not way:
                # All who can be reached from here have as many, or one less, and can reach nobody else either.
                may_give -= met
        return {
            member_id: frozenset(name for names in of_kind.values() for name in names)
            for member_id, of_kind in self._given.items()
        }

    def _give(self, member_id: str, kind: int, name: PartitionName) -> None:
        self._given[member_id].setdefault(kind, []).append(name)
        self._loads[member_id] += 1

    def _take_back_beyond_share(self, partition_count: int) -> list[PartitionName]:
        """What somebody has beyond an even share, where all want the same: `even` would find it one by one."""
        share, left_over = divmod(partition_count, len(self._readers_of[0]))
        taken_back: list[PartitionName] = []
        for member_id in sorted(self._readers_of[0], key=lambda member_id: -self._loads[member_id]):
            may_keep = share + (left_over > 0)
            left_over -= self._loads[member_id] >= may_keep
            names = self._given[member_id].get(0, [])
            taken_back += names[may_keep:]
            del names[may_keep:]
            self._loads[member_id] = len(names)
        return taken_back

    def _hand_out(self, kind: int, names: Iterable[PartitionName]) -> None:
        """Give each of these to the one who has least."""
        by_load = [(self._loads[member_id], member_id) for member_id in self._readers_of[kind]]
        heapify(by_load)
        for name in names:
            load, poorest = by_load[0]
            heapreplace(by_load, (load + 1, poorest))
            self._give(poorest, kind, name)

    def _way_to_someone_poorer(self, source: str) -> tuple[list[_Step], set[str]]:
        """A way from `source` to one who has at least two less, if there is any, and everybody met on the search."""
        came_by: dict[str, tuple[str, int]] = {}
        met = {source}
        kinds_seen: set[int] = set()
        waiting = deque([source])
        while waiting:
            member_id = waiting.popleft()
            for kind in [kind for kind, names in self._given[member_id].items() if names and kind not in kinds_seen]:
                kinds_seen.add(kind)
                for other in self._readers_of[kind]:
                    if other in met:
                        continue
                    met.add(other)
                    came_by[other] = (member_id, kind)
                    if self._loads[other] <= self._loads[source] - 2:
                        return _way_back(came_by, other), met
                    waiting.append(other)
        return [], met


def _wanted_by(readers: Mapping[str, Reader], partition_counts: Mapping[int, int]) -> dict[int, tuple[str, ...]]:
    """Who reads each topic, for the topics that somebody reads.

    Found by the few different wishes there are: many members with many topics are too many pairs to look at.
    """
    wishes: dict[frozenset[int], list[str]] = {}
    for member_id, reader in readers.items():
        wishes.setdefault(reader.topics, []).append(member_id)
    wanted_by: dict[int, list[int]] = {}
    for place, topics in enumerate(wishes):
        for number in topics & partition_counts.keys():
            wanted_by.setdefault(number, []).append(place)
    those_who_wish = list(wishes.values())
    those_who_read: dict[tuple[int, ...], tuple[str, ...]] = {}
    for places in map(tuple, wanted_by.values()):
        if places not in those_who_read:
            those_who_read[places] = tuple(sorted(chain.from_iterable(those_who_wish[place] for place in places)))
    return {number: those_who_read[tuple(wanted_by[number])] for number in sorted(wanted_by)}


def _way_back(came_by: Mapping[str, tuple[str, int]], end: str) -> list[_Step]:
    """The way to `end`, its last step first, so that nobody passes on what was only just given to them."""
    way = []
    while end in came_by:
        giver, kind = came_by[end]
        way.append((giver, kind, end))
        end = giver
    return way


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
# What a group goes by whose members do not say.
DEFAULT_ASSIGNOR: Final = "uniform"
