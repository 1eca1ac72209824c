"""The planted bugs of the outbox, as those of the broker in `bugs.py`."""

from typing import Final

from bugs import Bug

_RELAYING: Final = "tests/outbox/test_relaying.py"
_SHARDS: Final = "tests/outbox/test_outbox_shards.py"
_REFUSED: Final = "tests/outbox/test_refused.py"

OUTBOX_BUGS: Final[tuple[Bug, ...]] = (
    # -- batches: dense, made once, and of all that waits ------------------------------------------------------------
    Bug(
        "a relay goes on behind the last message that it took",
        "semel.outbox.ledger",
        "    if not rows:\n",
        "    first = connection.scalar(select(func.min(messages.c.number))) or 0\n"
        "    passed = _made.__dict__.get('passed', 0)\n"
        "    _made.__dict__['passed'] = max(first, passed)\n"
        "    if not rows or first < passed:\n",
        (_RELAYING, "-k", "commits_late and postgresql"),
    ),
    Bug(
        "batch numbers have holes",
        "semel.outbox.ledger",
        "known.last_batch + 1, size",
        "known.last_batch + 2, size",
        (_RELAYING, "-k", "in_which_they_were_added and sqlite"),
    ),
    Bug(
        "a batch number is given twice",
        "semel.outbox.ledger",
        "known.last_batch + 1, size",
        "max(known.last_batch, 0), size",
        (_RELAYING, "-k", "in_which_they_were_added and sqlite"),
    ),
    Bug(
        "the batch at hand is forgotten by the next relay",
        "semel.outbox.ledger",
        "        if published != known.last_batch:\n",
        "        if published is not None and published != known.last_batch:\n",
        (_RELAYING, "-k", "dies_over_a_batch and sqlite"),
    ),
    Bug(
        "the last messages leave first",
        "semel.outbox.ledger",
        "_FIRST: Final = select(*_MESSAGE).where(_WAITS).order_by(messages.c.number)",
        "_FIRST: Final = select(*_MESSAGE).where(_WAITS).order_by(messages.c.number.desc())",
        (_RELAYING, "-k", "in_which_they_were_added and sqlite"),
    ),
    Bug(
        "a batch takes whatever is there",
        "semel.outbox.ledger",
        "        if rows and left_bytes < 0:\n",
        "        if not rows and left_bytes < 0:\n",
        (_RELAYING, "-k", "no_more_bytes and sqlite"),
    ),
    # -- the log: first published, then noted, under the number that the database gave --------------------------------
    Bug(
        "a batch is noted as done before it is published",
        "semel.outbox.shard",
        "        self._publish(batch)\n        return True\n",
        "        self._published = batch\n"
        "        self._with_database(self._advance)\n"
        "        self._publish(batch)\n        return True\n",
        (_RELAYING, "-k", "dies_over_a_batch and sqlite"),
    ),
    Bug(
        "a batch is published under the log's next number",
        "semel.outbox.shard",
        "                if self._with_brokers(publisher.last) < batch.number:\n"
        "                    self._with_brokers(partial(publisher.publish, batch.number, *batch.records))\n",
        "                self._with_brokers(partial(publisher.publish, publisher.last() + 1, *batch.records))\n",
        (_RELAYING, "-k", "dies_over_a_batch and sqlite"),
    ),
    Bug(
        "a database that is older than the log loses what comes next",
        "semel.outbox.ledger",
        "    if in_log > known.last_batch:\n",
        "    if in_log > known.last_batch + 100:\n",
        (_SHARDS, "-k", "older_than_the_log and sqlite"),
    ),
    Bug(
        "a database that has lost batches gives their numbers to others",
        "semel.outbox.ledger",
        "    check_not_older(claim, known, in_log)\n",
        "",
        (_SHARDS, "-k", "lost_batches and sqlite", "--timeout=30"),
    ),
    Bug(
        "a relay that was taken over takes the shard back",
        "semel.outbox.ledger",
        "    if row.owner != claim.owner:\n",
        "    if row.owner is None:\n",
        (_RELAYING, "-k", "changes_nothing and sqlite"),
    ),
    # -- shards ------------------------------------------------------------------------------------------------------
    Bug(
        "each message has a shard of its own",
        "semel.outbox.ledger",
        "    messages.c.bucket % bindparam",
        "    messages.c.number % bindparam",
        (_SHARDS, "-k", "stays_in_one and sqlite"),
    ),
    Bug(
        "shards change their number under a batch that is at hand",
        "semel.outbox.relay",
        "                shard.settle()\n",
        "",
        (_SHARDS, "-k", "another_number_of_shards and sqlite"),
    ),
    # -- what is refused, what is done, and who sleeps ---------------------------------------------------------------
    Bug(
        "a message that was refused holds nobody up",
        "semel.outbox.ledger",
        "or_(quarantine.c.number == messages.c.number, quarantine.c.aggregate == messages.c.aggregate)",
        "or_(quarantine.c.number == messages.c.number)",
        (_REFUSED, "-k", "only_its_aggregate and sqlite"),
    ),
    Bug(
        "the first message of a request that was refused is taken to be the one",
        "semel.outbox.shard",
        "        if len(batch.records) > 1:\n",
        "        if len(batch.records) < 1:\n",
        (_REFUSED, "-k", "only_too_many and sqlite"),
    ),
    Bug(
        "what is deleted is all up to the last message of the batch",
        "semel.outbox.ledger",
        "delete(messages).where(_is_among(connection, numbers))",
        "delete(messages).where(messages.c.number <= max(numbers, default=0))",
        (_RELAYING, "-k", "is_on_its_way and postgresql"),
    ),
    Bug(
        "whoever adds only looks whether a relay is asleep",
        "semel.outbox.waking",
        '    (literal_column(f"pg_try_advisory_xact_lock_shared({_LOCK})"), ""),\n',
        "    (literal_column(\"NOT EXISTS (SELECT FROM pg_locks WHERE mode = 'ExclusiveLock' AND objid = 1 "
        'AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"), ""),\n',
        (_RELAYING, "-k", "fall_asleep and postgresql"),
    ),
)
