"""Transactional producers of both versions of the protocol, and what becomes of them: ends, aborts, pauses, successors.

Version 1 announces its partitions and keeps its epoch from one transaction to the next; version 2 lets the first batch
announce itself and gets a new epoch with every end. Where batches are left whose fate is unknown, a client of version 1
asks for a new epoch before it goes on, as librdkafka and Java's client do. Each transaction's outcome is noted as its
producer knows it: committed, aborted, or unknown where the answer to its commit was lost.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from semel.wire.errors import ErrorCode
from semel.wire.versions import ADD_PARTITIONS_TO_TXN, END_TXN, INIT_PRODUCER_ID
from sim.client import Unanswered
from sim.producers import Refused, SequencedProducer
from sim.world import World

# What a client asks again after a while.
NOT_NOW: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class Transactor(SequencedProducer):
    """The rules of a client for transactions; what is in them is for those who inherit from it."""

    def __init__(self, world: World, name: str, transactional_id: str, topic: str, partitions: int) -> None:
        super().__init__(world, name, topic, partitions)
        self.transactional_id = transactional_id
        self.speaks_version_2 = self.random.random() < 0.5
        self.version = 12 if self.speaks_version_2 else self.random.choice((3, 7, 9, 11))
        self.timeout_ms = self.random.choice((2_000, 5_000, 20_000))
        self._init_version = 5 if self.speaks_version_2 else self.random.choice((0, 2, 3, 4))
        self._end_version = 5 if self.speaks_version_2 else self.random.choice((0, 2, 4))
        self._add_version = self.random.choice((0, 2, 3))
        self._announced: set[int] = set()
        self._number = 0
        self._began_s = 0.0

    # -- the requests -------------------------------------------------------------------------------------------

    async def claim(self, *, goes_on: bool = False) -> None:
        """Take possession of the transactional id, as a new process or as the one that had it."""
        while True:
            goes_on = goes_on and self._init_version >= 3
            answer = await self.insist(
                INIT_PRODUCER_ID,
                self._init_version,
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self.timeout_ms,
                producer_id=self.producer_id if goes_on else -1,
                producer_epoch=self.producer_epoch if goes_on else -1,
            )
            if answer.error_code == 0:
                break
            if answer.error_code not in NOT_NOW:
                raise Refused(int(answer.error_code))
            await self.pause()
        self.begin_anew(answer.producer_id, answer.producer_epoch)
        self._announced.clear()
        self.note("claimed", owner=(self.transactional_id, self.producer_id, self.producer_epoch))

    def begin(self) -> str:
        """The name of the next transaction."""
        self._number += 1
        self._began_s = self.world.clock_s()
        self._announced.clear()
        name = f"{self.name}#{self._number}"
        self.note("begin", transaction=name)
        return name

    async def deliver_all(self) -> None:
        """Bring every batch to its partition, however often it takes; `Refused` where that will never be."""
        while self.unacknowledged:
            await self.deliver_some()

    async def deliver_some(self) -> None:
        """Send every batch once, where version 1 is spoken after having announced where they go."""
        new = sorted({batch.partition for batch in self.unacknowledged} - self._announced)
        if new and not self.speaks_version_2:
            await self._announce(new)
        self._announced.update(new)
        await self.deliver()

    async def _announce(self, partitions: Sequence[int]) -> None:
        await self.ask_until_done(
            lambda answer: answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
            ADD_PARTITIONS_TO_TXN,
            self._add_version,
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[{"name": self.topic, "partitions": list(partitions)}],
        )

    async def ask_until_done(self, error_of: Any, api_key: int, version: int, /, **values: Any) -> Any:
        """Ask until it is done, or `Refused`."""
        while True:
            answer = await self.insist(api_key, version, **values)
            error = int(error_of(answer))
            if error == 0:
                return answer
            if error not in NOT_NOW:
                raise Refused(error)
            await self.pause()

    async def end(self, transaction: str, *, commit: bool) -> None:
        """Commit or abort, and note what is known of it; `Refused` if it was refused."""
        sent_us = self.world.now_us()
        owner = (self.transactional_id, self.producer_id, self.producer_epoch)
        is_certain = True
        while True:
            try:
                answer = await self.ask(
                    END_TXN,
                    self._end_version,
                    transactional_id=self.transactional_id,
                    producer_id=self.producer_id,
                    producer_epoch=self.producer_epoch,
                    committed=commit,
                )
            except Unanswered:
                if is_certain and commit:
                    self.note("outcome", transaction=transaction, outcome="unknown")
                is_certain = False
                await self.pause()
                continue
            if answer.error_code == 0:
                break
            if answer.error_code not in NOT_NOW:
                is_unknown = commit and answer.error_code == ErrorCode.INVALID_TXN_STATE
                if is_unknown and not self._may_have_timed_out():
                    # All that is in it was acknowledged: it is open, or committed already.
                    self.world.anomaly("commit refused", f"{transaction}: {answer.error_code!r}")
                if is_certain:
                    self.note("outcome", transaction=transaction, outcome="refused")
                raise Refused(int(answer.error_code))
            await self.pause()
        outcome = "committed" if commit else "aborted"
        self.note("outcome", transaction=transaction, outcome=outcome, sent_us=sent_us, owner=owner)
        if self.speaks_version_2:
            self.begin_anew(answer.producer_id, answer.producer_epoch)

    def _may_have_timed_out(self) -> bool:
        """Whether the deadline ended it: the broker has said so, or died when the transaction was overdue."""
        overdue_s = self._began_s + self.timeout_ms / 1000
        return str(self.producer_id) in self.world.timed_out or self.world.last_death_s >= overdue_s

    async def give_up(self, transaction: str) -> None:
        """Abort; where the fate of batches is unknown, go on in another epoch, or they could join the next one."""
        is_clear = not self.unacknowledged
        self.unacknowledged.clear()
        if self._announced:
            await self.end(transaction, commit=False)
        if not is_clear and not self.speaks_version_2:
            await self.claim(goes_on=True)


class TransactionalProducer(Transactor):
    """Writes transactions into all partitions of a topic: most are committed, some aborted, some left to their fate."""

    async def live(self, transactions: int) -> None:
        """Attempt so many transactions, also after having been fenced by a deadline."""
        while transactions:
            try:
                await self.claim()
                while transactions:
                    transactions -= 1
                    await self._transact()
                    await self.pause(0.1)
            except Refused as refused:
                self.note("fenced", error=refused.error)
                if self.random.random() < 0.3:
                    return

    async def _transact(self) -> None:
        transaction = self.begin()
        values: list[str] = []
        for _ in range(self.random.randint(1, 3)):
            for _ in range(self.random.randint(1, 3)):
                first, count = len(values), self.random.choice((1, 2, 3))
                some = [f"{transaction}/{number}" for number in range(first, first + count)]
                values += some
                self.add(self.random.randrange(self.partitions), some)
            self.note("part of", transaction=transaction, values=values)
            if self.random.random() < 0.1:
                # Some batches may be on their way, and will not be waited for.
                await self.deliver_some()
                await self.give_up(transaction)
                return
            await self.deliver_all()
            await self._dawdle()
        if self.random.random() < 0.3:
            await self.give_up(transaction)
        else:
            await self.end(transaction, commit=True)

    async def _dawdle(self) -> None:
        """Now and then be as slow as a process in a long collection of garbage: longer than the timeout, at times."""
        if self.random.random() < 0.1:
            self.world.fired["paused client"] += 1
            await asyncio.sleep(self.random.uniform(1.0, 8.0))
