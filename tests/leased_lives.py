"""Lives of brokers that hold the lease while they are active, and leave it as a stopped or a killed process does."""

import asyncio
from typing import Any

from lives import Life, WatchedStore, names
from semel.log.replica.holes import Hole
from semel.log.replica.membership import Membership

ADDRESSES = {"clients": ("127.0.0.1", 9092)}
LEASE_SECONDS = 3.0


async def _nothing() -> None:
    """It has no clients to take again."""


class Active(Life):
    """A broker with a lease, as in a process of its own."""

    def __init__(self, store: WatchedStore, *accepted_losses: str, **options: Any) -> None:
        super().__init__(store, **options)
        self.accepted_losses = frozenset(accepted_losses)
        self.holes: list[Hole] = []

    async def start(self) -> "Active":
        await self.stand_by()
        return await self.become_active()

    async def become_active(self) -> "Active":
        """Wait for the lease, and take over."""
        self.membership = self.member()
        await self.membership.stand_by(lambda _: None)
        epoch = await self.membership.take_over()
        assert epoch is not None
        self.writer.open()
        self.log.show_all()
        self._keeping = asyncio.get_running_loop().create_task(
            self.membership.keep_lease(epoch, lambda _: None, _nothing, lambda _: None)
        )
        return self

    def member(self) -> Membership:
        self.reader._accepted_losses = self.accepted_losses
        clock = asyncio.get_running_loop().time
        lease = self.cluster_id, clock, self.holes.append
        return Membership(self.store, self.reader, ADDRESSES, LEASE_SECONDS, *lease)

    async def write_one_by_one(self, *values: bytes) -> None:
        """Each in a slot of its own."""
        for value in values:
            await self.write(value)

    def renew_no_more(self) -> None:
        """As where the lease is lost."""
        self._keeping.cancel()

    async def stop(self) -> None:
        """As by SIGTERM."""
        self._keeping.cancel()
        await self.membership.leave()
        self.end()

    def kill(self) -> None:
        self._keeping.cancel()
        self.end()


async def killed(store: WatchedStore, *, is_clean: bool, is_old: bool) -> list[bytes]:
    """A broker has written there, and is gone; returns what it had acknowledged."""
    active = await Active(store).start()
    await active.write_one_by_one(*names(*range(6)))
    if is_old:
        for number in range(3):
            await active.keep()
            await active.write_one_by_one(*names(*range(10 * number, 10 * number + 6)))
    values = active.values()
    await leave(active, is_clean=is_clean)
    return values


async def leave(active: Active, *, is_clean: bool) -> None:
    """End this broker when its lease has been renewed once more, and return when another one may begin."""
    await asyncio.sleep(LEASE_SECONDS / 2)
    if is_clean:
        await active.stop()
    else:
        active.kill()
        await asyncio.sleep(LEASE_SECONDS)
