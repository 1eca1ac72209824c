"""A planned takeover: an operator has the active broker of a store resign, and a standby takes over at once.

The operator need not reach the broker, only the store: he writes the wish into the lease, which the broker replaces
several times in its period anyway. This must never take the lease from a broker that holds it.
"""

import asyncio
from typing import Final

from semel.log.replica.lease import LEASE_KEY, PUTS, Addresses, Lease, decode_lease, read_lease
from semel.log.replica.status import status_of
from semel.log.store import Changed, Missing, Store

# The broker answers what is under way first, which takes it a few seconds at most; then a standby reads on and begins.
_HAND_OVER_SECONDS_MAX: Final = 30.0
_LOOK_SECONDS: Final = 0.1


class StaysActive(Exception):
    """No standby has taken over; the message says why."""


async def have_resign(store: Store) -> tuple[Addresses, Lease]:
    """Return when another broker is active: where the former one is, and the lease of the new one. Raises StaysActive,
    StoreError, and BrokenHistory if the lease is damaged.
    """
    status = await status_of(store)
    if status.lease is None or not status.is_active:
        raise StaysActive("no broker is active, so there is nobody who could resign: see `semel status`")
    asked = await _ask(store, status.lease)
    try:
        async with asyncio.timeout(asked.seconds + _HAND_OVER_SECONDS_MAX):
            while True:
                await asyncio.sleep(_LOOK_SECONDS)
                lease = await read_lease(store)
                if lease is None or (lease.nonce == asked.nonce and lease.is_released):
                    continue
                if lease.nonce == asked.nonce and not lease.resigns:
                    raise StaysActive("the active broker has found no standby, and stays active: start a standby first")
                if lease.nonce != asked.nonce and lease.is_active:
                    return asked.addresses, lease
    except TimeoutError:
        raise StaysActive(
            f"no standby was active {asked.seconds + _HAND_OVER_SECONDS_MAX:g} s later: see `semel status`"
        ) from None


async def _ask(store: Store, known: Lease) -> Lease:
    """Write the wish into the lease of this broker; return what was written."""
    # The broker replaces its lease seldom, so that the second try succeeds.
    for _ in range(2 * PUTS):
        try:
            content, version = await store.get(LEASE_KEY)
            asked = decode_lease(content)._replace(resigns=True)
            if asked.nonce != known.nonce or not asked.is_active:
                break
            await store.replace(LEASE_KEY, asked.encode(), version)
            return asked
        except (Changed, Missing):
            continue
    raise StaysActive("another broker is becoming active at this moment: see `semel status`")
