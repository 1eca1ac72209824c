"""Whoever lets things go wrong with the brokers on a store: network, clock, the store, and the brokers' lives."""

import contextlib
from collections.abc import Callable
from random import Random
from typing import Final

from semel.log.core.slots import DEPTH
from semel.log.replica.slot import HEAD_BYTES, JOURNAL
from semel.log.store import Exists
from semel.testing.stores import StoreFault, StoreFaultKind
from sim.nemesis import Nemesis
from sim.pair import Member, PairWorld

STORE_FAULTS: Final[tuple[StoreFaultKind, ...]] = (
    *("late", "lost request", "lost answer", "conflict", "throttled", "slow", "landed again"),
)
# Less than a lease, about as long as one, and the time in which another broker has taken over and died again.
STILL_S: Final = ((0.1, 0.8), (0.8, 2.0), (2.0, 8.0))
AWAY_S: Final = (0.5, 8.0)
# How long a slot is gone before somebody puts it back.
GONE_S: Final = (0.3, 6.0)


class PairNemesis(Nemesis):
    """The faults of one history of a pair."""

    _world: PairWorld
    _random: Random

    def faults(self) -> list[Callable[[], None]]:
        return [
            *(self._change_weather, self._cut_off_some, self._hold_back, self._set_the_clock),
            *(self._kill_active, self._kill_active, self._kill_standby, self._restart_some),
            *(self._freeze_active, self._freeze_active, self._freeze_standby),
            *(self._change_store, self._change_store, self._lose_store, self._remove_slot),
        ]

    def _kill_active(self) -> None:
        self._kill_some("kill active", self._world.active)

    def _kill_standby(self) -> None:
        self._kill_some("kill standby", self._some_standby())

    def _kill_some(self, fault: str, member: Member | None) -> None:
        if member is not None:
            self._did(fault, name=member.name)
            self._world.kill(member)

    def _restart_some(self) -> None:
        up = [member for member in self._world.members if member.broker is not None and not member.process.is_still]
        if up:
            member = self._random.choice(up)
            self._did("orderly restart", name=member.name)
            self._world.spawn(self._world.restart(member), f"restart {member.name}")

    def _freeze_active(self) -> None:
        self._freeze_some("freeze active", self._world.active)

    def _freeze_standby(self) -> None:
        self._freeze_some("freeze standby", self._some_standby())

    def _some_standby(self) -> Member | None:
        up = self._world.standing_by
        return self._random.choice(up) if len(up) > 1 else next(iter(up), None)

    def _freeze_some(self, fault: str, member: Member | None) -> None:
        if member is not None and not member.process.is_still:
            seconds = self._random.uniform(*self._random.choice(STILL_S))
            self._did(fault, name=member.name, seconds=round(seconds, 3))
            self._world.spawn(self._world.stand_still(member, seconds), f"freeze {member.name}")

    def _change_store(self) -> None:
        """From now on some calls go wrong, in some ways."""
        self._world.store.calm()
        often = self._random.choice((0.0, 0.02, 0.1, 0.3))
        kinds = self._random.sample(STORE_FAULTS, self._random.randint(1, len(STORE_FAULTS)))
        for kind in kinds:
            self._world.store.arm(StoreFault(kind, chance=often * self._random.random()))
        self._did("change of store", often=often, kinds=kinds)

    def _remove_slot(self) -> None:
        """A person removes an entry of the journal that a later slot vouches for, and puts it back some time later."""
        objects = self._world.store.objects
        keys = sorted(listed.key for listed in objects.list(JOURNAL))[: -2 * DEPTH]
        entries = [key for key in keys if len(objects.get(key).body) > HEAD_BYTES]
        if not entries:
            return
        key = self._random.choice(entries[-20:])
        body = objects.get(key).body
        objects.delete(key)

        def put_back() -> None:
            with contextlib.suppress(Exists):
                objects.create(key, body)

        self._did("slot removed", key=key)
        self._later(self._random.uniform(*GONE_S), put_back)

    def _lose_store(self) -> None:
        """For a while nothing arrives, or no answer does."""
        self._world.store.calm()
        kind: StoreFaultKind = self._random.choice(("lost request", "lost answer", "throttled"))
        self._world.store.arm(StoreFault(kind))
        self._did("store away", kind=kind)
        self._later(self._random.uniform(*AWAY_S), self._world.store.calm)
