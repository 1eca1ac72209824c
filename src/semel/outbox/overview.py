"""How far an outbox is, as its database knows: what waits and since when, what is held up, and whose each shard is."""

from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, func, select

from semel.outbox.ledger import is_held_up
from semel.outbox.tables import messages, quarantine, relays, shards


class ShardStatus(NamedTuple):
    """How far one shard is, and whose."""

    shard: int
    # How many batches are known to be in the log, and whether one is on its way.
    batches: int
    is_at_hand: bool
    # The relay that has it, or had it last; None if there was none yet.
    owner: str | None
    owned_since_ms: int | None


class Status(NamedTuple):
    """How far an outbox is."""

    # Not known to be in the log, and when the oldest of them was added.
    waiting: int
    oldest_added_at_ms: int | None
    # Of those: refused by the broker, and behind one that was.
    quarantined: int
    held_up: int
    # None until the first relay has begun.
    name: str | None
    shards: tuple[ShardStatus, ...]


def status(connection: Connection) -> Status:
    """It counts rows, and so takes as long as there are rows."""
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
    found = tuple(_shard_status(row) for row in connection.execute(used))
    return Status(waiting, oldest, quarantined, held_up, known.name, found)


def _shard_status(row: Row[Any]) -> ShardStatus:
    is_at_hand = row.at_hand is not None
    # They begin at 0.
    in_log = row.last_batch if is_at_hand else row.last_batch + 1
    return ShardStatus(row.shard, in_log, is_at_hand, row.owner_name, row.owned_since_ms)
