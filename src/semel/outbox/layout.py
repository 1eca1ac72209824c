"""The layout of an outbox: its name and number of shards, as its first relay has set them, and how far each shard is.

A message has its shard by its hash, so another number of shards moves aggregates between shards. That is safe when no
batch is at hand: the messages of every batch are in the log then, and the waiting ones have no shard yet. So the relay
that changes the number takes all shards over first and settles their batches; see `relay.py`. The rows of shards that
are not used any more stay: their publishers have come to some number, and would go on from there.
"""

import secrets
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from semel.outbox.errors import OutOfStep, RelayFenced, RelayRefused, Unsettled
from semel.outbox.ledger import NOTHING, delete_messages, is_held_up, numbers_of
from semel.outbox.tables import messages, quarantine, relays, shards

NAME_DEFAULT: Final = "outbox"
# Each is a thread of the relay, a connection to the database and some to the brokers.
SHARDS_MAX: Final = 64
_RANDOM_BYTES: Final = 4
# The advisory lock of a relay that looks for the name: the first of the two numbers is semel's.
_LOCK: Final = (1936026981, 2)


class Layout(NamedTuple):
    """Under which name an outbox is relayed, and in how many shards."""

    name: str
    random: str
    shards: int

    def publisher_name(self, shard: int) -> str:
        return f"{self.name}-{self.random}-{shard}"


def settled(connection: Connection, name: str | None, count: int | None) -> Layout:
    """What the database has; the first time, what was asked for. Another number of shards than that is for `change`."""
    if connection.dialect.name == "postgresql":
        # If two relays begin as the first, the second has to find what the other did. On SQLite there is one writer.
        connection.execute(select(func.pg_advisory_xact_lock(*_LOCK)))
    row = connection.execute(select(relays)).first()
    if row is None:
        made = Layout(name or NAME_DEFAULT, secrets.token_hex(_RANDOM_BYTES), count or 1)
        connection.execute(insert(relays), made._asdict())
        _make_shards(connection, made.shards)
        return made
    if name is not None and name != row.name:
        raise RelayRefused(
            f"this outbox is relayed under the name {row.name!r}, and its place in the log is known by that: leave the "
            f"name {name!r} out"
        )
    return Layout(row.name, row.random, row.shards)


def change(connection: Connection, count: int, owners: Mapping[int, str]) -> None:
    """Have `count` shards from now on. `owners` are the relays that have taken over and settled the old ones."""
    for row in connection.execute(select(shards).order_by(shards.c.shard).with_for_update()):
        if row.shard in owners and row.owner != owners[row.shard]:
            raise RelayFenced(row.shard, row.owner_name)
        if row.at_hand is not None:
            raise OutOfStep(f"batch {row.last_batch} of shard {row.shard} is at hand: its aggregates cannot be moved")
    connection.execute(update(relays).values(shards=count))
    _make_shards(connection, count)


class AtHand(StrEnum):
    """What to do with a batch that may be in the log or not."""

    SEND = "send"
    DROP = "drop"


def renew(connection: Connection, at_hand: AtHand | None = None) -> None:
    """Forget the log: the next relay begins with a new publisher, at 0. What waits goes on waiting."""
    for row in connection.execute(select(shards).order_by(shards.c.shard).with_for_update()):
        if row.at_hand is None:
            continue
        if at_hand is None:
            raise Unsettled(
                f"batch {row.last_batch} of shard {row.shard} may be in the log or not: look there, and say whether "
                "its messages are to be sent (again), or dropped"
            )
        if at_hand is AtHand.DROP:
            delete_messages(connection, numbers_of(row.at_hand))
    for table in (shards, relays):
        connection.execute(delete(table))


def _make_shards(connection: Connection, count: int) -> None:
    known = set(connection.scalars(select(shards.c.shard)))
    for shard in range(count):
        if shard not in known:
            connection.execute(insert(shards), {"shard": shard, "last_batch": NOTHING})


# -- how far it is -----------------------------------------------------------------------------------------------------


class ShardStatus(NamedTuple):
    """How far one shard has come, and which relay has it."""

    shard: int
    # How many batches are known to be in the log, and whether one is on its way.
    batches: int
    is_at_hand: bool
    # The relay that has it, or had it last; None if there was none yet.
    owner: str | None
    owned_since_ms: int | None


class Status(NamedTuple):
    """How far an outbox has come."""

    # Not known to be in the log, and when the oldest of them was added.
    waiting: int
    oldest_added_at_ms: int | None
    # Among those: messages that the broker refused, and messages that wait for a refused one.
    quarantined: int
    held_up: int
    # None until the first relay has begun.
    name: str | None
    shards: tuple[ShardStatus, ...]


def status(connection: Connection) -> Status:
    """How far an outbox has come. This counts rows, so it takes longer the more of them there are."""
    waiting, oldest = connection.execute(select(func.count(), func.min(messages.c.added_at_ms))).one()
    quarantined = connection.scalar(select(func.count()).select_from(quarantine)) or 0
    held_up = 0
    if quarantined:
        both = connection.scalar(select(func.count()).select_from(messages).where(is_held_up())) or 0
        held_up = both - quarantined
    known = connection.execute(select(relays)).first()
    if known is None:
        return Status(waiting, oldest, quarantined, held_up, None, ())
    used = select(shards).where(shards.c.shard < known.shards).order_by(shards.c.shard)
    shard_statuses = tuple(_shard_status(row) for row in connection.execute(used))
    return Status(waiting, oldest, quarantined, held_up, known.name, shard_statuses)


def _shard_status(row: Row[Any]) -> ShardStatus:
    is_at_hand = row.at_hand is not None
    # They begin at 0.
    in_log = row.last_batch if is_at_hand else row.last_batch + 1
    return ShardStatus(row.shard, in_log, is_at_hand, row.owner_name, row.owned_since_ms)
