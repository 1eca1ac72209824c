"""The role of a broker on a store: it stands by while another broker is active, and may become active after it.

The actions at each change of role are passed in: this file must never know what a request is, or how the broker begins.
"""

import asyncio
import logging
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from semel.log.broker.disk_thread import DiskThread
from semel.log.broker.events import Events
from semel.log.broker.journal_pump import Checkpoints, Sync
from semel.log.broker.limits import Limits
from semel.log.broker.metrics import Metrics
from semel.log.replica.cache import OBJECT_REMEDY, Cache
from semel.log.replica.checkpoints import StoreCheckpoints
from semel.log.replica.floor import Floor
from semel.log.replica.health import Outage, StoreHealth
from semel.log.replica.holes import Hole
from semel.log.replica.journal import SlotJournal
from semel.log.replica.lease import Addresses, Lease
from semel.log.replica.membership import GiveUp, Membership, TakeAgain, cluster_of
from semel.log.replica.object_scrub import ObjectScrubber
from semel.log.replica.reader import NoRoom, SlotReader
from semel.log.replica.restore import Beginning, restore
from semel.log.replica.timely import TimelyStore
from semel.log.replica.writer import SlotWriter
from semel.log.security.listeners import Listener
from semel.log.storage.cache import mark_as_cache, take_as_cache
from semel.log.storage.files import OUT_OF_SPACE, TRIED_AGAIN, Files
from semel.log.storage.log import Log
from semel.log.storage.log_settings import LogSettings
from semel.log.store import Store

# The node ids of standbys are from here on: far above every epoch.
STANDBY_IDS: Final = 1 << 30
# In place of an address, if no other broker is known to be active. A command that writes a lease has port 0.
NOBODY: Final = "nobody"
# How many takeovers a client may have missed.
FORMER_IDS_MAX: Final = 10


class Role:
    """The role of one broker. It is on standby while `epoch` is 0; later `epoch` says how many times a broker became
    active on the store, this one included.
    """

    def __init__(
        self,
        store: Store,
        lease_seconds: float,
        cache_bytes: int | None,
        accepted_losses: Collection[str],
        limits: Limits,
        *,
        metrics: Metrics,
        events: Events,
        boot_clock: Callable[[], float],
    ) -> None:
        """`accepted_losses` are the keys of objects that may be given up if they are lost. The time of the lease is
        measured by `boot_clock`.
        """
        # Set when the log is open.
        self.cache: Cache
        self.epoch = 0
        self._journal = SlotJournal(limits.store_pending_bytes_max)
        self._writer: SlotWriter
        self._reader: SlotReader
        self._beginning: Beginning
        self._checkpoints: StoreCheckpoints
        self._cache_bytes = cache_bytes
        self._accepted_losses = accepted_losses
        self._cluster_id = ""
        self.health = StoreHealth(boot_clock, self._tell_outage, self._tell_answer)
        self._store = TimelyStore(store, lease_seconds, self.health)
        self.lease_seconds = lease_seconds
        self._metrics = metrics
        self._boot_clock = boot_clock
        self._membership: Membership
        self._events = events
        self._task: asyncio.Task[None] | None = None
        # While this broker is active.
        self.scrubber: ObjectScrubber | None = None
        self._scrubbing: asyncio.Task[None] | None = None
        # The lease of the active broker, while this one is on standby; and its own one, released, when it hands over.
        self._active: Lease | None = None
        self._leads = True

    async def open_log(self, open_files: Callable[[], Files], new_cluster_id: str, settings: LogSettings) -> Log:
        """Open the log: it begins with the newest checkpoint and follows the entries of other brokers, until this
        broker writes its own. The cluster id is the store's; an empty store gets the new one.
        """
        files = open_files()
        known = take_as_cache(files)
        try:
            cluster_id = await cluster_of(self._store, new_cluster_id, known)
            self._cluster_id = cluster_id
            mark_as_cache(files, self._store.describe(), cluster_id)
            self.cache = Cache(self._store, files, self._cache_bytes)
            self._beginning = beginning = await restore(self._store, self.cache, self._accepted_losses)
            self._journal.follow(beginning.history.position)
            log = Log.beside(self.cache.files, self._journal, cluster_id, settings, beginning.content)
        except BaseException:
            files.close()
            raise
        self._reader = SlotReader(
            self._store, self._journal, log, beginning.history, self._make_room, self._accepted_losses
        )
        log.damage.doubt, log.damage.store = self.cache.files.doubt, self._store.describe()
        self._writer = SlotWriter(self._store, self._journal, self._reader.history, self._metrics.note_slot)
        return log

    def durable(self, log: Log, thread: Callable[[str], DiskThread]) -> tuple[Sync, Checkpoints]:
        """What makes that log durable: the store."""
        events = self._events

        def tell(reason: str) -> None:
            events.tell(logging.WARNING, "store_not_cleared", reason=reason)

        def tell_of_cache(reason: str) -> None:
            events.tell(logging.WARNING, "cache_not_bounded", reason=reason)

        self.cache.use(thread("cache"), tell_of_cache)
        start = self._beginning.floor, self._beginning.contents
        self._checkpoints = StoreCheckpoints(self._store, self._writer, thread("checkpoint"), self.cache, start, tell)
        return self._writer, self._checkpoints

    def _tell_outage(self, outage: Outage) -> None:
        """What waits for the store, for how long, and why."""
        self._events.tell(
            logging.ERROR,
            "store_fails",
            kind=outage.error.kind,
            for_seconds=outage.seconds,
            reason=outage.error,
            waiting_bytes=self._journal.end - self._journal.synced,
            next_line_in_seconds=outage.next_line_seconds,
        )

    def _tell_answer(self, seconds: float) -> None:
        self._events.tell(logging.WARNING, "store_works_again", for_seconds=seconds)

    def _make_room(self, refusal: OSError) -> None:
        """The disk does not take the next records of another broker now: it is full, or too many files are open."""
        self._metrics.storage_errors += 1
        self._events.tell(logging.ERROR, "write_refused", reason=refusal)
        if refusal.errno in OUT_OF_SPACE:
            self.cache.make_room()

    def _note_hole(self, hole: Hole) -> None:
        is_given_up = not self.is_another_active and self._reader.gives_up(hole)
        self._events.tell(logging.ERROR, "hole_given_up" if is_given_up else "hole_met", reason=hole)

    async def _follow(self, floor: Floor) -> None:
        """Adopt the floor of another broker. Raises NoRoom if the disk has no space for what must be fetched first."""
        try:
            await self._checkpoints.follow(floor)
        except OSError as error:
            if error.errno not in TRIED_AGAIN:
                raise
            self._make_room(error)
            raise NoRoom(str(error)) from error

    async def find(
        self,
        listeners: Sequence[Listener],
        become_active: Callable[[], None],
        note_active: Callable[[Lease], None],
        give_up: GiveUp,
        take_again: TakeAgain,
        resign: Callable[[bool], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        """Return when this broker is active, or knows which one is; then go on in the background. `note_active` gets
        the lease of another active broker; `give_up` is called when the lease of this one has ended, and `take_again`
        when it may serve again; `resign` when an operator wants a standby to take over, with whether there is one;
        `fail` is called when this broker must stop.
        """
        addresses = {listener.name: listener.reached_at for listener in listeners}
        self._membership = membership = Membership(
            *(self._store, self._reader, addresses, self.lease_seconds, self._cluster_id),
            clock=self._boot_clock,
            note_hole=self._note_hole,
        )
        self._store.is_patient = True
        role_is_known = asyncio.get_running_loop().create_future()

        def note(lease: Lease) -> None:
            self._active = lease
            note_active(lease)
            if not role_is_known.done():
                role_is_known.set_result(None)

        async def belong() -> None:
            try:
                self.epoch = await membership.become_active(note, self._follow)
                self._active = None
                self._writer.open()
                become_active()
                self._begin_scrub()
                if not role_is_known.done():
                    role_is_known.set_result(None)
                await membership.keep_lease(self.epoch, give_up, take_again, resign)
            except Exception as error:
                if role_is_known.done():
                    fail(error)
                else:
                    role_is_known.set_exception(error)

        self._task = asyncio.get_running_loop().create_task(belong())
        await role_is_known
        if self.is_another_active:
            # A program that waits for this broker to stand by may stop the active one at once.
            await membership.is_noted()

    def _begin_scrub(self) -> None:
        def note(size: int) -> None:
            self._metrics.scrubbed_bytes += size

        def tell(reason: str) -> None:
            self._events.tell(logging.ERROR, "object_damaged", reason=reason, remedy=OBJECT_REMEDY)

        def interrupt(error: OSError) -> None:
            self._events.tell(logging.WARNING, "scrub_interrupted", reason=error)

        self.scrubber = ObjectScrubber(self._store, self.cache, self._checkpoints, note, tell, interrupt)
        self._scrubbing = asyncio.get_running_loop().create_task(self.scrubber.go_on())

    @property
    def is_active(self) -> bool:
        """Whether this broker may change the log."""
        return self.epoch > 0 and self._active is None

    @property
    def is_another_active(self) -> bool:
        """Whether another broker is active, as far as this one knows."""
        return self._active is not None and self._active.addresses != self._membership.addresses

    @property
    def is_in_doubt(self) -> bool:
        """Whether another broker was active and is probably lost, so that nobody knows for a moment who is."""
        return self.is_another_active and self._membership.is_in_doubt

    @property
    def may_serve(self) -> bool:
        """Whether this broker is active, and its lease still excludes any other."""
        return self.is_active and self._leads and self._membership.may_serve

    @property
    def has_lost_lease(self) -> bool:
        """Whether this broker is active and its lease has ended. It may still be the only one there is."""
        return self.is_active and self._leads and not self._membership.may_serve

    @property
    def node_id(self) -> int:
        """The node id of the active broker: its epoch, so that it changes with each takeover."""
        return self.epoch if self._active is None else self._active.epoch

    @property
    def takeovers(self) -> int:
        """How often a broker has taken over on this store, as far as this one has read."""
        return max(self._reader.history.epoch - 1, 0)

    @property
    def lag_bytes(self) -> int:
        """How many bytes of entries this broker has yet to read; 0 if it is the active one."""
        return 0 if self.epoch else self._membership.lag_bytes

    @property
    def bytes_under_way(self) -> int:
        """Journal bytes that were sent to the store and that it has not acknowledged yet."""
        return self._journal.bytes_under_way

    @property
    def _standbys(self) -> Sequence[Addresses]:
        if not self.epoch:
            return [self._membership.addresses]
        # One of them is the active broker after this one.
        return [
            standby
            for standby in self._membership.standbys_told
            if self._active is None or standby != self._active.addresses
        ]

    def active_at(self, listener: Listener) -> tuple[str, int]:
        """The host and port at which clients of this listener reach the active broker."""
        if self._active is None:
            return listener.reached_at
        return _address_of(self._active.addresses, listener)

    def standbys_at(self, listener: Listener) -> Mapping[int, tuple[str, int]]:
        """The standbys that this broker knows, by their node ids: the host and port at which clients of this listener
        reach each of them. A broker on standby knows only itself. A client that knew only the active broker could not
        find the next one: most forget their bootstrap servers.
        """
        return {_node_id_at(addresses): _address_of(addresses, listener) for addresses in self._standbys}

    def former_at(self, listener: Listener) -> Mapping[int, tuple[str, int]]:
        """The ids of the brokers that were active before, newest first, each with the address of a broker that is there
        now. A client may have kept one of these ids: librdkafka waits for ever for a coordinator whose id is not in
        Metadata any more. At a standby it hears NOT_COORDINATOR, and looks for the active broker.

        The ids are dealt to the active broker and the standbys in turn. Clients that lose a broker try one id after the
        other: if all of these led to the broker that was lost, a client would find the other one last. The newest leads
        to the active broker: most clients that have kept an id have that one, and `committed()` of librdkafka raises
        NOT_COORDINATOR.
        """
        addresses = [self.active_at(listener), *self.standbys_at(listener).values()]
        distances = range(1, min(FORMER_IDS_MAX, self.node_id - 1) + 1)
        return {self.node_id - distance: addresses[(distance - 1) % len(addresses)] for distance in distances}

    @property
    def standby_ids(self) -> Sequence[int]:
        """The node ids of the standbys that this broker knows."""
        return [_node_id_at(addresses) for addresses in self._standbys]

    async def finds_standby(self) -> bool:
        """Whether this broker is active, and another one waits to be. The store is asked: a standby may have come or
        stopped since this broker last looked.
        """
        return self.is_active and await self._membership.finds_standby()

    def lead_no_more(self) -> None:
        """Serve nobody from now on; what is under way may still change the log."""
        self._leads = False
        self.stop()

    async def hand_over(self) -> None:
        """Release the lease, when nothing is under way any more, and wait a moment for another broker to become active,
        so that clients can be told where it is.
        """

        def note(lease: Lease) -> None:
            self._active = lease

        # What the next broker writes is no failure of this one.
        self._writer.close()
        self._checkpoints.give_up()
        await self._membership.hand_over(note)

    def stop(self) -> None:
        """Stop following the journal, and stop renewing the lease."""
        for task in (self._task, self._scrubbing):
            if task is not None:
                task.cancel()

    async def leave(self, *, is_clean: bool, is_durable: bool) -> None:
        """Close the store. After a clean stop release the lease first, so that no other broker has to wait for it to
        expire; an active broker does so only if all its entries are durable.
        """
        if is_clean and self._task is not None and (is_durable or not self.is_active):
            await self._membership.leave()
        await self._store.close()


def _address_of(addresses: Addresses, listener: Listener) -> tuple[str, int]:
    """The address of another broker for clients of this listener."""
    return addresses.get(listener.name) or next(iter(addresses.values()))


def _node_id_at(addresses: Addresses) -> int:
    """The node id of the standby that is there: the same at every start."""
    host, port = next(iter(addresses.values()))
    return STANDBY_IDS | zlib.crc32(f"{host}:{port}".encode()) % STANDBY_IDS
