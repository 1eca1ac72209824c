"""The layout of an outbox: its name and its number of shards, which its first relay sets, and the progress of each
shard.

The hash of a message gives its shard, so another number of shards moves aggregates between shards. That is safe when no
batch is at hand: then the messages of every batch are in the log, and the waiting ones are in no batch yet. So a relay
that changes the number first takes all shards over and settles their batches; see `relay.py`. The rows of unused shards
stay: the cursors of their publishers stay, too, and a shard that is used again has to continue there.
"""

import secrets
from collections.abc import Mapping
from contextlib import nullcontext
from enum import StrEnum
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Engine, Row, delete, func, insert, select, update

from semel.database.dialects import dialect_of
from semel.database.errors import told_remedy
from semel.database.kinds import check_engine
from semel.outbox.errors import OutOfStep, RelayFenced, RelayRefused, Unsettled
from semel.outbox.ledger import BEGIN_AGAIN, NOTHING, delete_messages, is_held_up, numbers_of
from semel.outbox.rows import ADDED_AT_MS
from semel.outbox.tables import messages, quarantine, relays, shards
from semel.publish.clients import is_name

NAME_DEFAULT: Final = "outbox"
# Each shard takes a thread of the relay, a connection to the database and some to the brokers.
SHARDS_MAX: Final = 64
_RANDOM_BYTES: Final = 4
# The lock under which a relay reads or sets the layout: the first of the two numbers is semel's.
_LOCK: Final = (1936026981, 2)


class Layout(NamedTuple):
    """The name under which relays publish an outbox, and the number of shards."""

    name: str
    random: str
    shards: int

    @property
    def outbox_name(self) -> str:
        return f"{self.name}-{self.random}"

    def publisher_name(self, shard: int) -> str:
        return f"{self.outbox_name}-{shard}"


def settled(connection: Connection, name: str | None, count: int | None) -> Layout:
    """The layout in the database; the first relay stores what it was asked for. Only `change` sets another number of
    shards."""
    # If two relays start at once on a new outbox, the second has to wait and find the layout of the first.
    dialect_of(connection).lock_until_end(connection, *_LOCK)
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
    return _checked(Layout(row.name, row.random, row.shards))


def _checked(known: Layout) -> Layout:
    """Refuse a layout that no relay has stored; other programs can write to this table, too."""
    for column, value, is_good in (
        ("name", known.name, isinstance(known.name, str) and is_name(known.publisher_name(SHARDS_MAX))),
        ("random", known.random, isinstance(known.random, str) and known.random.isalnum()),
        ("shards", known.shards, isinstance(known.shards, int) and 1 <= known.shards <= SHARDS_MAX),
    ):
        if not is_good:
            raise OutOfStep(
                f"column {column} of {relays.name} cannot be what a relay has written ({str(value)[:60]!r}): somebody "
                f"has changed the tables. {BEGIN_AGAIN}"
            )
    return known


def change(connection: Connection, count: int, owners: Mapping[int, str]) -> None:
    """Set the number of shards to `count`. `owners` has the relay that has taken over and settled each of the old
    ones."""
    for row in connection.execute(select(shards).order_by(shards.c.shard).with_for_update()):
        if row.shard in owners and row.owner != owners[row.shard]:
            raise RelayFenced(row.shard, row.owner_name)
        if row.at_hand is not None:
            raise OutOfStep(f"batch {row.last_batch} of shard {row.shard} is at hand: its aggregates cannot be moved")
    connection.execute(update(relays).values(shards=count))
    _make_shards(connection, count)


class AtHand(StrEnum):
    """What to do with the messages of a batch that may be in the log or not."""

    SEND = "send"
    DROP = "drop"


def renew(connection: Connection, at_hand: AtHand | None = None) -> None:
    """Forget the log: the next relay begins with a new publisher, at batch 0. Waiting messages stay."""
    for row in connection.execute(select(shards).order_by(shards.c.shard).with_for_update()):
        if row.at_hand is None:
            continue
        if at_hand is None:
            raise Unsettled(
                f"batch {row.last_batch} of shard {row.shard} may be in the log or not: look there, and say whether "
                "its messages are to be sent (again), or dropped"
            )
        if at_hand is AtHand.DROP:
            delete_messages(connection, numbers_of(row.shard, row.at_hand))
    for table in (shards, relays):
        connection.execute(delete(table))


def _make_shards(connection: Connection, count: int) -> None:
    known = set(connection.scalars(select(shards.c.shard)))
    for shard in range(count):
        if shard not in known:
            connection.execute(insert(shards), {"shard": shard, "last_batch": NOTHING})


# -- how far it is -----------------------------------------------------------------------------------------------------


class ShardStatus(NamedTuple):
    """The progress of one shard, and which relay has it."""

    shard: int
    # How many batches are known to be in the log, and whether there is one that may not be there yet.
    batches: int
    is_at_hand: bool
    # The relay that has the shard, or had it last; None if there was none yet.
    owner: str | None
    owned_since_ms: int | None


class Status(NamedTuple):
    """How far an outbox has come."""

    # The number of messages that are not known to be in the log, and when the oldest of them was added.
    waiting: int
    oldest_added_at_ms: int | None
    # Among those: messages that the broker refused or that cannot be records, and messages that wait for a refused one.
    quarantined: int
    held_up: int
    # None until the first relay has begun.
    name: str | None
    shards: tuple[ShardStatus, ...]


@told_remedy()
def status(handle: Engine | Connection) -> Status:
    """The state of an outbox. This counts rows, so it takes longer the more of them there are."""
    check_engine("the database", handle, (Engine, Connection))
    with handle.connect() if isinstance(handle, Engine) else nullcontext(handle) as connection:
        return _status(connection)


def _status(connection: Connection) -> Status:
    oldest_added = func.min(ADDED_AT_MS[dialect_of(connection).name])
    waiting, oldest = connection.execute(select(func.count(), oldest_added).select_from(messages)).one()
    refused = quarantine.join(messages, messages.c.number == quarantine.c.number)
    quarantined = connection.scalar(select(func.count()).select_from(refused)) or 0
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
    # Batch numbers begin at 0.
    in_log = row.last_batch if is_at_hand else row.last_batch + 1
    return ShardStatus(row.shard, in_log, is_at_hand, row.owner_name, row.owned_since_ms)
