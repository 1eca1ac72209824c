"""The state of a shard in the database: which relay has it, which batch is next, and which messages are in it.

A batch is a number and a list of rows. The relay stores both in the shard's row before it sends anything, so that after
a crash the next relay finds the same batch. Numbers have no gaps: each is one more than the last, under the lock of
that row. A shard has at most one batch that is not known to be in the log: the batch at hand. When it is known to be
there, its rows are deleted in the transaction that makes the next batch from the rows that are left, in the order of
their numbers. The next batch is never limited to numbers above the last one: a transaction that commits late has rows
with lower numbers. Every change of a batch first checks that the shard still belongs to this relay.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal,
    not_,
    or_,
    select,
    update,
)

from semel.database.dialects import dialect_of, per_dialect
from semel.outbox.errors import OutOfStep, RelayFenced, RelayRefused
from semel.outbox.rows import ADDED_AT_MS, BYTES, COLUMNS, ROW_BYTES_MAX, TOO_LARGE, UnreadableRow, read
from semel.outbox.tables import messages, quarantine, relays, shards
from semel.publish import Record

REASON_CHARACTERS_MAX: Final = 500
# No transaction of a log should be larger, and a database takes no number of more than 64 bits.
BATCH_ROWS_MAX: Final = 1_000_000
# How much of a value an error shows.
_SHOWN_CHARACTERS_MAX: Final = 60
NOTHING: Final = -1
# What to do if the log and the database do not agree.
BEGIN_AGAIN: Final = "Going on would lose messages or send them twice; `semel outbox renew` begins again"


class Owner(NamedTuple):
    """The relay that has a shard: the shard's number, the number of shards, and the relay's life."""

    shard: int
    shards: int
    life: str


class Standing(NamedTuple):
    """The last batch that was made, and the numbers of its messages; None once they are known to be in the log."""

    last_batch: int
    at_hand: Sequence[int] | None

    @property
    def done_batch(self) -> int:
        """The last batch that is known to be in the log."""
        return self.last_batch if self.at_hand is None else self.last_batch - 1


class Batch(NamedTuple):
    """The messages that are published together, in this order."""

    number: int
    # The numbers of its messages, and their records.
    numbers: Sequence[int]
    records: Sequence[Record]
    # The rows that were put aside when the batch was made, because they cannot be records.
    unreadable: Sequence[UnreadableRow] = ()


class Size(NamedTuple):
    """How much a batch may hold; one message always fits."""

    rows_max: int
    bytes_max: int


def lease(
    connection: Connection,
    life: str,
    owner_name: str,
    is_dead: Callable[[str], bool],
    now_ms: int,
    until_ms: int,
) -> str | None:
    """Take all shards with their lease, and return None; or the name of the relay that has the lease now. `is_dead`
    knows of some relays, by their name, that they have died."""
    # The rows are locked in one order, so that of two relays that stand by one gets all.
    rows = connection.execute(select(shards).order_by(shards.c.shard).with_for_update()).all()
    for row in rows:
        has_lease = row.owner != life and (row.lease_until_ms or 0) > now_ms
        if has_lease and not is_dead(row.owner_name):
            return str(row.owner_name)
    mine = {"owner": life, "owner_name": owner_name, "owned_since_ms": now_ms, "lease_until_ms": until_ms}
    connection.execute(update(shards).values(mine))
    return None


def prolong(connection: Connection, life: str, until_ms: int | None) -> bool:
    """Prolong the lease of the shards that this relay has, if it has any; None gives it up. A relay that was fenced
    learns that by its next batch."""
    mine = update(shards).where(shards.c.owner == life)
    return connection.execute(mine.values(lease_until_ms=until_ms)).rowcount > 0


def oldest_ms(connection: Connection) -> int | None:
    """When the oldest message was added that a relay has to publish; those that wait for a person do not count."""
    added_at_ms = func.min(ADDED_AT_MS[dialect_of(connection).name])
    oldest: int | None = connection.scalar(select(added_at_ms).select_from(messages).where(not_(is_held_up())))
    return oldest


def take_over(connection: Connection, owner: Owner, owner_name: str, now_ms: int) -> None:
    """Take the shard: its former owner can no longer change it."""
    connection.execute(
        update(shards)
        .where(shards.c.shard == owner.shard)
        .values(owner=owner.life, owner_name=owner_name, owned_since_ms=now_ms)
    )
    # The number of shards is read under the lock of the shard, which every change of that number takes. If it has
    # changed, the shard has other aggregates, and two relays would publish the messages of one aggregate.
    known = connection.scalar(select(relays.c.shards))
    if known != owner.shards:
        raise RelayRefused(
            f"this relay began when the outbox had {owner.shards} shards, and it has {known} now: begin once more"
        )


def standing(connection: Connection, owner: Owner) -> Standing:
    """The state of the shard. Its row is locked, and does not change until the transaction ends."""
    locked = _LOCKED[dialect_of(connection).name]
    row = _of_this_life(owner, connection.execute(locked, {"of_shard": owner.shard}).first())
    if not isinstance(row.last_batch, int) or row.last_batch < NOTHING:
        raise _changed(owner.shard, "last_batch", row.last_batch)
    return Standing(row.last_batch, None if row.at_hand is None else numbers_of(owner.shard, row.at_hand))


def is_waiting(connection: Connection, owner: Owner) -> bool:
    """Whether there is a message for a new batch. This locks nothing."""
    return bool(_of_this_life(owner, connection.execute(_LOOK, _of(owner)).first()).is_waiting)


def advance(
    connection: Connection, owner: Owner, published: int | None, in_log: int, size: Size, now_ms: int
) -> Batch | None:
    """Note that a batch is in the log, and return the next one: the one at hand, or a new one of waiting messages.

    `in_log` is the last batch that is known to be in the log. After a failover to another server, the database may have
    lost it; then a new batch would get its number again and count as published. Rows that cannot be records go into the
    quarantine, and the batch ends before the first of them: what follows of its aggregate has to wait.
    """
    known = standing(connection, owner)
    check_not_older(owner, known, in_log)
    if known.at_hand is not None:
        if published != known.last_batch:
            batch = _content(connection, known.last_batch, known.at_hand)
            if not batch.unreadable:
                return batch
            if in_log >= batch.number:
                # It is published already, whatever has been written into its rows since.
                return batch._replace(unreadable=())
            _note(connection, owner, batch.number, batch.numbers)
            _put_aside(connection, batch.unreadable, now_ms)
            return batch
        delete_messages(connection, known.at_hand)
    made = _made(connection, owner, known.last_batch + 1, size)
    if made is not None:
        _note(connection, owner, made.number, made.numbers)
        _put_aside(connection, made.unreadable, now_ms)
        return made
    if known.at_hand is not None:
        _note(connection, owner, known.last_batch, None)
    return None


def put_back(connection: Connection, owner: Owner, batch: int, first_number: int) -> None:
    """Take the messages from this one on out of the batch, to wait again. The batch was refused, so none is in the
    log."""
    at_hand = _at_hand(connection, owner, batch)
    _note(connection, owner, batch, [number for number in at_hand if number < first_number])


def put_aside(connection: Connection, owner: Owner, batch: int, refused: int, reason: str, now_ms: int) -> None:
    """Move the message from the batch into the quarantine. The batch stays, without it."""
    at_hand = _at_hand(connection, owner, batch)
    if refused not in at_hand:
        # Done before, by a transaction whose commit was not acknowledged.
        return
    _note(connection, owner, batch, [number for number in at_hand if number != refused])
    _put_aside(connection, [UnreadableRow(refused, reason)], now_ms)


def delete_messages(connection: Connection, numbers: Sequence[int]) -> None:
    """Delete messages that are known to be in the log, or that a person has dropped."""
    connection.execute(delete(messages).where(_is_among(connection, numbers)))


def numbers_of(shard: int, text: str) -> Sequence[int]:
    """The numbers of the messages of the batch at hand, from the text in the shard's row."""
    try:
        runs = [(int(first), int(last)) for first, last in json.loads(text)]
    except (ValueError, TypeError, RecursionError):
        raise _changed(shard, "at_hand", text) from None
    if sum(last - first + 1 for first, last in runs) > BATCH_ROWS_MAX:
        raise _changed(shard, "at_hand", text)
    return [number for first, last in runs for number in range(first, last + 1)]


def check_not_older(owner: Owner, known: Standing, in_log: int) -> None:
    """Refuse a database that does not know a batch that is in the log."""
    if in_log > known.last_batch:
        raise OutOfStep(
            f"batch {in_log} of shard {owner.shard} is in the log, and the database knows of none after "
            f"{known.last_batch}: it is older than the log, as after a restore. {BEGIN_AGAIN}"
        )


def _changed(shard: int, column: str, value: object) -> OutOfStep:
    return OutOfStep(
        f"column {column} of shard {shard} in {shards.name} cannot be read ({str(value)[:_SHOWN_CHARACTERS_MAX]!r}): "
        f"somebody has changed the tables. {BEGIN_AGAIN}"
    )


def _put_aside(connection: Connection, refused: Sequence[UnreadableRow], now_ms: int) -> None:
    """Into the quarantine, with their aggregates; but not a message that is gone, or there already."""
    for number, reason in refused:
        row = select(
            *(messages.c.number, messages.c.aggregate),
            *(literal(" ".join(reason.split())[:REASON_CHARACTERS_MAX]), literal(now_ms)),
        ).where(messages.c.number == number, not_(exists().where(quarantine.c.number == number)))
        connection.execute(insert(quarantine).from_select(quarantine.c.keys(), row))


def _at_hand(connection: Connection, owner: Owner, batch: int) -> Sequence[int]:
    known = standing(connection, owner)
    if known.at_hand is None or batch != known.last_batch:
        raise OutOfStep(f"batch {batch} of shard {owner.shard} is not the one at hand: somebody has changed the tables")
    return known.at_hand


def _note(connection: Connection, owner: Owner, batch: int, at_hand: Sequence[int] | None) -> None:
    text = None if at_hand is None else _runs_of(at_hand)
    connection.execute(_NOTE, {"of_shard": owner.shard, "of_batch": batch, "of_numbers": text})


def _made(connection: Connection, owner: Owner, batch: int, size: Size) -> Batch | None:
    """As many waiting messages as fit into one batch."""
    dialect = dialect_of(connection)
    if dialect.in_order is not None:
        connection.execute(dialect.in_order)
    first = {**_of(owner), "rows_max": size.rows_max}
    rows, rows_bytes = connection.execute(_SIZE_OF_FIRST, first).one()
    if not rows:
        return None
    if rows_bytes > size.bytes_max:
        bytes_of_rows = connection.scalars(_BYTES_OF_FIRST, first).all()
        if bytes_of_rows[0] > ROW_BYTES_MAX:
            [number] = connection.scalars(_TOO_LARGE_FIRST, first)
            return Batch(batch, [], [], [UnreadableRow(number, TOO_LARGE)])
        rows = _fitting(bytes_of_rows, size.bytes_max)
    # Not more rows than were counted: since then, others may have committed rows with lower numbers.
    return Batch(batch, *read(connection.execute(_FIRST[dialect.name], {**first, "rows_max": rows})))


def _fitting(bytes_of_rows: Sequence[int], bytes_max: int) -> int:
    """How many of the rows fit: one at least."""
    fitting = bisect_right(list(accumulate(bytes_of_rows)), bytes_max)
    return max(fitting, 1)


def _content(connection: Connection, batch: int, numbers: Sequence[int]) -> Batch:
    content = select(*COLUMNS[dialect_of(connection).name]).where(_is_among(connection, numbers))
    return Batch(batch, *read(connection.execute(content.order_by(messages.c.number))))


def _runs_of(numbers: Sequence[int]) -> str:
    """The numbers as runs, in order, because mostly a few long runs contain them all."""
    if _is_one_run(numbers):
        return json.dumps([[numbers[0], numbers[-1]]])
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return json.dumps(runs)


def _is_among(connection: Connection, numbers: Sequence[int]) -> ColumnElement[bool]:
    """As a range if the numbers are one, because that is faster; otherwise as one parameter, because a statement can
    have only a limited number of them."""
    if _is_one_run(numbers):
        return messages.c.number.between(numbers[0], numbers[-1])
    return dialect_of(connection).is_among(messages.c.number, numbers)


def _is_one_run(numbers: Sequence[int]) -> bool:
    """Whether none is missing between the first and the last; they are in order."""
    return bool(numbers) and numbers[-1] - numbers[0] == len(numbers) - 1


def _of(owner: Owner) -> dict[str, int]:
    return {"of_shard": owner.shard, "of_shards": owner.shards}


def _of_this_life(owner: Owner, row: Row[Any] | None) -> Row[Any]:
    """The shard's row, if it still belongs to this owner."""
    if row is None:
        raise OutOfStep(f"shard {owner.shard} is gone from the database: somebody has emptied the outbox's tables")
    if row.owner != owner.life:
        raise RelayFenced(owner.shard, row.owner_name)
    return row


def is_held_up() -> ColumnElement[bool]:
    """Whether a message is in the quarantine, or another one of its aggregate is. What is in the quarantine holds
    nothing up if somebody has deleted its message."""
    refused = messages.alias()
    there = or_(quarantine.c.number == messages.c.number, quarantine.c.aggregate == messages.c.aggregate)
    is_message = exists().where(refused.c.number == quarantine.c.number)
    # The database evaluates the first half once for a statement, and nearly always nothing more.
    return and_(exists(select(quarantine.c.number)), exists(select(quarantine.c.number).where(there, is_message)))


_WAITS: Final = and_(
    # Another program may have written a bucket below 0, whose remainder is that of no shard.
    func.abs(messages.c.bucket % bindparam("of_shards", type_=BigInteger)) == bindparam("of_shard"),
    not_(is_held_up()),
)
_BYTES_OF_FIRST: Final = (
    select(BYTES.label("bytes")).where(_WAITS).order_by(messages.c.number).limit(bindparam("rows_max"))
)
_EACH: Final = _BYTES_OF_FIRST.subquery()
_SIZE_OF_FIRST: Final = select(func.count(), func.coalesce(func.sum(_EACH.c.bytes), 0)).select_from(_EACH)
_FIRST: Final = {
    dialect: select(*columns).where(_WAITS).order_by(messages.c.number).limit(bindparam("rows_max"))
    for dialect, columns in COLUMNS.items()
}
_TOO_LARGE_FIRST: Final = (
    select(messages.c.number).where(_WAITS, BYTES > ROW_BYTES_MAX).order_by(messages.c.number).limit(1)
)
_OF_SHARD: Final = shards.c.shard == bindparam("of_shard")
# This uses the index, too, which skips deleted rows that are not cleaned up yet faster than the table does.
_ONE: Final = select(messages.c.number).where(_WAITS).order_by(messages.c.number).limit(1).scalar_subquery()
_LOOK: Final = select(shards.c.owner, shards.c.owner_name, _ONE.is_not(None).label("is_waiting")).where(_OF_SHARD)
# A database that may lose its last commits in a crash, while their batch is in the log, commits this one durably, and
# with it those of the messages in the batch.
_LOCKED: Final = per_dialect(
    lambda dialect: (
        select(shards, *(() if dialect.durably is None else (dialect.durably,))).where(_OF_SHARD).with_for_update()
    )
)
_NOTE: Final = update(shards).where(_OF_SHARD).values(last_batch=bindparam("of_batch"), at_hand=bindparam("of_numbers"))
