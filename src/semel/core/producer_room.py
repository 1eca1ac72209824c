"""Who may have one more producer put on record, when there is not room for everybody.

A partition's record of a producer may not go before its time: whoever is forgotten too soon, and sends again what was
acknowledged, has it stored twice. So nothing is ever put out to make room, and the room is shared out instead. Whoever
connects tells nothing about itself that another could not tell as well, but for its address; so addresses are what room
is shared among.

Half of the room is anybody's. Of what is left, an address gets more only while it has been given less than there is
free. So one that takes all it can get ends with half, two with a third each, and however many there are, one that had
nothing yet gets some of what is free. An address is charged for what it put on record in the time for which producers
are remembered, and for no longer. How many of them are still there is not asked: that would take memory for each.

Nothing here may refuse while half of the room is free, or put anything out.
"""

from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address
from typing import Any, Final

from semel.core.refusals import POLICY_VIOLATION, Refused

# One state is at most 350 bytes with its place in the table: a million of them is what a small machine can carry.
PRODUCER_STATES_MAX: Final = 1_000_000
# What is charged in so much time is forgotten together.
BUCKET_MS: Final = 6 * 3_600_000
# Addresses that are remembered; beyond that those are forgotten that have been charged least.
ADDRESSES_MAX: Final = 1_000
# Whoever has an IPv6 address has 2^64 of them.
_IPV6_HOST_BITS: Final = 64


class NoRoom(Refused):
    """No room for one more producer."""


class ProducerRoom:
    """How much room there is, and who was given how much of it."""

    __slots__ = ("_charges", "_states_max", "_things")

    def __init__(self, states_max: int, things: str = "producers") -> None:
        """`things` is what is put on record, in the plural: transactional ids are shared out in the same way."""
        self._states_max = states_max
        self._things = things
        # By address and piece of time.
        self._charges: dict[str, dict[int, int]] = {}

    def check(self, wanted: int, taken: int, address: str | None, horizon_ms: int | None) -> None:
        """`NoRoom` unless so many more may be put on record where `taken` are. `address` is None for the log's own.

        Who was heard last at `horizon_ms` or before has been forgotten.
        """
        free = self._states_max - taken
        if wanted > free:
            raise NoRoom(POLICY_VIOLATION, f"{self._states_max} {self._things} are on record, no more are allowed")
        if address is None or 2 * (taken + wanted) <= self._states_max:
            return
        # As if they came one by one: before the last of them it has one less, and so has the room.
        charged = self.charged(address, horizon_ms)
        if charged + 2 * wanted - 1 > free:
            raise NoRoom(
                POLICY_VIOLATION,
                f"{address} has put {charged} {self._things} on record, and there is room for {free} more, which "
                f"others may want",
            )

    def charge(self, count: int, address: str | None, now_ms: int, horizon_ms: int | None) -> None:
        """So many were put on record on behalf of this address."""
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
        """How many were put on record on behalf of an address in the time for which they are remembered."""
        buckets = self._charges.get(address, {})
        return sum(count for bucket, count in buckets.items() if not _is_over(bucket, horizon_ms))

    def _forget_small(self, horizon_ms: int | None) -> None:
        """Forget half of the addresses, those that were charged least."""
        by_charge = sorted(self._charges, key=lambda address: self.charged(address, horizon_ms))
        for address in by_charge[: len(by_charge) // 2]:
            del self._charges[address]

    def snapshot(self) -> list[Any]:
        return [[address, list(buckets.items())] for address, buckets in self._charges.items()]

    def restore(self, snapshot: Iterable[Any]) -> None:
        self._charges = {address: dict(buckets) for address, buckets in snapshot}


def address_of(host: str) -> str:
    """What counts as one address: of IPv6 it is the network, of which a single machine has every address."""
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
