"""How a broker on a store joins the cluster, stands by, takes over, and keeps the lease.

The object `format`, made by the first broker, says which cluster the store belongs to, which format version everything
else has, and how many slots a broker may have under way. A store with another version or another number must never be
used.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from semel.log.core.slots import DEPTH, BrokenHistory
from semel.log.replica.floor import FIRST_FLOOR, FLOOR_KEY, Floor
from semel.log.replica.holes import Hole
from semel.log.replica.lease import LEASE_KEY, LOOKS, Addresses, Lease, LeaseHolder, LeaseWatch, boot_seconds, unusable
from semel.log.replica.note import NOTE_SECONDS, NoteKeeper, NoteWatch, StandbyNote
from semel.log.replica.reader import ROOM_SECONDS, SLOTS_PER_LOOK, NoRoom, SlotReader
from semel.log.replica.record import UNREADABLE, decode_record, encode_record
from semel.log.replica.slot import JOURNAL
from semel.log.replica.writer import Fenced, answered, answered_soon, create_surely
from semel.log.store import FORMAT_KEY, Missing, Store, StoreError, Unsure

VERSION: Final = 5
_AGAIN_SECONDS: Final = 0.2
# How long a takeover, which goes on meanwhile, and a broker that stops wait for a search for standbys; and how long a
# standby waits until such a search finds it.
_SEARCH_SECONDS_MAX: Final = 1.0
# A broker that has resigned begins again in its process, and reads the newest checkpoint.
RETURN_SECONDS: Final = 30.0
# How long a broker that stops waits for another one to become active with the lease that it has released.
TAKEN_SECONDS_MAX: Final = 2.0
_TAKEN_LOOK_SECONDS: Final = 0.05
# How exactly the end of the lease is met.
_CLOCK_SECONDS: Final = 0.001
# How long a broker that stops waits for its last calls. Other brokers wait no longer than the period of the lease.
_LEAVE_SECONDS_MAX: Final = 2.0


# Called with whether the lease is not quite over yet: otherwise this process has stood still.
GiveUp = Callable[[bool], None]
TakeAgain = Callable[[], Awaitable[None]]


async def cluster_of(store: Store, new_cluster_id: str, known: str = "") -> str:
    """The id of the cluster that the store belongs to; the new one if there is none. If the directory of the broker is
    the cache of a `known` cluster, the store must belong to that one. Raises BrokenHistory for a store that this semel
    must not use, and Unsure if the store does not answer."""
    # At a start the operator must learn that the store does not answer; later a broker waits for its store.
    cluster_id = await answered_soon(store, lambda: _cluster_of(store, new_cluster_id, known))
    if known and known != cluster_id:
        raise _foreign(store, f"cluster {cluster_id}", known)
    return cluster_id


def _foreign(store: Store, what: str, known: str) -> BrokenHistory:
    return BrokenHistory(
        f"{store.describe()} holds {what}, and the data directory is the cache of cluster {known}: correct the URL, or "
        "name an empty directory"
    )


def format_of(cluster_id: str) -> bytes:
    """The object `format` of a store that belongs to this cluster."""
    return encode_record(FORMAT_KEY, {"version": VERSION, "depth": DEPTH, "cluster_id": cluster_id})


async def _cluster_of(store: Store, new_cluster_id: str, known: str) -> str:
    try:
        stored = await answered(lambda: store.get(FORMAT_KEY))
    except Missing:
        if not await answered(lambda: _has_objects(store)):
            if known:
                raise _foreign(store, "no log", known) from None
            # The floor comes first: if there is a format, a missing floor was lost.
            is_new = await create_surely(store, FLOOR_KEY, FIRST_FLOOR.encode())
            if is_new and await create_surely(store, FORMAT_KEY, format_of(new_cluster_id)):
                return new_cluster_id
        try:
            # Another broker may have created it meanwhile.
            stored = await answered(lambda: store.get(FORMAT_KEY))
        except Missing:
            raise BrokenHistory(f"{store.describe()}: {await _why_without_format(store)}") from None
    return read_cluster_id(stored.body, store.describe())


async def _has_objects(store: Store) -> bool:
    """Whether there is a slot, or a lease: no broker creates these before there is a format. Raises Unsure."""
    async for _ in store.list(JOURNAL):
        return True
    try:
        await store.get(LEASE_KEY)
    except Missing:
        return False
    return True


async def _why_without_format(store: Store) -> str:
    """Why there is a floor but no format."""
    if await answered(lambda: _has_objects(store)):
        return f"the object {FORMAT_KEY!r} was there and is gone. It says whose log this is: put it back, then start"
    return "a move into it has not ended: start it again, or name a store that is empty"


def read_cluster_id(content: bytes, where: str) -> str:
    """The id of the cluster in the object `format`; BrokenHistory if this semel must not use the store."""
    try:
        fields = decode_record(FORMAT_KEY, content)
        version, depth = fields["version"], fields["depth"]
        if (version, depth) != (VERSION, DEPTH):
            raise BrokenHistory(
                f"{where}: the object {FORMAT_KEY!r} says version {version!r} and depth {depth!r}; this semel has "
                f"{VERSION}, {DEPTH}"
            )
        return str(fields["cluster_id"])
    except UNREADABLE as error:
        raise BrokenHistory(
            f"{where}: the object {FORMAT_KEY!r} is damaged, or none of semel's: {error}. Put it back and start again"
        ) from None


class Membership:
    """The membership of one broker, from the moment it joins."""

    def __init__(
        self,
        store: Store,
        reader: SlotReader,
        addresses: Addresses,
        lease_seconds: float,
        cluster_id: str,
        clock: Callable[[], float] = boot_seconds,
        note_hole: Callable[[Hole], None] | None = None,
    ) -> None:
        """The period of the lease is counted by `clock`. `note_hole` gets each hole that this broker meets while
        another one is active, and one that it gives up.
        """
        self._store = store
        self._reader = reader
        self._clock = clock
        self.addresses = addresses
        self._cluster_id = cluster_id
        self._note_hole = note_hole
        # The slot of the last hole that was noted.
        self._hole_slot = -1
        # The lease before this broker claimed it.
        self._lease_before: Lease | None = None
        self._holder = LeaseHolder(store, secrets.token_hex(8), addresses, lease_seconds, cluster_id)
        self._note = NoteKeeper(store, addresses)
        # The nonce in the last lease of another broker, whose note may still be there when it is lost.
        self._nonce_before = ""
        # Since this broker began to take over: where the standbys are.
        self._watch: NoteWatch
        self.standbys: Sequence[Addresses] = ()
        # Where the former broker will stand by that has resigned, and until when this one says so.
        self._returning: tuple[Addresses, float] | None = None
        # Set while this broker has the lease, after it has become active.
        self._has_lease = asyncio.Event()
        self._has_given_up = False
        self._has_read = asyncio.Event()
        self._is_noted = asyncio.Event()
        # How far the active broker has sent slots, according to the lease.
        self._active_position = 0
        # Since when the active broker has missed its renewals, by the clock; None if it has not.
        self._in_doubt_since: float | None = None

    @property
    def may_serve(self) -> bool:
        """Whether, according to the lease, no other broker can have begun to serve."""
        return self._holder.is_held(self._clock())

    @property
    def is_in_doubt(self) -> bool:
        """Whether the active broker is probably lost, and this one, or another, soon takes over. If nobody has done so
        after a lease, the store is away, and the doubt could last.
        """
        since = self._in_doubt_since
        return since is not None and self._clock() - since < self._holder.seconds

    @property
    def lag_bytes(self) -> int:
        """How many bytes of entries a standby is behind the active broker, as far as it knows."""
        return max(self._active_position - self._reader.history.position, 0)

    async def become_active(
        self, note_active: Callable[[Lease], None], note_floor: Callable[[Floor], Awaitable[None]] | None = None
    ) -> int:
        """Stand by until this broker can take over; return the epoch in which it is active."""
        while True:
            await self.stand_by(note_active, note_floor)
            epoch = await self.take_over()
            if epoch is not None:
                return epoch

    async def stand_by(
        self, note_active: Callable[[Lease], None], note_floor: Callable[[Floor], Awaitable[None]] | None = None
    ) -> None:
        """Follow the active broker, and return when this broker has the lease because no other held it any more.
        `note_active` gets the lease of the active broker, at first and after each change, and `note_floor` the floor of
        a checkpoint when everything that it covers was read. If that raises NoRoom, it gets the newest floor again.
        """
        loop = asyncio.get_running_loop()
        if self._reader.floor is not None:
            # After a takeover that came to nothing: the floor may not have been noted before.
            self._reader.has_reached_floor.set()
        # However long these take, this broker goes on looking at the lease.
        beside = [loop.create_task(self._keep_note())]
        if note_floor is not None:
            beside.append(loop.create_task(self._note_floors(note_floor)))
        following = loop.create_task(self._follow(note_active))
        try:
            await asyncio.wait((following, *beside), return_when="FIRST_COMPLETED")
            for task in (*beside, following):
                if task.done():
                    task.result()
        finally:
            for task in (*beside, following):
                task.cancel()
            # Nobody waits for the note of a broker that takes over.
            self._is_noted.set()

    async def _note_floors(self, note_floor: Callable[[Floor], Awaitable[None]]) -> None:
        while True:
            await self._reader.has_reached_floor.wait()
            self._reader.has_reached_floor.clear()
            floor = self._reader.floor
            if floor is not None and floor.pieces:
                try:
                    await note_floor(floor)
                except NoRoom:
                    await asyncio.sleep(ROOM_SECONDS)
                    self._reader.has_reached_floor.set()

    async def _keep_note(self) -> None:
        """Regularly write how far this standby has read."""
        await self._has_read.wait()
        while True:
            history = self._reader.history
            places = history.epoch, history.position, self._active_position
            note = StandbyNote(self.addresses, self._holder.nonce, *places, time.time())
            with contextlib.suppress(StoreError):
                await self._note.put(note)
                self._is_noted.set()
            await asyncio.sleep(NOTE_SECONDS if self._is_noted.is_set() else _AGAIN_SECONDS)

    async def is_noted(self) -> None:
        """Return when an active broker that looks finds this standby, or after a moment if the store does not take the
        note."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SEARCH_SECONDS_MAX):
                await self._is_noted.wait()

    async def _follow(self, note_active: Callable[[Lease], None]) -> None:
        watch = LeaseWatch(self._store)
        noted: Lease | None = None
        while True:
            is_behind = is_full = False
            try:
                try:
                    is_behind = await self._reader.read_on(SLOTS_PER_LOOK)
                except NoRoom:
                    # This broker must know the active one all the same, and must not become active itself.
                    is_full = True
                await watch.look(self._clock)
                self._active_position = 0 if watch.lease is None else max(watch.lease.position, 0)
                if not watch.misses_renewals:
                    self._in_doubt_since = None
                elif self._in_doubt_since is None:
                    self._in_doubt_since = self._clock()
                # Only now can its note say how far behind it is.
                self._has_read.set()
                if watch.lease is not None:
                    self._check_lease(watch.lease)
                epoch = self._reader.history.epoch + 1
                may_claim = watch.is_over and not is_behind and not is_full
                if not is_behind and not is_full:
                    await self._look_for_hole(watch.lease, may_claim=may_claim)
                if may_claim and await self._holder.claim(epoch, watch.version, self._clock()):
                    return
            except Unsure:
                pass
            lease = watch.lease
            if lease is not None and (noted is None or lease.addresses != noted.addresses or lease.epoch > noted.epoch):
                noted = lease
                note_active(lease)
            if not is_behind:
                await asyncio.sleep(ROOM_SECONDS if is_full else watch.pause_seconds)

    def _check_lease(self, lease: Lease) -> None:
        """Note what is known only from the lease of another broker."""
        if lease.cluster_id != self._cluster_id:
            raise unusable(f"is that of cluster {lease.cluster_id}, and the store is that of {self._cluster_id}")
        if lease.nonce != self._holder.nonce:
            self._nonce_before = lease.nonce

    async def _look_for_hole(self, lease: Lease | None, *, may_claim: bool) -> None:
        """Raise a hole after the last slot that was read if this broker would take over there. While another one is
        active, its lease tells whether there can be one; then the operator is told, and this broker waits for the slot.
        """
        history, self._lease_before = self._reader.history, lease
        if lease is not None:
            self._holder.note_created(lease.created_below)
        if not may_claim and (lease is None or lease.created_below <= history.next_slot):
            return
        hole = await self._reader.find_hole(lease)
        if hole is None:
            return
        if may_claim and not self._reader.gives_up(hole):
            # Nothing is written yet.
            raise hole
        if self._note_hole is not None and (may_claim or hole.slot != self._hole_slot):
            self._hole_slot = hole.slot
            self._note_hole(hole)

    async def take_over(self) -> int | None:
        """Read the remaining slots and create the fence; return the epoch in which this broker is active. None if it
        has to stand by again: its disk is full, or another broker has claimed the lease because this one took too long.

        Look for standbys meanwhile: clients ask for Metadata at once, and drop the brokers that are not in the answer.
        """
        self._watch = NoteWatch(self._store, (self._holder.nonce, self._nonce_before))
        before = self._lease_before
        if before is not None and before.is_released and before.resigns:
            self._returning = before.addresses, self._clock() + RETURN_SECONDS
        looking = asyncio.get_running_loop().create_task(self._look_for_standbys())
        try:
            while True:
                try:
                    epoch = await self._reader.take_over(
                        lambda: self._holder.keeps_claim(self._clock()), self._lease_before
                    )
                    break
                except NoRoom:
                    # Another broker may have space.
                    with contextlib.suppress(StoreError):
                        await self._holder.release()
                    return None
                except Unsure:
                    await asyncio.sleep(_AGAIN_SECONDS)
            if epoch is not None:
                await asyncio.wait((looking,), timeout=_SEARCH_SECONDS_MAX)
        finally:
            looking.cancel()
        return epoch

    async def keep_lease(
        self, epoch: int, give_up: GiveUp, take_again: TakeAgain, resign: Callable[[bool], None]
    ) -> None:
        """Regularly renew the lease, and look for standbys. Raises Fenced when another broker has the lease.

        `give_up` is called when the lease ends without being renewed. If it is renewed afterwards, a standby may take
        over; if there is none, `take_again` is called. `resign` is called when an operator wants a standby to take
        over; it gets whether there is one.
        """
        # However long these take, this broker goes on renewing the lease.
        watching = asyncio.get_running_loop().create_task(self._watch_standbys())
        watching_lease = asyncio.get_running_loop().create_task(self._watch_lease(give_up, take_again))
        has_resigned = False
        try:
            while True:
                try:
                    self._holder.note_created(self._reader.history.created_below)
                    is_ours = await self._holder.renew(epoch, self._clock(), self._reader.history.position)
                except Unsure:
                    is_ours = True
                if not is_ours:
                    raise Fenced(f"another broker has taken over: it has the lease in {self._store.describe()}")
                if self.may_serve:
                    if self._has_given_up and await self.finds_standby():
                        await self._give_way()
                    self._has_lease.set()
                    if self._holder.resigns and not has_resigned:
                        has_resigned = await self.finds_standby()
                        if not has_resigned:
                            self._holder.refuse_to_resign()
                        resign(has_resigned)
                pause = self._holder.pause_seconds if self.may_serve else _AGAIN_SECONDS
                await asyncio.wait((watching_lease,), timeout=pause)
                if watching_lease.done():
                    watching_lease.result()
        finally:
            watching.cancel()
            watching_lease.cancel()

    async def _watch_lease(self, give_up: GiveUp, take_again: TakeAgain) -> None:
        """Have the clients given up when the lease ends. This waits for no answer of the store."""
        while True:
            await self._has_lease.wait()
            if self._has_given_up:
                self._has_given_up = False
                await take_again()
            while self.may_serve:
                seconds = self._holder.held_until - self._clock()
                # The clock may go on while the machine sleeps, and the timers of the event loop do not.
                await asyncio.sleep(max(min(seconds, self._holder.seconds / LOOKS), _CLOCK_SECONDS))
            self._has_lease.clear()
            self._has_given_up = True
            give_up(self._clock() < self._holder.ends_at)

    async def _give_way(self) -> None:
        """Release the lease, and raise Fenced. Clients could not reach this broker while it had no lease, and many of
        them try again only after ten seconds; but they know the standby.
        """
        with contextlib.suppress(StoreError):
            await self._holder.release()
        raise Fenced(f"the lease in {self._store.describe()} had ended, and a standby takes over")

    async def _watch_standbys(self) -> None:
        # This broker is none any more, and must not be taken for one when it is lost.
        with contextlib.suppress(StoreError):
            await self._note.remove()
        while True:
            await self._look_for_standbys()
            await asyncio.sleep(self._holder.seconds)

    async def _look_for_standbys(self) -> None:
        with contextlib.suppress(StoreError):
            standbys = await self._watch.look(self._clock(), time.time())
            # One that had this broker's address was an earlier process.
            self.standbys = [addresses for addresses in standbys if addresses != self.addresses]

    @property
    def standbys_told(self) -> Sequence[Addresses]:
        """Where clients may look for the next broker: the standbys, and the one that will be back in a moment. Clients
        ask for Metadata at once after a takeover, and then not for minutes.
        """
        returning, until = self._returning or ({}, 0.0)
        is_missing = bool(returning) and returning not in self.standbys and self._clock() < until
        return [*self.standbys, returning] if is_missing else self.standbys

    async def finds_standby(self) -> bool:
        """Whether there is a standby, as the store says now."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SEARCH_SECONDS_MAX):
                await self._look_for_standbys()
        return bool(self.standbys)

    async def hand_over(self, note_active: Callable[[Lease], None]) -> None:
        """Release the lease, and look who becomes active. `note_active` gets the released lease, and then that of the
        next broker. If the store does not answer, other brokers wait for the end of the lease.
        """
        note_active(self._holder.released())
        with contextlib.suppress(StoreError, BrokenHistory, TimeoutError):
            async with asyncio.timeout(TAKEN_SECONDS_MAX):
                self._holder.note_created(self._reader.history.created_below)
                await answered(self._holder.release)
                watch = LeaseWatch(self._store)
                while watch.lease is None or not watch.lease.is_active:
                    await asyncio.sleep(_TAKEN_LOOK_SECONDS)
                    await answered(lambda: watch.look(self._clock))
                note_active(watch.lease)

    async def leave(self) -> None:
        """Release the lease, so that another broker can take over at once, and remove this broker's note. A broker that
        stops while it takes over has the lease already. If the store does not answer, other brokers wait for the end of
        the lease.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS_MAX):
                if self._holder.has_claimed:
                    self._holder.note_created(self._reader.history.created_below)
                    with contextlib.suppress(StoreError, BrokenHistory):
                        await self._holder.release()
                # An active broker may have a note, too, from its time as a standby.
                with contextlib.suppress(StoreError):
                    await self._note.remove()
