"""The lease: an object that says which broker is active and where, and that it was running a moment ago. It is a hint
and no authority: the fence in the journal decides which broker may write. The active broker replaces the lease three
times in its period. A standby waits until it has not changed for a whole period in which the store could be read. The
active broker serves reads only while it holds the lease. It counts the period from before the last write was sent, so
it stops serving before any other broker begins. Times come from a clock that goes on while the machine sleeps.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from semel.log.core.slots import BrokenHistory
from semel.log.replica.record import UNREADABLE, decode_record, encode_record
from semel.log.store import Changed, Exists, Missing, Store

LEASE_KEY: Final = "lease"
LEASE_SECONDS: Final = 3.0
# Writes in a period: two of them may fail.
PUTS: Final = 3
# After so many missed writes a standby takes the broker for lost, in what it tells clients, and in nothing else.
MISSED: Final = 2
# How often a standby looks in a period.
LOOKS: Final = 10
# The last part of a period in which its holder does not count on it any more. It needs a moment to end what it does for
# its clients, and clocks do not run at exactly the same speed.
MARGIN: Final = 0.1

Addresses = Mapping[str, tuple[str, int]]

# The position in the lease of a broker that is not active yet.
_NOT_YET: Final = -1
# The longest name that DNS has. A longer one would not fit into the answers to clients.
_HOST_BYTES_MAX: Final = 255
_PORT_MAX: Final = (1 << 16) - 1


def boot_seconds() -> float:
    """A clock that cannot be set and goes on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lease(NamedTuple):
    """The content of the object."""

    # The epoch of the broker that is active, or was about to become active when it wrote this.
    epoch: int
    # Its addresses for clients, by the names of its listeners.
    addresses: Addresses
    seconds: float
    # Whether the broker has stopped, so that others need not wait.
    is_released: bool
    # The process, and how often it has written the lease: no two writes are equal.
    nonce: str
    puts: int
    # How far it has sent slots, in bytes of entries; below 0 while it is about to become active.
    position: int
    # All slots below this one were created, as far as any broker knew that has ever had the lease: a slot below it that
    # is missing was lost.
    created_below: int
    cluster_id: str
    # Whether an operator wants a standby to take over. He writes this over the lease, so the broker learns of it at its
    # next write, without a call of its own; from then on it says whether the broker does so.
    resigns: bool = False

    @property
    def is_active(self) -> bool:
        """Whether the broker was active when it wrote this, and not about to become so, or to stop."""
        return self.position >= 0 and not self.is_released

    def encode(self) -> bytes:
        """The bytes of the object."""
        return encode_record(LEASE_KEY, self._asdict())


def decode_addresses(fields: Any) -> Addresses:
    """The addresses of a broker, as JSON has them; one of `UNREADABLE` if clients could not be told one of them."""
    addresses = {str(name): (str(host), int(port)) for name, (host, port) in fields.items()}
    for host, port in addresses.values():
        if len(host.encode()) > _HOST_BYTES_MAX or not 0 <= port <= _PORT_MAX:
            raise ValueError(f"no host and port: {host[:_HOST_BYTES_MAX]!r}, {port}")
    return addresses


def decode_lease(content: bytes) -> Lease:
    """The lease in these bytes; BrokenHistory if they are not a lease."""
    try:
        fields = decode_record(LEASE_KEY, content)
        return Lease(addresses=decode_addresses(fields.pop("addresses")), **fields)
    except UNREADABLE as error:
        raise unusable(f"is damaged, or none of semel's: {error}") from None


def unusable(what: str) -> BrokenHistory:
    """A lease that no broker may go by."""
    return BrokenHistory(
        f"the object {LEASE_KEY!r} {what}. No record is lost with it, but it is what tells whether the newest slot is "
        "gone: put it back, or, while no broker runs on this store, remove it, and start again"
    )


async def read_lease(store: Store) -> Lease | None:
    """The lease, if there is one. Raises BrokenHistory if it is damaged, and StoreError."""
    try:
        return decode_lease((await store.get(LEASE_KEY)).body)
    except Missing:
        return None


class LeaseWatch:
    """The lease as a standby sees it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._version: str | None = None
        self._looked_at = 0.0
        self._silent_seconds = 0.0
        self.lease: Lease | None = None

    @property
    def version(self) -> str | None:
        """The version of the object at the last look; None if there was none."""
        return self._version

    @property
    def pause_seconds(self) -> float:
        """How long to wait until the next look."""
        return (self.lease.seconds if self.lease is not None else LEASE_SECONDS) / LOOKS

    @property
    def is_over(self) -> bool:
        """Whether no broker holds the lease any more."""
        return self.lease is None or self.lease.is_released or self._silent_seconds >= self.lease.seconds

    @property
    def misses_renewals(self) -> bool:
        """Whether the broker that holds the lease is probably lost: it was to renew it twice since."""
        return self.lease is not None and self._silent_seconds >= self.lease.seconds * MISSED / PUTS

    async def look(self, clock: Callable[[], float]) -> None:
        """Read the lease. After a StoreError the time since the last look does not count."""
        now = clock()
        looked_at, self._looked_at = self._looked_at, now
        try:
            content, version = await self._store.get(LEASE_KEY)
        except Missing:
            self.lease, self._version = None, None
            return
        if version != self._version:
            self.lease, self._version = decode_lease(content), version
            # It may have been written during this look, so its silence begins only now.
            self._silent_seconds, self._looked_at = 0.0, clock()
        elif self.lease is not None:
            # A longer pause does not count in full: this process was stopped, or the store did not answer.
            self._silent_seconds += min(now - looked_at, 2 * self.pause_seconds)


class LeaseHolder:
    """The lease, held by the active broker, or by one that is about to become active."""

    def __init__(self, store: Store, nonce: str, addresses: Addresses, seconds: float, cluster_id: str) -> None:
        self._store = store
        self._next = Lease(
            *(0, addresses, seconds, False, nonce),
            puts=0,
            position=0,
            created_below=0,
            cluster_id=cluster_id,
        )
        self._version: str | None = None
        # The time until which no other broker can have begun to serve.
        self._ends_at = 0.0

    @property
    def nonce(self) -> str:
        """The random value that identifies this process."""
        return self._next.nonce

    @property
    def seconds(self) -> float:
        """The period of the lease."""
        return self._next.seconds

    @property
    def pause_seconds(self) -> float:
        """How long to wait until the next write."""
        return self._next.seconds / PUTS

    @property
    def has_claimed(self) -> bool:
        """Whether this broker may have written the lease."""
        return self._next.epoch > 0

    @property
    def ends_at(self) -> float:
        """The time until which no other broker can have begun to serve."""
        return self._ends_at

    @property
    def held_until(self) -> float:
        """The time until which this broker counts on its lease, a little before the end."""
        return self._ends_at - self._next.seconds * MARGIN

    def is_held(self, now: float) -> bool:
        """Whether this broker may serve as the one that has the lease."""
        return now < self.held_until

    def note_created(self, below: int) -> None:
        """Name this slot in the next write, if no higher one was noted before."""
        self._next = self._next._replace(created_below=max(self._next.created_below, below))

    async def claim(self, epoch: int, version: str | None, now: float) -> bool:
        """Replace the lease that has this version; False if another broker was faster."""
        self._version = version
        self._next = self._next._replace(epoch=epoch, position=_NOT_YET, is_released=False, resigns=False)
        return await self._put(now)

    async def keeps_claim(self, now: float) -> bool:
        """Whether no other broker has claimed the lease since this one did. The store is asked only if one can have.
        Raises Unsure if the store did not answer.
        """
        return self.is_held(now) or await self.renew(self._next.epoch, now, self._next.position)

    async def renew(self, epoch: int, now: float, position: int = 0) -> bool:
        """Renew the lease; False if another broker has it now. Raises Unsure if the store did not answer."""
        self._next = self._next._replace(epoch=epoch, position=position)
        while not await self._put(now):
            # If an answer was lost, the lease is our own; and so it is if an operator has written into it.
            try:
                content, version = await self._store.get(LEASE_KEY)
            except Missing:
                self._version = None
                return await self._put(now)
            found = decode_lease(content)
            if found.nonce != self._next.nonce:
                # The version stays the old one, or this broker could release the lease of the other one when it stops.
                return False
            self._version = version
            if found.resigns:
                self._next = self._next._replace(resigns=True)
        return True

    @property
    def resigns(self) -> bool:
        """Whether an operator has asked this broker to have a standby take over."""
        return self._next.resigns

    def refuse_to_resign(self) -> None:
        """Say in the next write that this broker stays active."""
        self._next = self._next._replace(resigns=False)

    def released(self) -> Lease:
        """The lease that `release` writes; from now on this broker does not hold it."""
        self._ends_at = 0.0
        self._next = self._next._replace(is_released=True)
        return self._next

    async def release(self) -> None:
        """Release the lease, so that another broker may begin at once. Raises StoreError if that fails."""
        self.released()
        # A write may have been under way when the broker began to stop.
        await self.renew(self._next.epoch, 0.0, self._next.position)

    async def _put(self, now: float) -> bool:
        self._next = self._next._replace(puts=self._next.puts + 1)
        content = self._next.encode()
        try:
            if self._version is None:
                self._version = await self._store.create(LEASE_KEY, content)
            else:
                self._version = await self._store.replace(LEASE_KEY, content, self._version)
        except (Exists, Changed, Missing):
            return False
        if not self._next.is_released:
            self._ends_at = max(self._ends_at, now + self._next.seconds)
        return True
