"""The rules of transactions: who may claim a transactional id, what joins a transaction, and how it ends.

Theory of operation
-------------------
A transactional id is a name that outlives processes. The process that claims it gets a producer id and an epoch; every
former owner has an older epoch and is fenced. That is the whole protection against zombies. A transaction is open from
the first partition or group that joins it until it ends. One entry ends it in all partitions and groups at once; so
there is no state between "open" and "ended", and a crash leaves nothing half done.

Clients speak two versions of the protocol:

* Version 1 announces every partition and group beforehand (AddPartitionsToTxn, AddOffsetsToTxn), and the epoch stays
  the same from one transaction to the next. A repeated EndTxn is recognised by how the last transaction ended. A
  request does not say which transaction it means. So only the connection tells a delayed request from a timely one: no
  client goes back to a connection that it has given up (`decide_end`).
* In version 2 the first batch or offset adds its partition or group, and every end raises the epoch. So the epoch of a
request says which transaction it means, and a repeated EndTxn has the epoch before the current one.

The tables `END_VERSION_1` and `END_VERSION_2` below say what EndTxn does.

Every open transaction has a deadline: the time at which it began plus its owner's timeout. After the deadline the
broker aborts the transaction in a new epoch (`decide_timeout`). That fences an owner that speaks version 1. An owner
that speaks version 2 gets the new epoch when it aborts, as after its own abort, and goes on, as with Apache Kafka.

`decide_...` changes nothing; the state, and how an entry changes it, is in `core.transactions`. This file must never
change any state.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from semel.log.core.entries import (
    PartitionName,
    StoredOffset,
    TransactionalIdClaimed,
    TransactionalIdsForgotten,
    TransactionalOffsets,
    TransactionEnded,
    TransactionGrew,
)
from semel.log.core.transactions import NO_EPOCH, NO_PRODUCER, Owner, State, Transactions
from semel.log.core.values import value
from semel.wire import refusals
from semel.wire.refusals import Refused

# The largest epoch, and the largest that a producer is given: the broker needs one more to fence that producer.
EPOCH_MAX: Final = 2**15 - 1
EPOCH_GIVEN_MAX: Final = EPOCH_MAX - 1

# How many ids one entry forgets: enough to keep the entries few, and each of them small.
FORGOTTEN_PER_ENTRY: Final = 1_000


class Ending(Enum):
    """The result of EndTxn."""

    ENDS = "ends"
    # An abort with no open transaction: the epoch rises all the same, so that requests still on their way are fenced.
    ENDS_NOTHING = "ends nothing"
    # The transaction ended before: the client gets the first answer again.
    REPEATED = "repeated"
    INVALID = "invalid"
    FENCED = "fenced"


_E, _N, _R, _I, _F = Ending.ENDS, Ending.ENDS_NOTHING, Ending.REPEATED, Ending.INVALID, Ending.FENCED

# (state, whether to commit) -> what happens; the epoch must be the current one.
END_VERSION_1: Final = {
    (State.EMPTY, False): _I,
    (State.EMPTY, True): _I,
    (State.ONGOING, False): _E,
    (State.ONGOING, True): _E,
    (State.COMPLETE_COMMIT, False): _I,
    (State.COMPLETE_COMMIT, True): _R,
    (State.COMPLETE_ABORT, False): _R,
    (State.COMPLETE_ABORT, True): _I,
}
# (state, whether to commit, whether the epoch is the one before the current one) -> what happens.
END_VERSION_2: Final = {
    (State.EMPTY, False, True): _F,
    (State.EMPTY, False, False): _N,
    (State.EMPTY, True, True): _F,
    (State.EMPTY, True, False): _I,
    (State.ONGOING, False, True): _F,
    (State.ONGOING, False, False): _E,
    (State.ONGOING, True, True): _F,
    (State.ONGOING, True, False): _E,
    (State.COMPLETE_COMMIT, False, True): _I,
    (State.COMPLETE_COMMIT, False, False): _N,
    (State.COMPLETE_COMMIT, True, True): _R,
    (State.COMPLETE_COMMIT, True, False): _I,
    (State.COMPLETE_ABORT, False, True): _R,
    (State.COMPLETE_ABORT, False, False): _N,
    (State.COMPLETE_ABORT, True, True): _I,
    (State.COMPLETE_ABORT, True, False): _I,
}


class IdClaim(NamedTuple):
    """The result of claiming a transactional id: the entries to commit, in this order, and the owner's id and epoch."""

    entries: tuple[TransactionEnded | TransactionalIdClaimed, ...]
    producer_id: int
    producer_epoch: int


class End(NamedTuple):
    """The entry that ends a transaction, None for a repeated EndTxn, and the id and epoch the owner goes on with."""

    entry: TransactionEnded | None
    producer_id: int
    producer_epoch: int


@value
class TransactionBounds:
    """The limits on transactional ids and transactions."""

    ids_max: int = 100_000
    id_bytes_max: int = 1_024
    open_max: int = 10_000
    partitions_max: int = 3_000
    open_partitions_max: int = 200_000
    open_groups_max: int = 4_000
    timeout_ms_max: int = 900_000


TRANSACTION_BOUNDS: Final = TransactionBounds()


class TransactionRules:
    """Decides about requests, from the transactions that are known and their limits."""

    def __init__(self, known: Transactions, bounds: TransactionBounds = TRANSACTION_BOUNDS) -> None:
        self._known = known
        self.bounds = bounds

    # -- claiming -----------------------------------------------------------------------------------------------

    def decide_init(
        self,
        transactional_id: str,
        timeout_ms: int,
        supplied: tuple[int, int] | None,
        new_producer_id: Callable[[], int],
        now_ms: int,
    ) -> IdClaim:
        """Give a transactional id to the claimant. `supplied` is the claimant's (producer id, epoch), if it has any.

        A claimant that supplies none is a new process: the former owner is fenced. A claimant that supplies the current
        pair goes on after an error. A claimant that supplies the last pair repeats its request, because the answer was
        lost.
        """
        self._check_id(transactional_id)
        if not 0 < timeout_ms <= self.bounds.timeout_ms_max:
            raise Refused(
                refusals.INVALID_TRANSACTION_TIMEOUT,
                f"a transaction may take 1 to {self.bounds.timeout_ms_max} ms (transaction_timeout_ms_max), "
                f"not {timeout_ms}",
            )
        owner = self._known.named(transactional_id)
        if owner is None:
            if len(self._known) >= self.bounds.ids_max:
                raise Refused(
                    refusals.POLICY_VIOLATION,
                    f"there are {self.bounds.ids_max} transactional ids, no more are allowed (transactional_ids_max)",
                )
            return _claim((), transactional_id, new_producer_id(), 0, NO_PRODUCER, NO_EPOCH, timeout_ms, now_ms)
        producer_id, epoch = owner.producer_id, owner.producer_epoch
        if supplied is not None and (supplied != (producer_id, epoch) or epoch > EPOCH_GIVEN_MAX):
            if supplied == (owner.last_producer_id, owner.last_epoch) and not self._known.is_open(producer_id):
                return IdClaim((), producer_id, epoch)
            raise Refused(refusals.PRODUCER_FENCED, f"fenced (epoch {supplied[1]}, current {epoch})")
        is_open = self._known.is_open(producer_id)
        fence = (self._fence(owner, now_ms, for_successor=supplied is None),) if is_open else ()
        next_epoch = epoch + 1
        last = (producer_id, epoch) if supplied is not None else (NO_PRODUCER, NO_EPOCH)
        if next_epoch > EPOCH_GIVEN_MAX or self._known.is_doubted(producer_id):
            producer_id, next_epoch = new_producer_id(), 0
        return _claim(fence, transactional_id, producer_id, next_epoch, *last, timeout_ms, now_ms)

    def _check_id(self, transactional_id: str) -> None:
        if not transactional_id:
            raise Refused(refusals.INVALID_REQUEST, "a transactional id must not be empty")
        if len(transactional_id.encode()) > self.bounds.id_bytes_max:
            raise Refused(
                refusals.INVALID_REQUEST,
                f"a transactional id has at most {self.bounds.id_bytes_max} bytes (transactional_id_bytes_max)",
            )

    def _fence(self, owner: Owner, now_ms: int, *, for_successor: bool) -> TransactionEnded:
        """The abort of an open transaction in a new epoch, so that its requests still on their way are refused."""
        epoch = min(owner.producer_epoch + 1, EPOCH_MAX)
        # Never hand out the last epoch: the broker needs an epoch above it to abort its transaction.
        fenced = for_successor or epoch > EPOCH_GIVEN_MAX
        return self._end(owner, False, epoch, (owner.producer_id, epoch), now_ms, fenced=fenced)

    # -- growing ------------------------------------------------------------------------------------------------

    def decide_add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[PartitionName],
        now_ms: int,
    ) -> TransactionGrew | None:
        """The entry that adds these partitions to the transaction; None if all of them are part of it already."""
        owner = self._owned(transactional_id, producer_id, producer_epoch)
        transaction = self._known.opened(producer_id)
        members: dict[PartitionName, None] = {} if transaction is None else transaction.partitions
        new = tuple(name for name in dict.fromkeys(partitions) if name not in members)
        if transaction is not None and not new:
            return None
        self._check_bounds(owner, len(new))
        return TransactionGrew(producer_id, producer_epoch, new, (), now_ms)

    def decide_add_group(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group: str, now_ms: int
    ) -> TransactionGrew | None:
        """The entry that adds this group to the transaction; None if it is part of it already."""
        owner = self._owned(transactional_id, producer_id, producer_epoch)
        transaction = self._known.opened(producer_id)
        if transaction is not None and group in transaction.groups:
            return None
        self._check_group(group)
        self._check_bounds(owner, 1, groups=1)
        return TransactionGrew(producer_id, producer_epoch, (), (group,), now_ms)

    def decide_offsets(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        group: str,
        offsets: tuple[StoredOffset, ...],
        now_ms: int,
        *,
        joins: bool,
    ) -> TransactionalOffsets:
        """The entry that adds offsets to the transaction. `joins`: the request adds the group as well (version 2)."""
        owner = self._owned(transactional_id, producer_id, producer_epoch)
        transaction = self._known.opened(producer_id)
        if transaction is None or group not in transaction.groups:
            if not joins:
                raise Refused(refusals.INVALID_TXN_STATE, f"group '{group}' takes no part in an open transaction")
            self._check_group(group)
            self._check_bounds(owner, 1, groups=1)
        return TransactionalOffsets(producer_id, producer_epoch, group, offsets, now_ms)

    def missing_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[PartitionName]
    ) -> set[PartitionName]:
        """Those of these partitions that are not part of the open transaction of this producer."""
        self._owned(transactional_id, producer_id, producer_epoch)
        transaction = self._known.opened(producer_id)
        members: dict[PartitionName, None] = {} if transaction is None else transaction.partitions
        return {name for name in partitions if name not in members}

    def check_batch(
        self,
        producer_id: int,
        producer_epoch: int,
        partition: PartitionName,
        *,
        joins: bool,
        missing_error: int = refusals.INVALID_TXN_STATE,
    ) -> None:
        """Refuse a transactional batch that is part of no open transaction. `joins`: sending it adds the partition."""
        owner = self._known.owner(producer_id)
        if owner is None:
            raise Refused(refusals.INVALID_PRODUCER_ID_MAPPING, f"no transactional id has producer id {producer_id}")
        if producer_epoch != owner.producer_epoch or producer_epoch > EPOCH_GIVEN_MAX:
            raise Refused(
                refusals.INVALID_PRODUCER_EPOCH, f"fenced (epoch {producer_epoch}, current {owner.producer_epoch})"
            )
        transaction = self._known.opened(producer_id)
        if transaction is not None and partition in transaction.partitions:
            return
        if not joins:
            raise Refused(
                missing_error,
                "the producer has no transaction open here: it has begun none, or has ended it, or it took too long",
            )
        self._check_bounds(owner, 1)

    def _check_group(self, group: str) -> None:
        if len(group.encode()) > self.bounds.id_bytes_max:
            raise Refused(
                refusals.INVALID_GROUP_ID,
                f"a group that takes part in transactions has a name of at most {self.bounds.id_bytes_max} bytes",
            )

    def _check_bounds(self, owner: Owner, more: int, groups: int = 0) -> None:
        """Refused unless so many partitions and groups may join. `groups` says how many of them are groups."""
        transaction = self._known.opened(owner.producer_id)
        if transaction is None and self._known.open_count >= self.bounds.open_max:
            raise Refused(
                refusals.POLICY_VIOLATION,
                f"{self.bounds.open_max} transactions are open, no more are allowed (open_transactions_max)",
            )
        size = more + (0 if transaction is None else transaction.part_count)
        if self._known.part_count + more > self.bounds.open_partitions_max:
            raise Refused(
                refusals.POLICY_VIOLATION,
                f"open transactions have {self.bounds.open_partitions_max} partitions and groups, no more are allowed "
                "(open_transaction_partitions_max)",
            )
        if self._known.group_count + groups > self.bounds.open_groups_max:
            raise Refused(
                refusals.POLICY_VIOLATION,
                f"open transactions have {self.bounds.open_groups_max} groups, no more are allowed "
                "(open_transaction_groups_max)",
            )
        if size > self.bounds.partitions_max:
            raise Refused(
                refusals.POLICY_VIOLATION,
                f"a transaction has {self.bounds.partitions_max} partitions and groups, no more are allowed "
                "(transaction_partitions_max)",
            )

    # -- ending -------------------------------------------------------------------------------------------------

    def decide_end(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        new_producer_id: Callable[[], int],
        now_ms: int,
        *,
        raises_epoch: bool,
    ) -> End:
        """The result of EndTxn. `raises_epoch`: the client speaks version 2, and gets its next id and epoch."""
        self._check_id(transactional_id)
        owner = self._known.named(transactional_id)
        current = None if owner is None else (owner.producer_id, owner.producer_epoch)
        sender = (producer_id, producer_epoch)
        repeats = owner is not None and raises_epoch and sender == (owner.last_producer_id, owner.last_epoch)
        if owner is None or (producer_id != owner.producer_id and not repeats):
            raise _not_mapped(transactional_id, producer_id)
        state = self._known.state_of(owner)
        if (sender != current and not repeats) or producer_epoch > EPOCH_GIVEN_MAX:
            ending = Ending.FENCED
        elif raises_epoch:
            ending = END_VERSION_2[state, committed, repeats]
        else:
            ending = END_VERSION_1[state, committed]
        if ending is Ending.FENCED:
            raise _fenced(owner, producer_epoch)
        if ending is Ending.INVALID:
            what = "commit" if committed else "abort"
            raise Refused(refusals.INVALID_TXN_STATE, f"the producer has no transaction to {what} ({state.shown})")
        if ending is Ending.REPEATED:
            return End(None, owner.producer_id, owner.producer_epoch)
        if not raises_epoch:
            return End(self._end(owner, committed, producer_epoch, sender, now_ms), *sender)
        next_epoch = producer_epoch + 1
        goes_on = (new_producer_id(), 0) if next_epoch > EPOCH_GIVEN_MAX else (producer_id, next_epoch)
        return End(self._end(owner, committed, next_epoch, goes_on, now_ms), *goes_on)

    def _end(
        self,
        owner: Owner,
        committed: bool,
        marker_epoch: int,
        goes_on: tuple[int, int],
        now_ms: int,
        *,
        fenced: bool = False,
    ) -> TransactionEnded:
        transaction = self._known.opened(owner.producer_id)
        partitions = () if transaction is None else tuple(transaction.partitions)
        groups = () if transaction is None else tuple(transaction.groups)
        return TransactionEnded(
            owner.producer_id, marker_epoch, *goes_on, committed, partitions, groups, now_ms, fenced
        )

    # -- time ---------------------------------------------------------------------------------------------------

    def decide_timeout(self, producer_id: int, now_ms: int) -> TransactionEnded:
        """The entry that aborts a transaction whose deadline has passed."""
        return self._fence(self._known.known(producer_id), now_ms, for_successor=False)

    def silent(self, now_ms: int, expiration_ms: int) -> Iterator[TransactionalIdsForgotten]:
        """The entries that forget the transactional ids which were silent for this long and have no open
        transaction.
        """
        for names in self.parts():
            entry = self.decide_forget(names, now_ms, expiration_ms)
            if entry is not None:
                yield entry

    def parts(self) -> list[list[str]]:
        """All transactional ids, in parts that may be looked at in one turn: there may be a hundred thousand."""
        ids = [owner.transactional_id for owner in self._known.owners()]
        return [ids[first : first + FORGOTTEN_PER_ENTRY] for first in range(0, len(ids), FORGOTTEN_PER_ENTRY)]

    def decide_forget(self, names: Iterable[str], now_ms: int, expiration_ms: int) -> TransactionalIdsForgotten | None:
        """The entry that forgets those of these ids; None if there are none."""
        silent = []
        for name in names:
            owner = self._known.named(name)
            is_silent = owner is not None and owner.changed_at_ms <= now_ms - expiration_ms
            if owner is not None and is_silent and not self._known.is_open(owner.producer_id):
                silent.append(name)
        return TransactionalIdsForgotten(tuple(silent)) if silent else None

    def _owned(self, transactional_id: str, producer_id: int, producer_epoch: int) -> Owner:
        """The owner of a transactional id; refused unless that is this producer in this epoch."""
        self._check_id(transactional_id)
        owner = self._known.named(transactional_id)
        if owner is None or owner.producer_id != producer_id:
            raise _not_mapped(transactional_id, producer_id)
        if owner.producer_epoch != producer_epoch or producer_epoch > EPOCH_GIVEN_MAX:
            raise _fenced(owner, producer_epoch)
        return owner


def _claim(
    before: tuple[TransactionEnded, ...],
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    last_producer_id: int,
    last_epoch: int,
    timeout_ms: int,
    now_ms: int,
) -> IdClaim:
    claim = TransactionalIdClaimed(
        transactional_id, producer_id, producer_epoch, last_producer_id, last_epoch, timeout_ms, now_ms
    )
    return IdClaim((*before, claim), producer_id, producer_epoch)


def _not_mapped(transactional_id: str, producer_id: int) -> Refused:
    return Refused(refusals.INVALID_PRODUCER_ID_MAPPING, f"producer id {producer_id} does not own '{transactional_id}'")


def _fenced(owner: Owner, producer_epoch: int) -> Refused:
    return Refused(refusals.PRODUCER_FENCED, f"fenced (epoch {producer_epoch}, current {owner.producer_epoch})")
