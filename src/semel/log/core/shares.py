"""Which addresses may put one more producer on record when there is not enough space for all.

A partition must not forget a producer early: if the producer then sends an acknowledged batch again, the batch is
stored twice. So no record is ever dropped to make space. Instead the addresses of clients share the space, because a
client can choose everything else that it says about itself.

Half of the space is free to all. In the other half, an address gets more only while it has taken less than is still
free. So one greedy address ends with half of the space and two end with a third each, and a new address always gets
something. An address is charged for the producers that it put on record during the time for which producers are
remembered, and no longer. It stays charged for a producer that was forgotten earlier, because keeping track of that
would take memory for each producer.

Nothing here may refuse a producer while half of the space is free, or drop a record.
"""

from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address
from typing import Any, Final

from semel.wire.refusals import POLICY_VIOLATION, Refused

# A million take 100 MB at most.
PRODUCER_STATES_MAX: Final = 1_000_000
# Charges are added up in buckets of this length, and each bucket is forgotten as a whole.
BUCKET_MS: Final = 6 * 3_600_000
# The addresses kept. If there are more, those with the lowest charges are forgotten.
ADDRESSES_MAX: Final = 1_000
# The limit of each kind of thing, by its plural.
_LIMITS: Final = {
    "producers": "producer_states_max",
    "transactional ids": "transactional_ids_max",
    "groups": "groups_max",
}
# A machine with one IPv6 address has 2^64 of them.
_IPV6_HOST_BITS: Final = 64


class NoShareLeft(Refused):
    """This address may not put one more producer on record."""


class Shares:
    """How many producers may be on record, and how many each address has put there."""

    __slots__ = ("_charges", "_states_max", "_things")

    def __init__(self, states_max: int, things: str = "producers") -> None:
        """`things` is the plural of what is shared, for messages: transactional ids are shared in the same way."""
        self._states_max = states_max
        self._things = things
        # By address and bucket of time.
        self._charges: dict[str, dict[int, int]] = {}

    def check(self, count: int, in_use: int, address: str | None, horizon_ms: int | None) -> None:
        """`NoShareLeft` unless this address may put `count` more on record besides the `in_use` ones. None is the
        broker.

        Producers that were last heard at `horizon_ms` or before have been forgotten.
        """
        free = self._states_max - in_use
        if count > free:
            full = f"{self._states_max} {self._things} are on record"
            raise NoShareLeft(POLICY_VIOLATION, f"{full}, no more are allowed ({_LIMITS[self._things]})")
        if address is None:
            return
        taken = self.charged(address, horizon_ms)
        if not is_within_share(count, self._states_max, in_use, taken):
            raise NoShareLeft(
                POLICY_VIOLATION,
                f"{address} has put {taken} {self._things} on record, and there is space for {free} more, which "
                f"others may want ({_LIMITS[self._things]})",
            )

    def charge(self, count: int, address: str | None, now_ms: int, horizon_ms: int | None) -> None:
        """Charge this address for `count` more on record."""
        if address is None or not count:
            return
        buckets = self._charges.setdefault(address, {})
        bucket = now_ms // BUCKET_MS
        if bucket not in buckets:
            for old in [old for old in buckets if _is_over(old, horizon_ms)]:
                del buckets[old]
        buckets[bucket] = buckets.get(bucket, 0) + count
        if len(self._charges) > ADDRESSES_MAX:
            self._forget_small(horizon_ms)

    def charged(self, address: str, horizon_ms: int | None) -> int:
        """How many this address has put on record within the time for which they are remembered."""
        buckets = self._charges.get(address, {})
        return sum(count for bucket, count in buckets.items() if not _is_over(bucket, horizon_ms))

    def _forget_small(self, horizon_ms: int | None) -> None:
        """Forget the half of the addresses with the lowest charges."""
        by_charge = sorted(self._charges, key=lambda address: self.charged(address, horizon_ms))
        for address in by_charge[: len(by_charge) // 2]:
            del self._charges[address]

    def snapshot(self) -> list[Any]:
        return [[address, list(buckets.items())] for address, buckets in self._charges.items()]

    def restore(self, snapshot: Iterable[Any]) -> None:
        self._charges = {address: dict(buckets) for address, buckets in snapshot}


def is_within_share(count: int, limit: int, in_use: int, taken: int) -> bool:
    """Whether somebody who has `taken` of the `in_use` ones gets `count` more."""
    free = limit - in_use
    # As if they came one by one: before the last one, `count` - 1 more are taken, and `count` - 1 fewer are free.
    return count <= free and (2 * (in_use + count) <= limit or taken + 2 * count - 1 <= free)


def address_of(host: str) -> str:
    """The address to charge: for IPv6 it is the /64 network, because one machine may use every address in it."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> _IPV6_HOST_BITS << _IPV6_HOST_BITS)}/{_IPV6_HOST_BITS}"


def _is_over(bucket: int, horizon_ms: int | None) -> bool:
    return horizon_ms is not None and (bucket + 1) * BUCKET_MS <= horizon_ms
