"""The transaction coordinator: it commits the decisions of the rules, and aborts transactions after their timeout.

The rules are in `semel.log.core.transaction_rules`. This file has what the rules must not know: the journal that makes
their entries durable, the alarm for the deadlines of transactions, and the connections of requests.

In version 1 of the protocol a request does not say which transaction it means. A request that was delayed on a
connection that its client has given up could end the client's next transaction half-way, or add offsets of the last
transaction to the next. No client goes back to an older connection after it has used a newer one. So a request on an
older connection is a straggler: the broker closes the connection and does not answer. If a client does go back, it
reconnects, repeats the request, and is served. Clients use one connection for the coordinator of a group and another
one for the coordinator of transactions, even if both are the same broker; so the newest connection is noted for each of
the two.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final, Literal, TypeVar, get_args

from semel.log.broker.metrics import TransactionOutcome
from semel.log.broker.runtime import Runtime
from semel.log.core.entries import Entry, PartitionName, TransactionEnded
from semel.log.core.shares import NoShareLeft, Shares
from semel.log.core.transaction_rules import End, IdClaim
from semel.wire.steps import Steps, finish

D = TypeVar("D")

# The purposes of connections: to add partitions to transactions and end them, or to commit a group's offsets in them.
Talk = Literal["transaction", "offsets"]
TALKS: Final[tuple[Talk, ...]] = get_args(Talk)


class TransactionCoordinator:
    """The transactions of one broker."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._state = runtime.log.state
        # How many ids each address has put on record since the start; ids from before are charged to no address.
        self._ids = Shares(runtime.limits.transactional_ids_max, "transactional ids")
        # The newest connection of each producer with version 1 transactions, the least recently used first. It need not
        # be stored, because no connection outlives the process.
        self._newest_connections: dict[tuple[int, Talk], int] = {}
        # The deadline of each producer's open transaction, by the steady clock.
        self._due_ms: dict[int, int] = {}
        self._deadlines = runtime.alarm.deadlines(self._time_out)

    def begin(self) -> None:
        """The log was recovered: set the deadlines of the open transactions."""
        for producer_id, due_ms in self._state.transactions.deadlines():
            latest_ms = self._runtime.clock.steady_ms() + self._state.transactions.timeout_ms(producer_id)
            self._due_ms[producer_id] = min(due_ms, latest_ms)
            self._deadlines.note(producer_id, self._due_ms[producer_id])

    def _carry_out(
        self, decide: Callable[[], D], entries_of: Callable[[D], Iterable[Entry]], outcome: TransactionOutcome
    ) -> Steps[D]:
        """Commit the entries of the decision. If a transaction ends in many partitions, write the markers first, in
        steps. Other requests are served meanwhile, so then decide again.
        """
        decision, prepared = decide(), None
        for entry in entries_of(decision):
            if isinstance(entry, TransactionEnded) and entry.place_count > self._runtime.pace.unprepared_max:
                prepared = yield from self._runtime.prepare_end(entry)
                decision = decide()
                break
        for entry in entries_of(decision):
            self._runtime.commit(entry, prepared)
            if isinstance(entry, TransactionEnded):
                self._due_ms.pop(entry.producer_id, None)
                if entry.partitions or entry.groups:
                    self._runtime.metrics.ended_transactions[outcome] += 1
        return decision

    # -- requests -----------------------------------------------------------------------------------------------

    def claim(self, transactional_id: str, timeout_ms: int, supplied: tuple[int, int] | None) -> IdClaim:
        return finish(self.claim_in_steps(transactional_id, timeout_ms, supplied))

    def claim_in_steps(
        self, transactional_id: str, timeout_ms: int, supplied: tuple[int, int] | None, address: str | None = None
    ) -> Steps[IdClaim]:
        """Make the claimant the owner of a transactional id. A new id is charged to the claimant's `address`."""
        now_ms, new_producer_id = self._runtime.clock.now_ms(), self._runtime.new_producer_id
        horizon_ms = now_ms - self._runtime.limits.transactional_id_expiration_ms
        transactions = self._state.transactions
        is_new = transactions.named(transactional_id) is None
        if is_new:
            try:
                self._ids.check(1, len(transactions), address, horizon_ms)
            except NoShareLeft as refusal:
                self._runtime.producer_refused(refusal)
                raise

        def decide() -> IdClaim:
            return self._state.transaction_rules.decide_init(
                transactional_id, timeout_ms, supplied, new_producer_id, now_ms
            )

        claim = yield from self._carry_out(decide, lambda claim: claim.entries, "fenced")
        if is_new:
            self._ids.charge(1, address, now_ms, horizon_ms)
        for entry in claim.entries:
            if isinstance(entry, TransactionEnded) and entry.place_count:
                # Somebody has aborted it by a command, or the owner was started again before it had ended it.
                self._runtime.events.tell(
                    logging.WARNING,
                    "transaction_fenced",
                    transactional_id=transactional_id,
                    producer_id=entry.producer_id,
                    claimed_from=address or "",
                    partitions=len(entry.partitions),
                    groups=len(entry.groups),
                )
        if claim.entries:
            # Late requests of the former owner have an old epoch, and the new owner's connection may be the older one.
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
        now_ms = self._runtime.clock.now_ms()
        growth = self._state.transaction_rules.decide_add_partitions(
            transactional_id, producer_id, producer_epoch, partitions, now_ms
        )
        if growth is not None:
            try:
                new_states = self._runtime.log.state.check_producer_shares(producer_id, growth.partitions, address)
            except NoShareLeft as refusal:
                self._runtime.producer_refused(refusal)
                raise
            self._runtime.commit(growth)
            self._state.producer_shares.charge(new_states, address, now_ms, self._state.silence.horizon_ms)
            self.note_grown(producer_id)

    def add_group(self, transactional_id: str, producer_id: int, producer_epoch: int, group: str) -> None:
        now_ms = self._runtime.clock.now_ms()
        growth = self._state.transaction_rules.decide_add_group(
            transactional_id, producer_id, producer_epoch, group, now_ms
        )
        if growth is not None:
            self._runtime.commit(growth)
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
        """End a transaction. `check_timely` raises if the transaction that the request means may have ended before."""
        now_ms, new_producer_id = self._runtime.clock.now_ms(), self._runtime.new_producer_id

        def decide() -> End:
            check_timely()
            request = transactional_id, producer_id, producer_epoch, committed
            return self._state.transaction_rules.decide_end(
                *request, new_producer_id, now_ms, raises_epoch=raises_epoch
            )

        def entries(end: End) -> Iterable[Entry]:
            return () if end.entry is None else (end.entry,)

        return (yield from self._carry_out(decide, entries, "committed" if committed else "aborted"))

    def note_grown(self, producer_id: int) -> None:
        """A partition or group has joined this producer's transaction; if it is the first, set the deadline."""
        if producer_id not in self._due_ms:
            due_ms = self._runtime.clock.steady_ms() + self._state.transactions.timeout_ms(producer_id)
            self._due_ms[producer_id] = due_ms
            self._deadlines.note(producer_id, due_ms)

    # -- stragglers ---------------------------------------------------------------------------------------------

    def is_straggler(self, producer_id: int, connection: int, talk: Talk = "transaction") -> bool:
        """Whether this request of the producer came over a connection that its client has given up."""
        return connection < self._newest_connections.get((producer_id, talk), 0)

    def note_heard(self, producer_id: int, connection: int, talk: Talk = "transaction") -> None:
        """Note the connection of a request in which the producer has proved its epoch."""
        newest = self._newest_connections
        newest.pop((producer_id, talk), None)
        newest[producer_id, talk] = connection
        if len(newest) > self._runtime.limits.transactional_ids_max:
            del newest[next(iter(newest))]

    # -- time ---------------------------------------------------------------------------------------------------

    def _time_out(self, producer_id: int, steady_ms: int) -> Steps[None]:
        """Abort a transaction after its deadline, in a new epoch."""

        def decide() -> TransactionEnded | None:
            due_ms = self._due_ms.get(producer_id)
            if due_ms is None or due_ms > steady_ms:
                # The transaction has ended. If the producer began another, that one has its own deadline.
                self._deadlines.note(producer_id, due_ms)
                return None
            return self._state.transaction_rules.decide_timeout(producer_id, self._runtime.clock.now_ms())

        def entries(end: TransactionEnded | None) -> Iterable[Entry]:
            return () if end is None else (end,)

        end = yield from self._carry_out(decide, entries, "timed_out")
        if end is not None:
            self._runtime.events.tell(
                logging.WARNING,
                "transaction_timed_out",
                transactional_id=self._state.transactions.known(end.next_producer_id).transactional_id,
                producer_id=producer_id,
                partitions=len(end.partitions),
                groups=len(end.groups),
            )
