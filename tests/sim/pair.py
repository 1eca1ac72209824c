"""The world of a history with two or three brokers on one store: any of them dies with its disk, stands still and goes
on, or is stopped; and the store answers late, twice, or not at all.

The brokers are those of `World`, with their journal in a `FaultyStore`. Each is a process of its own, so one that
stands still keeps nobody from going on, and believes afterwards that no time has passed until it looks at a clock.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from semel.log.broker.broker import Broker
from semel.log.broker.failure import BrokerFenced
from semel.log.replica.holes import Hole
from semel.log.store import Unsure
from semel.log.store.contract import Buffer, Found, Listed
from semel.testing.faulty import Crashed, FaultyFiles
from semel.testing.stores import FaultyStore
from semel.testing.virtual_loop import VirtualLoop
from sim.disk import LosingDisk, LosingThread, SimulatedDiskThread
from sim.network import Weather
from sim.processes import Process, ProcessLoop
from sim.world import COMPACTION_LOOK_S, LIMITS, PORT, RECOVERY_S_MAX, SETTINGS, WatchedEvents, World

T = TypeVar("T")

NAMES: Final = ("a", "b", "c")
# One history in so many has all of them, and the others the first two.
TRIPLES_EVERY: Final = 3
# Shorter than clients wait.
LEASE_S: Final = 1.0
# Room for what one fetch may have come from the store, which is little: so it comes again and again.
CACHE_BYTES: Final = 20_000
# Two brokers look at their store several times a second.
TURNS_MAX: Final = 2_000_000


class WayToStore:
    """The way of one process to the store: what it has sent arrives whatever becomes of the process, and a process that
    is dead sends nothing."""

    def __init__(self, store: FaultyStore, loop: ProcessLoop) -> None:
        self._store = store
        self._loop = loop
        self.is_cut = False

    async def create(self, key: str, body: Buffer) -> str:
        return await self._send(self._store.create(key, bytes(body)))

    async def replace(self, key: str, body: Buffer, version: str) -> str:
        return await self._send(self._store.replace(key, bytes(body), version))

    async def get(self, key: str) -> Found:
        return await self._send(self._store.get(key))

    async def get_range(self, key: str, start: int, size: int) -> bytes:
        return await self._send(self._store.get_range(key, start, size))

    async def list(self, folder: str, after: str = "") -> AsyncIterator[Listed]:
        async def listed() -> list[Listed]:
            return [one async for one in self._store.list(folder, after)]

        for one in await self._send(listed()):
            yield one

    async def delete(self, key: str) -> None:
        await self._send(self._store.delete(key))

    async def close(self) -> None:
        """What is under way arrives."""

    def describe(self) -> str:
        return self._store.describe()

    async def _send(self, call: Coroutine[Any, Any, T]) -> T:
        if self.is_cut:
            call.close()
            await self._loop.create_future()
        return await self._loop.outside(call)


async def _no_way(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Between the brokers there is no network, so a standby has to answer by itself."""
    raise ConnectionRefusedError(f"no way to {host}:{port}")


class Member:
    """One of the brokers: the process, its disk, and its way to the store. `broker` is there while it is up."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.broker: Broker | None = None
        self.process: Process
        self.way: WayToStore
        self.files = FaultyFiles()


class PairWorld(World):
    """What there is, and what has happened, with two brokers or three."""

    loop: ProcessLoop

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.store = FaultyStore(self.chance("store").getrandbits(32))
        names = NAMES if seed % TRIPLES_EVERY == TRIPLES_EVERY - 1 else NAMES[:2]
        self.fired[f"history of {len(names)} brokers"] += 1
        self.members = [Member(name) for name in names]
        self.addresses = [(name, PORT) for name in names]
        # Some still wait when a broker goes on that has stood still, and another one is active.
        self.patiences_s = (1.5, 6.0)
        # How many times a broker has become active.
        self._newest_epoch = 0

    def make_loop(self) -> VirtualLoop:
        return ProcessLoop(turns_max=TURNS_MAX)

    def owns_store(self, name: str) -> bool:
        broker = next(member.broker for member in self.members if member.name == name)
        return broker is not None and broker.role.epoch == self._newest_epoch > 0

    def count_faults(self) -> None:
        for member in self.members:
            if member.broker is not None:
                self._count_cache(member.broker)
        self.fired.update({f"store: {kind}": count for kind, count in self.store.fired.items()})

    @property
    def active(self) -> Member | None:
        """The broker that clients should be served by."""
        up = [member for member in self.members if member.broker is not None and member.broker.role.epoch]
        return max(up, key=lambda member: member.broker.role.epoch if member.broker else 0, default=None)

    @property
    def standing_by(self) -> list[Member]:
        return [member for member in self.members if member.broker is not None and not member.broker.role.epoch]

    @property
    def _any_is_still(self) -> bool:
        return any(member.process.is_still for member in self.members)

    # -- the brokers' lives -------------------------------------------------------------------------------------

    async def start_broker(self) -> None:
        """All of them."""
        for member in self.members:
            await self._start(member)

    async def _start(self, member: Member) -> None:
        """Have a broker on what its disk holds. It may take more than one try, as with the supervisor of a process: the
        store may not answer, and what a broker reads may be deleted before it has read it."""
        while True:
            member.process, member.way = Process(self.loop), WayToStore(self.store, self.loop)
            try:
                broker = await member.process.spawn(self._started(member), f"start {member.name}")
            except (Unsure, BrokerFenced, Hole) as error:
                self.fired["start refused at a hole"] += isinstance(error, Hole)
                self.note(member.name, "start given up", error=str(error))
                await asyncio.sleep(self._fate.uniform(0.1, 1.0))
                continue
            member.broker = broker
            broker.failed.add_done_callback(partial(self._fell, member, broker))
            broker.activated.add_done_callback(partial(self._became_active, member, broker))
            return

    async def _started(self, member: Member) -> Broker:
        def died() -> None:
            """The disk of a pair is a cache, and its faults are those of the other histories."""

        def thread(name: str, loop: asyncio.AbstractEventLoop) -> SimulatedDiskThread:
            if name != "semel-checkpoint":
                return SimulatedDiskThread(self, self._disk_chance, loop, died)
            return LosingThread(self, self._disk_chance, loop, died, disk)

        def stored_bytes(path: str) -> int:
            return broker.role.cache.files.end_of_parts(path) if broker.role.cache else 0

        disk = LosingDisk(member.files, self.chance(f"loss {member.name}"), stored_bytes)
        broker = Broker(
            files=disk,
            host=member.name,
            port=PORT,
            insecure=True,
            store=member.way,
            lease_seconds=LEASE_S,
            cache_bytes=CACHE_BYTES,
            settings=SETTINGS,
            limits=LIMITS,
            clock=self.clock_s,
            boot_clock=self.loop.time,
            reach=_no_way,
            pace=self.pace,
            disk_threads=thread,
        )
        broker.events = WatchedEvents(self, member.name)
        broker.compactor.look_seconds = COMPACTION_LOOK_S
        await broker.start()
        return broker

    def _became_active(self, member: Member, broker: Broker, _: object) -> None:
        if broker is member.broker:
            self.fired["takeover"] += broker.role.epoch > 1
            self._newest_epoch = max(self._newest_epoch, broker.role.epoch)
            self.note(member.name, "is active", epoch=broker.role.epoch)

    def _fell(self, member: Member, broker: Broker, _: object) -> None:
        if broker is member.broker:
            self.fired["fenced"] += 1
            self.kill(member)

    def kill(self, member: Member) -> None:
        """The process is no more, and its disk may be gone with it."""
        broker, member.broker = member.broker, None
        if broker is None:
            return
        self.last_death_s = self.clock_s()
        self._count_cache(broker)
        member.way.is_cut = True
        member.files.crash()
        self.network.power_off(member.name)
        self.note("world", "a broker died", name=member.name)
        self.spawn(self._bury(member, broker), f"bury {member.name}")

    def _count_cache(self, broker: Broker) -> None:
        """What the broker has fetched and freed in its life."""
        if broker.role.cache is not None:
            self.fired["cache: fetched"] += broker.role.cache.fetches
            self.fired["cache: freed"] += broker.role.cache.freed_bytes

    async def _bury(self, member: Member, broker: Broker) -> None:
        if member.process.is_still:
            member.process.go_on()
        with contextlib.suppress(Crashed):
            await member.process.spawn(broker.kill(), f"kill {member.name}")
        await asyncio.sleep(self._fate.uniform(0.05, 2.0))
        self._take_disk(member)
        await self._start(member)

    def _take_disk(self, member: Member) -> None:
        """What a new process finds."""
        if self._fate.random() < 0.5:
            self.fired["disk wiped"] += 1
            member.files = FaultyFiles()
        else:
            member.files = member.files.after_kill()

    async def restart(self, member: Member) -> None:
        """An orderly stop, and a start."""
        broker, member.broker = member.broker, None
        if broker is None:
            return
        self.note("world", "a broker is stopped", name=member.name)
        self.last_death_s = self.clock_s()
        await member.process.spawn(broker.stop(), f"stop {member.name}")
        self.network.power_off(member.name)
        member.way.is_cut = True
        await asyncio.sleep(self._fate.uniform(0.05, 2.0))
        self._take_disk(member)
        await self._start(member)

    async def stand_still(self, member: Member, seconds: float) -> None:
        """The process stands still for so long, and goes on, unless it has died meanwhile."""
        process = member.process
        process.stand_still()
        self.note("world", "a broker stands still", name=member.name)
        await asyncio.sleep(seconds)
        if process.is_still:
            # By then it may have ended a transaction of which nobody will hear.
            self.last_death_s = self.clock_s()
            self.note("world", "a broker goes on", name=member.name)
            process.go_on()

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), Crashed):
            super()._on_error(loop, context)

    # -- the end ------------------------------------------------------------------------------------------------

    async def heal(self) -> None:
        """Let nothing go wrong any more, and wait until one is active and the others stand by."""
        self.note("world", "healed")
        self.is_healed = True
        self.network.weather = Weather()
        self.network.cut_off.clear()
        self.network.held_back.clear()
        self.store.calm()
        self.disk_delay_s = 0.001
        async with asyncio.timeout(RECOVERY_S_MAX):
            while not self.active or len(self.standing_by) + 1 < len(self.members) or self._any_is_still:
                self.store.calm()
                await asyncio.sleep(0.1)
        # A broker that has just gone on may not know yet that another one is active.
        await asyncio.sleep(2 * LEASE_S)
