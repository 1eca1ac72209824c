"""The world of one history: its time, its network, its disk, the real broker on them, and all that was seen to happen.

Everything in it follows from the seed. The broker is `semel.broker.Broker` as it is; only what it stands on is made:
the loop, the clock, the files, and the threads that wait for the disk. It dies here and comes back with what its disk
kept. This file must never judge what happened: it notes it, for the checkers.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Coroutine, Iterator
from functools import partial
from random import Random
from typing import Any, Final
from unittest import mock

from semel.log.broker.broker import Broker
from semel.log.broker.events import Events
from semel.log.broker.journal_pump import Durability
from semel.log.broker.limits import Limits
from semel.log.core.producer_table import TableBounds
from semel.log.replica.cache import Unreadable
from semel.log.replica.holes import Hole
from semel.log.replica.writer import Fenced
from semel.log.storage.aborted_blocks import BlockLayout
from semel.log.storage.journal import Damaged
from semel.log.storage.log import Torn
from semel.log.storage.log_settings import LogSettings
from semel.testing.checkers import Event
from semel.testing.faulty import Crashed, Fault, FaultKind, FaultyFiles
from semel.testing.virtual_loop import VirtualLoop
from semel.wire.steps import Pace
from sim.disk import SimulatedDiskThread
from sim.network import Network, Weather

HOST: Final = "broker"
PORT: Final = 9092
BEGINNING_S: Final = 1_800_000_000.0
# The longest that it may take a broker to come back when nothing goes wrong any more.
RECOVERY_S_MAX: Final = 60.0

# Small, so that files fill up, are sealed and are used again within one short history.
# One aborted transaction is enough for a block, and two blocks for a file. Two producers fill a page.
SETTINGS: Final = LogSettings(
    journal_file_bytes=16 * 1024,
    checkpoint_bytes=24 * 1024,
    aborted_blocks=BlockLayout(1, 2),
    producer_bounds=TableBounds(page=2, recent_min=1, recent_max=2, moved_at_once=1),
    pages_inline_bytes_max=100,
)
COMPACTION_LOOK_S: Final = 1.0
# Histories are short and their requests small: with this, others are served between any two steps of them.
SMALL_STEPS: Final = Pace(pieces_per_turn=1, unprepared_max=0, offsets_per_entry_max=1)
# Members of the new protocol and of share groups are missed as soon as those of the classic one.
LIMITS: Final = Limits(
    consumer_group_session_timeout_ms=6_000, share_group_session_timeout_ms=6_000, share_lock_ms=3_000
)


class WatchedEvents(Events):
    """Notes what the broker of this name would tell its operator; a fault of its own is an anomaly."""

    def __init__(self, world: "World", name: str = HOST) -> None:
        super().__init__(world.loop.time)
        self._world = world
        self._name = name

    def tell(self, level: int, event: str, *, error: BaseException | None = None, **fields: object) -> None:
        if event == "transaction_timed_out":
            self._world.timed_out.add(str(fields["producer_id"]))
        elif event == "compacted" and fields["removed_records"]:
            self._world.fired["records compacted away"] += 1
        elif event == "compaction_given_up":
            self._world.anomaly("damage", f"{fields['partition']}: {fields['reason']}")
        elif event == "read_failed" and self._world.owns_store(self._name) and isinstance(fields["reason"], Unreadable):
            self._world.anomaly("damage", f"{self._name}: {fields['reason']}")
        self._world.note(self._name, event, **{name: str(value) for name, value in fields.items()})
        is_loss = isinstance(error, Damaged) and self._world.fired["lost before a checkpoint"]
        if error is not None and not is_loss and not _was_injected(error, stopped=event == "stopped_where"):
            self._world.anomaly("traceback", f"{event}: {error!r}", error)


def _was_injected(error: BaseException, *, stopped: bool) -> bool:
    """Whether the world made it up: a crash, a failure of the disk or a slot that was removed, for which the broker
    stopped in good order, or a takeover."""
    cause = error.__cause__ if isinstance(error, Torn) else error
    return isinstance(cause, Crashed) or (stopped and isinstance(cause, OSError | Fenced | Hole))


class World:
    """What there is, and what has happened. `durability` is the broker's."""

    def __init__(self, seed: int, durability: Durability = "fsync") -> None:
        self.seed = seed
        self.durability: Durability = durability
        self.pace = SMALL_STEPS if seed % 2 else Pace()
        self.loop = self.make_loop()
        self.fired: Counter[str] = Counter()
        self.operations: Counter[str] = Counter()
        self.history: list[Event] = []
        self.anomalies: list[str] = []
        self.network = Network(self.loop, self.chance("network"), self.fired)
        # Where clients look for a broker.
        self.addresses = [(HOST, PORT)]
        # How long a client waits for an answer.
        self.patiences_s = (1.5,)
        self.files = FaultyFiles()
        self.broker: Broker | None = None
        self.disk_delay_s = 0.002
        self.clock_ahead_s = 0.0
        # How long the broker was away in all that nobody lived through.
        self.outages_s = 0.0
        self._outage_to_come_s = 0.0
        self.is_healed = False
        # The producers of whose transactions one was ended by its deadline.
        self.timed_out: set[str] = set()
        # When a broker died last, by the clock on its wall. It may have written the end of an overdue transaction, and
        # died before it could tell.
        self.last_death_s = 0.0
        self._disk_chance = self.chance("disk")
        self._fate = self.chance("fate")
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._power_lost = False
        # Names that a failed sync of their directory gave up are there as long as the machine runs, and nothing that
        # a program can do saves them: after one the machine has to start anew, or nothing could be promised.
        self.names_in_doubt = False
        self.loop.set_exception_handler(self._on_error)

    def make_loop(self) -> VirtualLoop:
        """The loop of this history."""
        return VirtualLoop()

    def owns_store(self, name: str) -> bool:
        """Whether this broker has a store, and nobody has taken over from it: then all that it needs is there."""
        return False

    def count_faults(self) -> None:
        """The history is over: count what has fired in it."""
        self.fired.update(self.files.fired)

    def chance(self, name: str) -> Random:
        """Chance for one purpose, so that what one does more or less leaves all others' as it was."""
        return Random(f"{self.seed}/{name}")

    def clock_s(self) -> float:
        """What the clock on the broker's wall says."""
        return BEGINNING_S + self.loop.time() + self.outages_s + self.clock_ahead_s

    def now_us(self) -> int:
        return round(self.loop.time() * 1e6)

    def note(self, who: str, what: str, **particulars: Any) -> None:
        self.history.append(Event(self.now_us(), who, what, particulars))

    def anomaly(self, name: str, text: str, error: BaseException | None = None) -> None:
        """What must never be."""
        self.anomalies.append(f"{name}: {text}")
        self.note("checker", name, text=text)

    def spawn(self, life: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        """Let somebody live beside all others until the history ends."""
        task = self.loop.create_task(life, name=f"{len(self._tasks):05} {name}")
        self._tasks[task] = None
        task.add_done_callback(self._life_ended)
        return task

    def _life_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.anomaly("traceback", f"in {task.get_name()}: {error!r}", error)

    # -- the broker's life --------------------------------------------------------------------------------------

    async def start_broker(self) -> None:
        """Have a broker on what the disk holds; it may take more than one try."""
        while True:
            broker = Broker(
                files=self.files,
                host=HOST,
                port=PORT,
                insecure=True,
                settings=SETTINGS,
                limits=LIMITS,
                clock=self.clock_s,
                durability=self.durability,
                pace=self.pace,
                disk_threads=lambda name, loop: SimulatedDiskThread(self, self._disk_chance, loop, self.broker_died),
            )
            broker.events = WatchedEvents(self)
            broker.compactor.look_seconds = COMPACTION_LOOK_S
            try:
                await broker.start()
            except Crashed:
                self.fired["crash during recovery"] += 1
            except OSError as error:
                self.fired["recovery refused by the disk"] += 1
                self.note("broker", "recovery refused", error=str(error))
            else:
                self.broker = broker
                broker.failed.add_done_callback(partial(self._broker_failed, broker))
                return
            await asyncio.sleep(self._fate.uniform(0.1, 1.0))
            self._change_disk()

    def broker_died(self, *, power_lost: bool | None = None) -> None:
        """The process is no more. Without a wish, chance says whether the machine lost its power as well."""
        broker, self.broker = self.broker, None
        if broker is None:
            return
        self.last_death_s = self.clock_s()
        self.files.crash()
        self.network.power_off(HOST)
        if power_lost is None:
            power_lost = self.durability == "fsync" and self._fate.random() < 0.7
        self._power_lost = power_lost
        self.note("world", "the broker died", power_lost=power_lost)
        self.spawn(self._bury(broker), "bury")

    def stay_away(self, seconds: float) -> None:
        """The broker dies, and by its clock comes back that much later; its clients wait as if it were a moment."""
        if self.broker is not None:
            self._outage_to_come_s = seconds
            self.broker_died()

    async def restart_broker(self) -> None:
        """An orderly stop, and a start."""
        broker, self.broker = self.broker, None
        if broker is None:
            return
        self._power_lost = False
        self.fired["orderly restart"] += 1
        self.note("world", "the broker is stopped")
        try:
            await broker.stop()
        except (Crashed, OSError) as error:
            self.note("world", "the stop was refused", error=str(error))
            self.last_death_s = self.clock_s()
            self.files.crash()
        if self.files.crashed or broker.failed.done():
            self._change_disk()
        await self.start_broker()

    def _broker_failed(self, broker: Broker, _: object) -> None:
        if broker is self.broker:
            self.fired["stopped serving"] += 1
            self.broker_died()

    async def _bury(self, broker: Broker) -> None:
        with contextlib.suppress(Crashed):
            await broker.kill()
        await asyncio.sleep(self._fate.uniform(0.05, 2.0))
        self.outages_s += self._outage_to_come_s
        self._outage_to_come_s = 0.0
        self._change_disk()
        await self.start_broker()

    def _change_disk(self) -> None:
        """What a new process finds."""
        before = self.files
        if self._power_lost or (self.names_in_doubt and before.fired["failed sync"]):
            self.fired["power lost"] += 1
            self.files = before.survivors(self._fate.getrandbits(32))
        else:
            self.fired["process killed"] += 1
            self.files = before.after_kill()
        self.fired.update(before.fired)
        self.names_in_doubt = False
        if not self.is_healed and self._fate.random() < 0.3:
            # The disk goes on as it began.
            kinds: tuple[FaultKind, ...] = ("crash before", "crash after", "EIO", "EIO")
            self.files.arm(Fault(self._fate.choice(kinds), at=self._fate.randint(0, 60)))

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Crashed):
            if self.files.crashed:
                self.broker_died()
        elif error is not None and not isinstance(error, ConnectionError | asyncio.CancelledError):
            self.anomaly("traceback", f"{context.get('message')}: {error!r}", error)

    # -- the end ------------------------------------------------------------------------------------------------

    async def heal(self) -> None:
        """Let nothing go wrong any more, and wait until there is a broker."""
        self.note("world", "healed")
        self.is_healed = True
        self.network.weather = Weather()
        self.network.cut_off.clear()
        self.network.held_back.clear()
        self.disk_delay_s = 0.001
        async with asyncio.timeout(RECOVERY_S_MAX):
            while self.broker is None:
                self.files.disarm()
                await asyncio.sleep(0.1)
        self.files.disarm()

    @contextlib.contextmanager
    def seeded_secrets(self) -> Iterator[None]:
        """Whatever asks the operating system for chance gets the seed's, for as long as the block takes."""
        chance = self.chance("secrets")
        with mock.patch("os.urandom", chance.randbytes), mock.patch("random._urandom", chance.randbytes):
            yield
