"""Quotas: how much of the broker a client may use in each second, set for users, client ids and addresses.

A quota is set for an entity: a user, a client id, both, or an address. The name None stands for the default, which
holds for all entities without a quota of their own. As in Apache Kafka, each key is decided separately, and the first
of these that is set counts:

1. this user with this client id, 2. this user with the default client id, 3. this user,
4. the default user with this client id, 5. both defaults, 6. the default user,
7. this client id, 8. the default client id.

Clients share a quota if they have the same user (3, 6), the same client id (7, 8), or both (the others). Nothing here
may measure anything.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from math import isfinite
from typing import Any, Final, NamedTuple

from semel.log.core.access import canonical_host
from semel.log.core.cached_part import CachedPart
from semel.log.core.entries import QuotasChanged
from semel.wire.refusals import INVALID_REQUEST, POLICY_VIOLATION, UNSUPPORTED_VERSION, Refused

# Each takes half a kilobyte, and every checkpoint contains all of them.
ENTITIES_MAX: Final = 10_000
# The longest name, in bytes of UTF-8; names of users and rules have the same limit.
NAME_BYTES_MAX: Final = 1_024

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCED: Final = "producer_byte_rate"
FETCHED: Final = "consumer_byte_rate"
BUSY: Final = "request_percentage"
CONNECTED: Final = "connection_creation_rate"
# These are whole numbers in Kafka, up to these values.
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
    """The amount that is allowed in each second, and the name of the clients that share it."""

    bucket: tuple[str, str]
    per_second: float


class Match(NamedTuple):
    """A filter of entities: for each named type a name, the default (None), or any name."""

    exact: Mapping[str, str | None]
    any_of: frozenset[str]
    # Whether entities with further types are left out.
    is_strict: bool

    def matches(self, entity: Entity) -> bool:
        names = dict(entity)
        if self.is_strict and len(names) != len(self.exact) + len(self.any_of):
            return False
        return self.any_of <= names.keys() and all(
            kind in names and names[kind] == name for kind, name in self.exact.items()
        )


class Quotas:
    """All quotas."""

    def __init__(self, entities_max: int = ENTITIES_MAX) -> None:
        self._entities_max = entities_max
        self._quotas: dict[Entity, dict[str, float]] = {}
        # For each key, how many entities have a quota. A key that no entity has needs no look-up.
        self.keys: Counter[str] = Counter()
        self._part: CachedPart | None = None

    def __len__(self) -> int:
        return len(self._quotas)

    def __iter__(self) -> Iterator[Entity]:
        return iter(self._quotas)

    def of(self, entity: Entity) -> Mapping[str, float]:
        """The quotas of exactly this entity."""
        return self._quotas.get(entity, {})

    # -- which one counts ---------------------------------------------------------------------------------------

    def limit(self, key: str, user: str, client_id: str) -> Limit | None:
        """The limit for a client; None if it has no quota."""
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
        """How many connections an address may open in each second; None if it has no quota."""
        for name in (canonical_host(address), None):
            values = self._quotas.get(((IP, name),))
            if values is not None:
                return values[CONNECTED]
        return None

    # -- deciding -----------------------------------------------------------------------------------------------

    def decide(
        self, parts: Iterable[tuple[str, str | None]], changes: Iterable[tuple[str, float | None]]
    ) -> QuotasChanged | None:
        """The entry that sets quotas of an entity, and removes those that are None; Refused if one is not valid. None
        if nothing changes.
        """
        entity = _entity_of(parts)
        keys = _KEYS[tuple(kind for kind, _ in entity)]
        new_values: dict[str, float | None] = {}
        for key, value in changes:
            if key in new_values:
                raise Refused(INVALID_REQUEST, f"Duplicate quota key {key}")
            if value is not None:
                _check(keys, key, value)
            new_values[key] = value
        before = self.of(entity)
        after = {key: value for key, value in {**before, **new_values}.items() if value is not None}
        if after == before:
            return None
        if not before and len(self._quotas) >= self._entities_max:
            raise Refused(POLICY_VIOLATION, f"{self._entities_max} entities have quotas, no more are allowed")
        return QuotasChanged(entity, after)

    # -- entries ------------------------------------------------------------------------------------------------

    def check(self, entry: QuotasChanged) -> None:
        """ValueError for an entry that no broker writes: the journal is damaged, or semel did not write it."""
        try:
            if _entity_of(entry.entity) != entry.entity:
                raise ValueError(f"the entity {entry.entity} is not in canonical form")
            for key, value in entry.quotas.items():
                _check(_KEYS[tuple(kind for kind, _ in entry.entity)], key, value)
        except Refused as refused:
            raise ValueError(refused.message) from None

    def apply(self, entry: QuotasChanged) -> None:
        # Changed in place, because others hold a reference to it, and without keys that no entity has.
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
        """Load the state in `snapshot`."""
        for parts, values in snapshot:
            self.apply(QuotasChanged(tuple((kind, name) for kind, name in parts), values))


def match_of(components: Iterable[tuple[str, int, str | None]], *, is_strict: bool) -> Match:
    """The filter of a request: for each type the number of a match type, and a name. Refused with Apache Kafka's
    errors.
    """
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
    kinds = exact.keys() | any_of
    if IP in kinds and len(kinds) > 1:
        raise Refused(INVALID_REQUEST, "a filter by address cannot also filter by user or client id")
    return Match(exact, frozenset(any_of), is_strict)


# Kafka's match types.
_EXACT, _DEFAULT, _ANY = range(3)


def _entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """The entity in its canonical form; Refused if it is not valid."""
    names: dict[str, str | None] = {}
    for kind, name in parts:
        if kind not in (USER, CLIENT_ID, IP):
            raise Refused(INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if kind in names:
            raise Refused(INVALID_REQUEST, f"Invalid client quota entity, duplicate entity entry {kind}")
        if name == "":
            raise Refused(INVALID_REQUEST, f"Empty {kind} not supported")
        if name is not None and len(name.encode()) > NAME_BYTES_MAX:
            raise Refused(INVALID_REQUEST, f"a name has at most {NAME_BYTES_MAX} bytes")
        names[kind] = _address(name) if kind == IP and name is not None else name
    kinds = next((kinds for kinds in _KEYS if set(kinds) == names.keys()), None)
    if kinds is None:
        raise Refused(INVALID_REQUEST, "Invalid client quota entity: it is a user, a client id, both, or an address")
    return tuple((kind, names[kind]) for kind in kinds)


def _address(name: str) -> str:
    """An IP address in canonical form. Host names are refused, because the broker would have to ask a name server."""
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
    if key in _WHOLE and abs(value - round(value)) > _FRACTION_MAX:
        raise Refused(INVALID_REQUEST, f"{key} cannot be a fractional value.")


# A value this close to a whole number counts as one, as in Apache Kafka.
_FRACTION_MAX: Final = 1e-6
