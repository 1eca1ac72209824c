"""Mutants of the outbox: batches and their messages, shards, and how long a drain waits."""

from typing import Final

from saboteurs.planting import Bug

_RELAYING: Final = "tests/outbox/test_relaying.py"
_SHARDS: Final = "tests/outbox/test_outbox_shards.py"
_REFUSED: Final = "tests/outbox/test_refused.py"
_DRAINS: Final = "tests/outbox/test_drains.py"

OUTBOX_MUTANTS: Final[tuple[Bug, ...]] = (
    # -- batches and shards -----------------------------------------------------------------------------------------
    Bug(
        "a message is put aside again after a lost answer, though a person has marked it for a retry",
        "semel.outbox.ledger:put_aside",
        "if refused not in at_hand: ...",
        "",
        (_REFUSED, "-k", "put_aside_twice and sqlite"),
    ),
    Bug(
        "the number of shards is changed over a shard that another relay has taken",
        "semel.outbox.layout:change",
        "if row.shard in owners and row.owner != owners[row.shard]: ...",
        "",
        (_SHARDS, "-k", "does_not_change_their_number and sqlite"),
    ),
    Bug(
        "a relay takes a shard by a number of shards that has changed",
        "semel.outbox.ledger:take_over",
        "if known != owner.shards: ...",
        "",
        (_SHARDS, "-k", "takes_none and sqlite"),
    ),
    Bug(
        "the bucket of an aggregate is another hash",
        "semel.outbox.messages:_bucket",
        "hashlib.blake2b(aggregate or b'', digest_size=_BUCKET_BYTES).digest()",
        "hashlib.sha256(aggregate or b'').digest()[:_BUCKET_BYTES]",
        (_SHARDS, "-k", "in_every_version and sqlite"),
    ),
    Bug(
        "the bytes of a bucket are read in another order",
        "semel.outbox.messages:_bucket",
        "int.from_bytes(_)",
        "int.from_bytes(_, 'little')",
        (_SHARDS, "-k", "in_every_version and sqlite"),
    ),
    Bug(
        "the messages of a new batch come in any order",
        "semel.outbox.ledger:_FIRST",
        "_.order_by(messages.c.number)",
        "_",
        (_RELAYING, "-k", "leave_in_their_order and postgresql"),
    ),
    Bug(
        "the messages of a batch that another relay has begun come in any order",
        "semel.outbox.ledger:_content",
        "content.order_by(messages.c.number)",
        "content",
        (_RELAYING, "-k", "leave_in_their_order and postgresql"),
    ),
    Bug(
        "the bytes of a batch are counted in any order of its rows",
        "semel.outbox.ledger:_BYTES_OF_FIRST",
        "_.order_by(messages.c.number)",
        "_",
        (_RELAYING, "-k", "no_more_bytes and wherever and postgresql"),
    ),
    Bug(
        "a relay takes the isolation of the application's engine",
        "semel.outbox.relay:Relay._begun",
        "if isolation is not None: ...",
        "",
        (_RELAYING, "-k", "begin_at_once and postgresql"),
    ),
    Bug(
        "another cluster is noticed after two batches only",
        "semel.outbox.shard:Shard._check_in_step",
        "in_log < known.done_batch",
        "in_log < known.done_batch - 1",
        (_SHARDS, "-k", "another_cluster and sqlite"),
    ),
    Bug(
        "messages of another batch than the one at hand are put back",
        "semel.outbox.ledger:_at_hand",
        "known.at_hand is None or batch != known.last_batch",
        "known.at_hand is None",
        (_REFUSED, "-k", "another_batch and sqlite"),
    ),
    # -- a drain ----------------------------------------------------------------------------------------------------
    Bug(
        "a drain waits for another password",
        "semel.outbox.shard:Patience.wait_for_login",
        "if self._seconds_max is not None: ...",
        "",
        (_DRAINS, "-k", "another_password"),
    ),
    Bug(
        "a drain empties the first shard alone",
        "semel.outbox.relay:Relay._drain",
        "range(known.shards)",
        "range(1)",
        (_DRAINS, "-k", "each_shard and sqlite"),
    ),
    Bug(
        "a call to the brokers takes longer than the drain may wait",
        "semel.outbox.relay:Relay._publisher",
        "seconds = min(seconds, max(self._patience_seconds, CALL_SECONDS_MIN))",
        "pass",
        (_DRAINS, "-k", "takes_longer and sqlite"),
    ),
    Bug(
        "a drain that may not wait makes no call to the brokers",
        "semel.outbox.relay:Relay._publisher",
        "max(self._patience_seconds, CALL_SECONDS_MIN)",
        "self._patience_seconds",
        (_DRAINS, "-k", "takes_longer and sqlite"),
    ),
)
