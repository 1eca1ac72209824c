"""The status of a store: the active broker, the standbys and how far behind they are, and how much the store holds. It
only reads. One look at the lease does not show whether the active broker still runs. So this waits until the lease is
replaced, or until it has been silent for its whole period.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from semel.log.replica.lease import LOOKS, PUTS, Addresses, Lease, LeaseWatch, boot_seconds
from semel.log.replica.membership import read_cluster_id
from semel.log.replica.note import FOLDER, FORGOTTEN_SECONDS, NOTE_SECONDS, SILENT_SECONDS, decode_note, notes_in
from semel.log.store import FORMAT_KEY, Missing, Store
from semel.log.store.contents import Contents, contents_of

_DAY_SECONDS: Final = 86_400


class Standby(NamedTuple):
    """A standby, or a former one."""

    addresses: Addresses
    # How many bytes of the journal it had yet to read when it wrote its note: compared with what was sent since then,
    # no standby of a busy broker would ever have read everything. If it is silent, how many it has yet to read now.
    behind_bytes: int
    # The age of its note, by the clocks of both machines.
    seconds_ago: float

    @property
    def is_silent(self) -> bool:
        """Whether its note is older than that of a running standby can be."""
        return self.seconds_ago > SILENT_SECONDS


class StoreStatus(NamedTuple):
    """The whole status."""

    cluster_id: str
    # The broker that was last active, if there ever was one; and whether it still is.
    lease: Lease | None
    is_active: bool
    standbys: list[Standby]
    contents: dict[str, Contents]

    @property
    def idle_puts_per_day(self) -> int:
        """The writes of all brokers together while no client does anything."""
        if self.lease is None or not self.is_active:
            return 0
        notes = sum(not standby.is_silent for standby in self.standbys) / NOTE_SECONDS
        return round(_DAY_SECONDS * (PUTS / self.lease.seconds + notes))

    @property
    def idle_gets_per_day(self) -> int:
        """The reads: each standby looks for the next slot and at the lease, and the active broker at the notes."""
        if self.lease is None or not self.is_active:
            return 0
        watching = sum(not standby.is_silent for standby in self.standbys)
        notes = 1 + self.contents[FOLDER].objects if FOLDER in self.contents else 1
        return round(_DAY_SECONDS * (watching * 2 * LOOKS + notes) / self.lease.seconds)


async def status_of(
    store: Store,
    *,
    clock: Callable[[], float] = boot_seconds,
    time_of_day: Callable[[], float] = time.time,
) -> StoreStatus:
    """Read the status, which takes at most the period of a lease while the store answers. Raises Missing if no broker
    was ever on the store, BrokenHistory if this version of semel must not use it, Unsure if it does not answer.
    """
    try:
        cluster_id = read_cluster_id((await store.get(FORMAT_KEY)).body, store.describe())
    except Missing:
        raise Missing(f"{store.describe()}: no broker was ever here") from None
    watch = LeaseWatch(store)
    is_active = await _is_active(watch, clock)
    standbys = await _standbys(store, watch.lease, time_of_day())
    return StoreStatus(cluster_id, watch.lease, is_active, standbys, await contents_of(store))


async def _is_active(watch: LeaseWatch, clock: Callable[[], float]) -> bool:
    """Whether the lease is replaced before it ends."""
    await watch.look(clock)
    first = watch.version
    while not watch.is_over and watch.version == first:
        await asyncio.sleep(watch.pause_seconds)
        await watch.look(clock)
    return not watch.is_over


async def _standbys(store: Store, lease: Lease | None, now: float) -> list[Standby]:
    """The standbys by their notes; the active broker still has a note, but is not a standby."""
    standbys = []
    async for _, content in notes_in(store):
        note = decode_note(content)
        if note is None or (lease is not None and note.nonce == lease.nonce):
            continue
        standby = Standby(note.addresses, note.behind_bytes, max(now - note.noted_at, 0.0))
        if standby.is_silent and lease is not None:
            # It reads no more, and the active broker goes on.
            standby = standby._replace(behind_bytes=max(lease.position - note.position, 0))
        if standby.seconds_ago < FORGOTTEN_SECONDS:
            standbys.append(standby)
    return sorted(standbys, key=lambda standby: sorted(standby.addresses.items()))
