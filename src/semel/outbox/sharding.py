"""The number of shards and the name of the relay, as the database has them: set by the first relay, for all.

A message has its shard by its hash, so another number of shards moves aggregates between them. That is safe when no
batch is at hand: whatever was in one is in the log, and what waits has no shard yet. So whoever changes the number
takes all shards over first and settles what is at hand; see `relay.py`. Rows of shards that are not used any more stay:
their publishers have come to some number, and would go on from there.
"""

import secrets
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from sqlalchemy import Connection, delete, func, insert, select, update

from semel.outbox.errors import OutOfStep, RelayFenced, RelayRefused, Unsettled
from semel.outbox.ledger import NOTHING, delete_messages, numbers_of
from semel.outbox.tables import relays, shards

NAME_DEFAULT: Final = "outbox"
# Each is a thread of the relay, a connection to the database and some to the brokers.
SHARDS_MAX: Final = 64
_RANDOM_BYTES: Final = 4
# The advisory lock of whoever looks for the name: the first of the two numbers is semel's.
_LOCK: Final = (1936026981, 2)


class Sharding(NamedTuple):
    """Under which name an outbox is relayed, and in how many shards."""

    name: str
    random: str
    shards: int

    def publisher_name(self, shard: int) -> str:
        return f"{self.name}-{self.random}-{shard}"


def settled(connection: Connection, name: str | None, count: int | None) -> Sharding:
    """What the database has; the first time, what was asked for. Another number of shards than that is for `change`."""
    if connection.dialect.name == "postgresql":
        # Of two that are the first the second has to find what the first one did. On SQLite there is one writer.
        connection.execute(select(func.pg_advisory_xact_lock(*_LOCK)))
    row = connection.execute(select(relays)).first()
    if row is None:
        made = Sharding(name or NAME_DEFAULT, secrets.token_hex(_RANDOM_BYTES), count or 1)
        connection.execute(insert(relays), made._asdict())
        _make_shards(connection, made.shards)
        return made
    if name is not None and name != row.name:
        raise RelayRefused(
            f"this outbox is relayed under the name {row.name!r}, and its place in the log is known by that: leave the "
            f"name {name!r} out"
        )
    return Sharding(row.name, row.random, row.shards)


def change(connection: Connection, count: int, owners: Mapping[int, str]) -> None:
    """Have `count` shards from now on. `owners` is whoever has taken over each of the old ones, and settled it."""
    for row in connection.execute(select(shards).order_by(shards.c.shard).with_for_update()):
        if row.shard in owners and row.owner != owners[row.shard]:
            raise RelayFenced(row.shard, row.owner_name)
        if row.at_hand is not None:
            raise OutOfStep(f"batch {row.last_batch} of shard {row.shard} is at hand: its aggregates cannot be moved")
    connection.execute(update(relays).values(shards=count))
    _make_shards(connection, count)


class AtHand(StrEnum):
    """What becomes of a batch of which nobody can say whether it is in the log."""

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
