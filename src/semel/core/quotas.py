"""Quotas: how much of the broker a client may use in each second, set for users, client ids and addresses.

A quota is set for an entity: a user, a client id, both, or an address; None stands for the default, which holds for all
that have none of their own. Which of them counts for a client is decided as in Apache Kafka, for each key by itself:
the first that is set of

1. this user with this client id, 2. this user with the default client id, 3. this user,
4. the default user with this client id, 5. both defaults, 6. the default user,
7. this client id, 8. the default client id.

All clients for which it is the same quota of the same name use it up together: those of one user (3, 6), of one client
id (7, 8), or of one user and client id (the others). Nothing here may measure anything.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from math import isfinite
from typing import Any, Final, NamedTuple

from semel.core.access import canonical_host
from semel.core.cached_part import CachedPart
from semel.core.entries import QuotasChanged
from semel.core.refusals import INVALID_REQUEST, POLICY_VIOLATION, UNSUPPORTED_VERSION, Refused

# Each takes half a kilobyte and stands in every checkpoint.
ENTITIES_MAX: Final = 10_000
# The bytes of a name, in UTF-8: as many as a user's or a rule's.
NAME_BYTES_MAX: Final = 1_024

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCED: Final = "producer_byte_rate"
FETCHED: Final = "consumer_byte_rate"
BUSY: Final = "request_percentage"
CONNECTED: Final = "connection_creation_rate"
# Kafka has no fractions of these, and no more than so many.
_WHOLE: Final = {PRODUCED: 2**63 - 1, FETCHED: 2**63 - 1, CONNECTED: 2**31 - 1}
_KEYS: Final = {
    (USER,): (PRODUCED, FETCHED, BUSY),
    (CLIENT_ID,): (PRODUCED, FETCHED, BUSY),
    (USER, CLIENT_ID): (PRODUCED, FETCHED, BUSY),
    (IP,): (CONNECTED,),
}

# Types and names, in the order of `_KEYS`. The name None is the default.
Entity = tuple[tuple[str, str | None], ...]


class Limit(NamedTuple):
    """How much is allowed in each second, and the name of all that is counted together."""

    bucket: tuple[str, str]
    per_second: float


class Match(NamedTuple):
    """Which entities are meant: of each named type the one of this name, the default (None), or any."""

    exact: Mapping[str, str | None]
    any_of: frozenset[str]
    # Whether entities with further types are left out.
    is_strict: bool

    def matches(self, entity: Entity) -> bool:
        named = dict(entity)
        if self.is_strict and len(named) != len(self.exact) + len(self.any_of):
            return False
        return self.any_of <= named.keys() and all(
            kind in named and named[kind] == name for kind, name in self.exact.items()
        )


class Quotas:
    """All quotas."""

    def __init__(self, entities_max: int = ENTITIES_MAX) -> None:
        self._entities_max = entities_max
        self._quotas: dict[Entity, dict[str, float]] = {}
        # The keys that are set, and for how many entities: where nothing is set there is nothing to look up.
        self.keys: Counter[str] = Counter()
        self._part: CachedPart | None = None

    def __len__(self) -> int:
        return len(self._quotas)

    def __iter__(self) -> Iterator[Entity]:
        return iter(self._quotas)

    def of(self, entity: Entity) -> Mapping[str, float]:
        """What is set for exactly this entity."""
        return self._quotas.get(entity, {})

    # -- which one counts ---------------------------------------------------------------------------------------

    def limit(self, key: str, user: str, client_id: str) -> Limit | None:
        """What a client may use; None if nothing limits it."""
        if key not in self.keys:
            return None
        for entity, bucket in (
            (((USER, user), (CLIENT_ID, client_id)), (user, client_id)),
            (((USER, user), (CLIENT_ID, None)), (user, client_id)),
            (((USER, user),), (user, "")),
            (((USER, None), (CLIENT_ID, client_id)), (user, client_id)),
            (((USER, None), (CLIENT_ID, None)), (user, client_id)),
            (((USER, None),), (user, "")),
            (((CLIENT_ID, client_id),), ("", client_id)),
            (((CLIENT_ID, None),), ("", client_id)),
        ):
            values = self._quotas.get(entity)
            if values is not None and key in values:
                return Limit(bucket, values[key])
        return None

    def connections_per_second(self, address: str) -> float | None:
        """How many connections an address may open in each second; None if nothing limits it."""
        for name in (canonical_host(address), None):
            values = self._quotas.get(((IP, name),))
            if values is not None:
                return values[CONNECTED]
        return None

    # -- deciding -----------------------------------------------------------------------------------------------

    def decide(
        self, parts: Iterable[tuple[str, str | None]], changes: Iterable[tuple[str, float | None]]
    ) -> QuotasChanged | None:
        """Set quotas of an entity, or take away those that are None; Refused for what no quota may be. None if all of
        it is so already."""
        entity = _entity_of(parts)
        keys = _KEYS[tuple(kind for kind, _ in entity)]
        wanted: dict[str, float | None] = {}
        for key, value in changes:
            if key in wanted:
                raise Refused(INVALID_REQUEST, f"Duplicate quota key {key}")
            if value is not None:
                _check(keys, key, value)
            wanted[key] = value
        before = self.of(entity)
        after = {key: value for key, value in {**before, **wanted}.items() if value is not None}
        if after == before:
            return None
        if not before and len(self._quotas) >= self._entities_max:
            raise Refused(POLICY_VIOLATION, f"{self._entities_max} entities have quotas, and no more may")
        return QuotasChanged(entity, after)

    # -- entries ------------------------------------------------------------------------------------------------

    def check(self, entry: QuotasChanged) -> None:
        """ValueError for an entry that cannot be, as only a damaged or foreign journal holds."""
        try:
            if _entity_of(entry.entity) != entry.entity:
                raise ValueError(f"the entity {entry.entity} is written in another way")
            for key, value in entry.quotas.items():
                _check(_KEYS[tuple(kind for kind, _ in entry.entity)], key, value)
        except Refused as refused:
            raise ValueError(refused.message) from None

    def apply(self, entry: QuotasChanged) -> None:
        # In place, and without keys that nobody has: others look at it.
        self.keys.subtract(self._quotas.pop(entry.entity, {}).keys())
        self.keys.update(entry.quotas.keys())
        for key in [key for key, count in self.keys.items() if not count]:
            del self.keys[key]
        if entry.quotas:
            self._quotas[entry.entity] = entry.quotas
        self._part = None

    def snapshot(self) -> CachedPart:
        if self._part is None:
            quotas = list(self._quotas.items())
            self._part = CachedPart(lambda: quotas)
        return self._part

    def restore(self, snapshot: Iterable[Any]) -> None:
        """Become what `snapshot` says; what a version before this one wrote has no quotas."""
        for parts, values in snapshot:
            self.apply(QuotasChanged(tuple((kind, name) for kind, name in parts), values))


def match_of(components: Iterable[tuple[str, int, str | None]], *, is_strict: bool) -> Match:
    """What a filter of the protocol means: for each type its number and its text. Refused as by Apache Kafka."""
    exact: dict[str, str | None] = {}
    any_of: set[str] = set()
    for kind, how, name in components:
        if kind in exact or kind in any_of:
            raise Refused(INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter.")
        if not kind:
            raise Refused(INVALID_REQUEST, "Invalid empty entity type.")
        if kind not in (USER, CLIENT_ID, IP):
            raise Refused(UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if how not in (_EXACT, _DEFAULT, _ANY):
            raise Refused(INVALID_REQUEST, f"Unknown match type {how}")
        if (name is None) == (how == _EXACT):
            raise Refused(INVALID_REQUEST, f"match type {how} of {kind} {'needs a' if name is None else 'has no'} name")
        if how == _ANY:
            any_of.add(kind)
        else:
            exact[kind] = canonical_host(name) if kind == IP and name is not None else name
    named = exact.keys() | any_of
    if IP in named and len(named) > 1:
        raise Refused(INVALID_REQUEST, "a filter for addresses cannot be one for users or client ids as well")
    return Match(exact, frozenset(any_of), is_strict)


# How a name is meant, in a filter.
_EXACT, _DEFAULT, _ANY = range(3)


def _entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """The entity in the one way to write it; Refused if there can be none like it."""
    named: dict[str, str | None] = {}
    for kind, name in parts:
        if kind not in (USER, CLIENT_ID, IP):
            raise Refused(INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if kind in named:
            raise Refused(INVALID_REQUEST, f"Invalid client quota entity, duplicate entity entry {kind}")
        if name == "":
            raise Refused(INVALID_REQUEST, f"Empty {kind} not supported")
        if name is not None and len(name.encode()) > NAME_BYTES_MAX:
            raise Refused(INVALID_REQUEST, f"a name has at most {NAME_BYTES_MAX} bytes")
        named[kind] = _address(name) if kind == IP and name is not None else name
    kinds = next((kinds for kinds in _KEYS if set(kinds) == named.keys()), None)
    if kinds is None:
        raise Refused(INVALID_REQUEST, "Invalid client quota entity: it is a user, a client id, both, or an address")
    return tuple((kind, named[kind]) for kind in kinds)


def _address(name: str) -> str:
    """Names of hosts are refused: what they mean would be asked of a server, for a request."""
    try:
        ip_address(name)
    except ValueError:
        raise Refused(INVALID_REQUEST, f"{name} is not a valid IP address") from None
    return canonical_host(name)


def _check(keys: tuple[str, ...], key: str, value: float) -> None:
    if key not in keys:
        raise Refused(INVALID_REQUEST, f"Invalid configuration key {key}: there are {', '.join(keys)}")
    if not isfinite(value) or value <= 0:
        raise Refused(INVALID_REQUEST, f"Quota {key} must be greater than 0")
    if key in _WHOLE and value > _WHOLE[key]:
        raise Refused(INVALID_REQUEST, f"Proposed value for {key} is too large")
    if key in _WHOLE and value % 1 > _FRACTION_MAX:
        raise Refused(INVALID_REQUEST, f"{key} cannot be a fractional value.")


# What passes for no fraction, as in Apache Kafka.
_FRACTION_MAX: Final = 1e-6
