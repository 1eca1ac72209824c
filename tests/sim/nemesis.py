"""Whoever lets things go wrong: the weather in the network, the disk, the clock, and the broker's life.

What it does follows from the seed alone. It must never do what the system under test promises nothing about: with
`durability="os"` the machine keeps its power.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from semel.testing.faulty import Fault, FaultKind
from sim.network import Weather
from sim.world import World

MEAN_PEACE_S: Final = 1.2
# Less than the hour within which the age of a producer id is known, whichever way the clock goes.
CLOCK_STEP_MAX_S: Final = 600.0
# Longer than anything is remembered: downtime is nobody's silence.
OUTAGE_S: Final = (9 * 86_400.0, 40 * 86_400.0)


class Nemesis:
    """The faults of one history. `clients` are the names that may be cut off."""

    def __init__(self, world: World, clients: list[str]) -> None:
        self._world = world
        self._random = world.chance("nemesis")
        self._clients = clients
        faults = self.faults()
        # Some histories have all of these faults, some have a few, and those go deeper into one thing.
        self._faults = self._random.sample(faults, self._random.randint(2, len(faults)))

    def faults(self) -> list[Callable[[], None]]:
        """All that may go wrong; what stands there twice does so twice as often."""
        return [
            self._change_weather,
            self._change_weather,
            self._cut_off_some,
            self._hold_back,
            self._hold_back,
            self._kill,
            self._stay_away,
            self._crash_in_a_call,
            self._crash_in_a_call,
            self._refuse_writes,
            self._fill_the_disk,
            self._fail_a_sync,
            self._slow_the_disk,
            self._set_the_clock,
            self._restart,
        ]

    async def rage(self, seconds: float) -> None:
        """Let things go wrong for so long."""
        world = self._world
        until = world.loop.time() + seconds
        self._change_weather()
        while world.loop.time() < until:
            await asyncio.sleep(self._random.expovariate(1 / MEAN_PEACE_S))
            if world.is_healed:
                return
            self._random.choice(self._faults)()

    def _did(self, fault: str, **particulars: object) -> None:
        self._world.fired[fault] += 1
        self._world.note("nemesis", fault, **particulars)

    def _change_weather(self) -> None:
        random = self._random
        often = random.choice((0.0, 0.005, 0.02, 0.06))
        self._world.network.weather = Weather(
            request_lost=often * random.random(),
            answer_lost=often * random.random(),
            cut_short=often * random.random(),
            late=often * random.random(),
            in_pieces=random.choice((0.0, 0.1, 0.5)),
            delay_s=random.choice((0.0005, 0.002, 0.02)),
        )
        self._did("change of weather", often=often)

    def _cut_off_some(self) -> None:
        count = self._random.randint(1, len(self._clients))
        until = self._world.loop.time() + self._random.uniform(0.2, 6.0)
        chosen = sorted(self._random.sample(self._clients, count))
        self._world.network.cut_off.update(dict.fromkeys(chosen, until))
        self._did("cut off", clients=chosen, until=round(until, 3))

    def _hold_back(self) -> None:
        chosen = self._random.choice(self._clients)
        self._world.network.held_back[chosen] = self._world.loop.time() + self._random.uniform(0.05, 0.5)
        self._did("hold back", client=chosen)

    def _kill(self) -> None:
        if self._world.broker is not None:
            self._did("kill")
            self._world.broker_died()

    def _stay_away(self) -> None:
        if self._world.broker is not None:
            self._did("long outage")
            self._world.stay_away(self._random.uniform(*OUTAGE_S))

    def _crash_in_a_call(self) -> None:
        kinds: tuple[FaultKind, ...] = ("crash before", "crash after", "torn")
        kind = self._random.choice(kinds)
        call = "write" if kind == "torn" else self._random.choice((None, "write", "sync", "rename", "sync_directory"))
        size = self._random.randint(1, 300)
        self._arm(Fault(kind, at=self._soon(), call=call, keep=size))
        self._did("crash to come", kind=kind, call=call)

    def _refuse_writes(self) -> None:
        self._arm(Fault("EIO", at=self._soon(), call="write"))
        self._did("refusal to come")

    def _fail_a_sync(self) -> None:
        call = self._random.choice(("sync", "sync", "sync_directory")) if self._world.durability == "fsync" else "sync"
        self._world.names_in_doubt |= call == "sync_directory"
        self._arm(Fault("failed sync", at=self._soon(), call=call))
        self._did("failure of a sync to come", call=call)

    def _fill_the_disk(self) -> None:
        self._arm(Fault("ENOSPC", at=self._soon(), lasting=True, keep=self._random.choice((0, 1, 100))))
        self._did("the disk is full")
        self._later(self._random.uniform(0.2, 5.0), self._free_the_disk)

    def _free_the_disk(self) -> None:
        self._world.files.disarm()
        self._did("the disk has space")

    def _slow_the_disk(self) -> None:
        self._world.disk_delay_s = self._random.choice((0.02, 0.2, 1.0))
        self._did("slow disk")
        self._later(self._random.uniform(0.5, 5.0), self._speed_the_disk)

    def _speed_the_disk(self) -> None:
        self._world.disk_delay_s = 0.002

    def _set_the_clock(self) -> None:
        step_s = self._random.choice((-1, 1)) * self._random.uniform(0.1, CLOCK_STEP_MAX_S)
        world = self._world
        # Never far from the truth in all, or ids would come of age.
        world.clock_ahead_s = max(-CLOCK_STEP_MAX_S, min(CLOCK_STEP_MAX_S, world.clock_ahead_s + step_s))
        self._did("clock set", ahead_s=round(world.clock_ahead_s, 3))

    def _restart(self) -> None:
        self._world.spawn(self._world.restart_broker(), "restart")

    def _arm(self, fault: Fault) -> None:
        self._world.files.arm(fault)

    def _soon(self) -> int:
        return len(self._world.files.calls) + self._random.randint(1, 40)

    def _later(self, seconds: float, job: Callable[[], None]) -> None:
        self._world.loop.call_later(seconds, job)
