"""What the broker does about transactions besides answering: commits decisions, counts, ends what takes too long.

The rules are those of `semel.core.transaction_rules`. Here is what they must not know: the journal that makes their
decisions durable, the alarm that rings when a transaction is overdue, and over which connection a request came.

In version 1 of the protocol a request does not say which transaction it means. One that was delayed on a connection
which its client has given up could end the client's next transaction, half done, or put offsets of the last one into
it. No client goes back to an older connection after it was heard over a newer one, so a request that comes over an
older one is such a straggler, and its connection is closed instead of being answered. A client for which this should
not hold connects anew, asks again, and is served. Clients talk to the coordinator of a group over another connection
than to that of their transactions, though both are here; so each has a count of its own.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, get_args

from semel.broker.deadlines import DUE_AGAIN_MS, Deadlines
from semel.broker.metrics import TransactionOutcome
from semel.core.entries import PartitionName, TransactionEnded
from semel.core.producer_room import NoRoom
from semel.core.steps import APPEND_PIECES, Steps, finish
from semel.core.transaction_rules import Claim, End

if TYPE_CHECKING:
    from semel.broker.broker import Broker

# What a connection is used for: to announce and end transactions, or to commit a group's offsets in them.
Talk = Literal["transaction", "offsets"]
TALKS: Final[tuple[Talk, ...]] = get_args(Talk)


class TransactionCoordinator:
    """The transactions of one broker."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        # The newest connection over which each producer's version 1 transactions were heard of; a connection does not
        # outlive the process, so none of this has to. The one heard longest ago comes first.
        self._newest_connections: dict[tuple[int, Talk], int] = {}
        # By when each producer's open transaction has to end, by the steady clock.
        self._due_ms: dict[int, int] = {}
        self._deadlines = Deadlines[int]()

    def begin(self) -> None:
        """The log was recovered: what is open has the time that was left of it, whatever the clock showed then."""
        broker = self._broker
        broker.alarm.watch(self._deadlines.next_ms, self.end_overdue)
        for producer_id, due_ms in broker.log.state.transactions.deadlines():
            latest_ms = broker.steady_ms() + broker.log.state.transactions.timeout_ms(producer_id)
            self._due_ms[producer_id] = min(due_ms, latest_ms)
            self._deadlines.note(producer_id, self._due_ms[producer_id])

    # -- requests -----------------------------------------------------------------------------------------------

    def claim(self, transactional_id: str, timeout_ms: int, supplied: tuple[int, int] | None) -> Claim:
        return finish(self.claim_in_steps(transactional_id, timeout_ms, supplied))

    def claim_in_steps(self, transactional_id: str, timeout_ms: int, supplied: tuple[int, int] | None) -> Steps[Claim]:
        broker = self._broker
        now_ms = broker.now_ms()

        def decide() -> Claim:
            rules = broker.log.state.transaction_rules
            return rules.decide_init(transactional_id, timeout_ms, supplied, self.new_producer_id, now_ms)

        claim = decide()
        prepared = None
        for entry in claim.entries:
            if isinstance(entry, TransactionEnded) and entry.place_count > broker.pace.unprepared_max:
                prepared = yield from broker.prepare_end(entry)
                # Others were served meanwhile.
                claim = decide()
        for entry in claim.entries:
            broker.commit(entry, prepared)
            if isinstance(entry, TransactionEnded):
                self._note_ended(entry, "fenced")
        if claim.entries:
            # Whatever is late from before is known by its epoch, and the new owner's connection may be the older one.
            for talk in TALKS:
                self._newest_connections.pop((claim.producer_id, talk), None)
        return claim

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[PartitionName],
        address: str | None = None,
    ) -> None:
        broker = self._broker
        now_ms = broker.now_ms()
        grew = broker.log.state.transaction_rules.decide_add_partitions(
            transactional_id, producer_id, producer_epoch, partitions, now_ms
        )
        if grew is not None:
            try:
                wanted = broker.log.check_producer_room(producer_id, grew.partitions, address)
            except NoRoom as refused:
                broker.no_room(refused)
                raise
            broker.commit(grew)
            broker.log.state.producer_room.charge(wanted, address, now_ms, broker.log.state.silence.horizon_ms)
            self.note_grown(producer_id)

    def add_group(self, transactional_id: str, producer_id: int, producer_epoch: int, group: str) -> None:
        broker = self._broker
        grew = broker.log.state.transaction_rules.decide_add_group(
            transactional_id, producer_id, producer_epoch, group, broker.now_ms()
        )
        if grew is not None:
            broker.commit(grew)
            self.note_grown(producer_id)

    def end(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        *,
        raises_epoch: bool,
        check_timely: Callable[[], None],
    ) -> Steps[End]:
        """End a transaction. `check_timely` breaks off where the one that was meant may have ended meanwhile."""
        broker = self._broker
        now_ms = broker.now_ms()

        def decide() -> End:
            check_timely()
            said = transactional_id, producer_id, producer_epoch, committed
            rules = broker.log.state.transaction_rules
            return rules.decide_end(*said, self.new_producer_id, now_ms, raises_epoch=raises_epoch)

        end = decide()
        prepared = None
        if end.entry is not None and end.entry.place_count > broker.pace.unprepared_max:
            prepared = yield from broker.prepare_end(end.entry)
            # Others were served meanwhile.
            end = decide()
        if end.entry is not None:
            broker.commit(end.entry, prepared)
            self._note_ended(end.entry, "committed" if committed else "aborted")
        return end

    def new_producer_id(self) -> int:
        """A producer id that nobody had. OSError, after it was counted, if the disk would not take it."""
        broker = self._broker
        try:
            return broker.log.new_producer_id(broker.now_ms())
        except OSError as refusal:
            broker.storage_error(refusal)
            raise

    def note_grown(self, producer_id: int) -> None:
        """Something takes part in this producer's transaction; if it is the first thing, time runs from now on."""
        if producer_id not in self._due_ms:
            due_ms = self._broker.steady_ms() + self._broker.log.state.transactions.timeout_ms(producer_id)
            self._due_ms[producer_id] = due_ms
            if self._deadlines.note(producer_id, due_ms):
                self._broker.alarm.look()

    def _note_ended(self, entry: TransactionEnded, outcome: TransactionOutcome) -> None:
        self._due_ms.pop(entry.producer_id, None)
        if entry.partitions or entry.groups:
            self._broker.metrics.ended_transactions[outcome] += 1

    # -- stragglers ---------------------------------------------------------------------------------------------

    def is_straggler(self, producer_id: int, connection: int, talk: Talk = "transaction") -> bool:
        """Whether a request of this producer comes over a connection that its client has given up."""
        return connection < self._newest_connections.get((producer_id, talk), 0)

    def note_heard(self, producer_id: int, connection: int, talk: Talk = "transaction") -> None:
        """The producer, found to be who it says, was heard over this connection."""
        newest = self._newest_connections
        newest.pop((producer_id, talk), None)
        newest[producer_id, talk] = connection
        if len(newest) > self._broker.limits.transactional_ids_max:
            del newest[next(iter(newest))]

    # -- time ---------------------------------------------------------------------------------------------------

    def end_overdue(self, steady_ms: int) -> None:
        """Abort what takes too long, in a new epoch."""
        overdue = []
        for producer_id in self._deadlines.due(steady_ms):
            self._deadlines.forget(producer_id)
            due_ms = self._due_ms.get(producer_id)
            if self._is_overdue(producer_id, steady_ms):
                overdue.append(producer_id)
                # Should it break off it is due again, and holds up nobody else until then.
                due_ms = steady_ms + DUE_AGAIN_MS
            # Else that of a later transaction than the one which was noted.
            self._deadlines.note(producer_id, due_ms)
        self._broker.turns.begin(self._time_out_all(overdue, steady_ms), self._broker.chores.note_end)

    def _time_out_all(self, producer_ids: list[int], steady_ms: int) -> Steps[None]:
        for producer_id in producer_ids:
            try:
                yield from self._time_out(producer_id, steady_ms)
            except Exception as error:
                self._broker.chores.note_end(error)
            yield APPEND_PIECES

    def _is_overdue(self, producer_id: int, steady_ms: int) -> bool:
        due_ms = self._due_ms.get(producer_id)
        return due_ms is not None and due_ms <= steady_ms

    def _time_out(self, producer_id: int, steady_ms: int) -> Steps[None]:
        # It may have ended, and another one begun, since it was found overdue.
        if not self._is_overdue(producer_id, steady_ms):
            return
        broker = self._broker
        now_ms = broker.now_ms()
        rules = broker.log.state.transaction_rules
        entry = rules.decide_timeout(producer_id, now_ms)
        prepared = None
        if entry.place_count > broker.pace.unprepared_max:
            prepared = yield from broker.log.prepare_end(entry)
            if not self._is_overdue(producer_id, steady_ms):
                return
            entry = rules.decide_timeout(producer_id, now_ms)
        broker.log.commit(entry, prepared)
        self._note_ended(entry, "timed_out")
        broker.events.tell(
            logging.WARNING,
            "transaction_timed_out",
            producer_id=producer_id,
            partitions=len(entry.partitions),
            groups=len(entry.groups),
        )
