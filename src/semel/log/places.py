"""Which connections may stay when there is not enough space for all, and which one is closed to make space.

Half of the places are free to all. In the other half, an address gets one more only while it has fewer than are still
free. A few places are kept for each group of clients: those of one listener, or those on this machine. So neither one
address nor all clients of one listener together can take every place.

If a newcomer gets no place by these rules, the idlest connection is closed for it: one of its own address if that has
too many, otherwise one of the address with the most. A connection that has never sent a request goes first, the oldest
of them before the others; then those that were silent for long. A connection that is at work is never closed.

Nothing here may open or close a connection, or look at a clock.
"""

from collections import Counter
from collections.abc import Callable, Collection
from heapq import nlargest
from typing import Final, Generic, NamedTuple, TypeVar

from semel.log.core.shares import address_of

G = TypeVar("G")

# The group of the clients on this machine.
THIS_MACHINE: Final = "this machine"
# The addresses with the most connections among which the idlest one is looked for.
_ADDRESSES_LOOKED_AT: Final = 8


class Admission(NamedTuple, Generic[G]):
    """Whether a newcomer may stay, and who has to be closed for it."""

    is_let_in: bool
    displaced: G | None = None


class _OfAddress(Generic[G]):
    """The connections of one address."""

    __slots__ = ("count", "resting", "unheard")

    def __init__(self) -> None:
        self.count = 0
        # Those that have never sent a request, in the order in which they came.
        self.unheard: dict[G, None] = {}
        # Those that were silent for long when somebody looked, the longest silent first.
        self.resting: dict[G, None] = {}


class Places(Generic[G]):
    """The connections that are open, with a bound."""

    def __init__(
        self,
        places_max: int,
        is_idle: Callable[[G], bool],
        *,
        per_address_max: int | None = None,
        kept: int = 0,
        groups: Collection[str] = (),
    ) -> None:
        """`is_idle` says whether a connection that was resting still is. Without `per_address_max` the addresses share
        the places. `kept` places are kept for each of the `groups`.
        """
        self._places_max = places_max
        self._is_idle = is_idle
        self._per_address_max = per_address_max
        self._kept = kept
        self._groups_of: dict[G, tuple[str, Collection[str]]] = {}
        self._of_group: Counter[str] = Counter(dict.fromkeys(groups, 0))
        self._of_address: dict[str, _OfAddress[G]] = {}

    def __len__(self) -> int:
        return len(self._groups_of)

    def __contains__(self, guest: G) -> bool:
        return guest in self._groups_of

    def admit(self, guest: G, host: str, groups: Collection[str] = ()) -> Admission[G]:
        """A client has connected from this host. If it is let in, it has its place now, and the connection that is
        displaced has lost its own: the caller closes it.
        """
        address = address_of(host)
        known = self._of_address.get(address)
        count = 0 if known is None else known.count
        leaver: G | None = None
        if not self._has_place(count, groups):
            if self._per_address_max is None or count < self._per_address_max:
                leaver = self._idlest_of_the_greediest(count, groups)
            if leaver is None and known is not None:
                leaver = self._idlest(known, groups)
            if leaver is None:
                return Admission(False)
            self.leave(leaver)
        self._groups_of[guest] = address, groups
        self._of_group.update(groups)
        place = self._of_address.setdefault(address, _OfAddress())
        place.count += 1
        place.unheard[guest] = None
        return Admission(True, leaver)

    def note_heard(self, guest: G) -> None:
        """A connection has sent its first request."""
        self._of_address[self._groups_of[guest][0]].unheard.pop(guest, None)

    def note_resting(self, guest: G) -> None:
        """A connection was silent for long."""
        place = self._of_address[self._groups_of[guest][0]]
        if guest not in place.unheard:
            place.resting.setdefault(guest)

    def leave(self, guest: G) -> None:
        """A connection has ended. Nothing happens if it was displaced before."""
        if guest not in self._groups_of:
            return
        address, groups = self._groups_of.pop(guest)
        self._of_group.subtract(groups)
        place = self._of_address[address]
        place.unheard.pop(guest, None)
        place.resting.pop(guest, None)
        place.count -= 1
        if not place.count:
            del self._of_address[address]

    def _has_place(self, count: int, groups: Collection[str]) -> bool:
        """Whether an address with this many connections gets one more without anybody's leaving."""
        free = self._places_max - len(self._groups_of) - 1
        if self._per_address_max is not None:
            return free >= 0 and count < self._per_address_max
        if free >= 0 and any(self._of_group[group] < self._kept for group in groups):
            return True
        is_within_share = 2 * free >= self._places_max or count <= free
        return is_within_share and free >= self._kept_for_others(groups)

    def _kept_for_others(self, groups: Collection[str]) -> int:
        """The places that nobody outside their group may take."""
        return sum(max(self._kept - count, 0) for group, count in self._of_group.items() if group not in groups)

    def _idlest_of_the_greediest(self, count: int, groups: Collection[str]) -> G | None:
        """The idlest connection of the address with the most, if that has more than the newcomer's would have."""
        greediest = nlargest(_ADDRESSES_LOOKED_AT, self._of_address.values(), key=lambda place: place.count)
        for place in greediest:
            if place.count > count:
                leaver = self._idlest(place, groups)
                if leaver is not None:
                    return leaver
        return None

    def _idlest(self, place: _OfAddress[G], groups: Collection[str]) -> G | None:
        for guest in place.unheard:
            if self._frees_a_place(guest, groups):
                return guest
        for guest in list(place.resting):
            if not self._is_idle(guest):
                del place.resting[guest]
            elif self._frees_a_place(guest, groups):
                return guest
        return None

    def _frees_a_place(self, guest: G, groups: Collection[str]) -> bool:
        """Whether the newcomer may have this one's place, and it is not one that is kept for others."""
        return not any(
            group not in groups and self._of_group[group] <= self._kept for group in self._groups_of[guest][1]
        )
