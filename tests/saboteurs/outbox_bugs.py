"""The planted bugs of the outbox."""

from typing import Final

from saboteurs.planting import Bug

_COUNTED: Final = "tests/outbox/test_outbox_counted.py"
_RELAYING: Final = "tests/outbox/test_relaying.py"
_SHARDS: Final = "tests/outbox/test_outbox_shards.py"
_DIVIDED: Final = "tests/outbox/test_divided.py"
_REFUSED: Final = "tests/outbox/test_refused.py"
_OF_OTHERS: Final = "tests/outbox/test_rows_of_others.py"

OUTBOX_BUGS: Final[tuple[Bug, ...]] = (
    # -- batches: dense, made once, and of all that waits -----------------------------------------------------------
    Bug(
        "a relay continues after the last row number that it sent",
        "semel.outbox.ledger:_made",
        "if not rows: ...",
        """
        first = connection.scalar(select(func.min(messages.c.number))) or 0
        passed = _made.__dict__.get("passed", 0)
        _made.__dict__["passed"] = max(first, passed)
        if not rows or first < passed: ...
        """,
        (_RELAYING, "-k", "commits_late and postgresql"),
    ),
    Bug(
        "batch numbers have holes",
        "semel.outbox.ledger:advance",
        "known.last_batch + 1",
        "known.last_batch + 2",
        (_RELAYING, "-k", "in_which_they_were_added and sqlite"),
    ),
    Bug(
        "a batch number is given twice",
        "semel.outbox.ledger:advance",
        "known.last_batch + 1",
        "max(known.last_batch, 0)",
        (_RELAYING, "-k", "in_which_they_were_added and sqlite"),
    ),
    Bug(
        "the next relay forgets the current batch",
        "semel.outbox.ledger:advance",
        "published != known.last_batch",
        "published is not None and published != known.last_batch",
        (_RELAYING, "-k", "dies_over_a_batch and sqlite"),
    ),
    Bug(
        "the last messages leave first",
        "semel.outbox.ledger:_FIRST",
        "messages.c.number",
        "messages.c.number.desc()",
        (_RELAYING, "-k", "in_which_they_were_added and sqlite"),
    ),
    Bug(
        "a batch takes whatever is there",
        "semel.outbox.ledger:_made",
        "rows_bytes > size.bytes_max",
        "rows_bytes < size.bytes_max",
        (_RELAYING, "-k", "no_more_bytes and sqlite"),
    ),
    # -- the log: first published, then noted, under the number that the database gave ------------------------------
    Bug(
        "a relay records a batch as done before it is published",
        "semel.outbox.shard:Shard.step",
        "self._publish(batch)",
        """
        self._published = batch
        self._with_database(self._advance)
        self._publish(batch)
        """,
        (_RELAYING, "-k", "dies_over_a_batch and sqlite"),
    ),
    Bug(
        "a batch is published under the log's next number",
        "semel.outbox.shard:Shard._put",
        """
        if self._with_brokers(publisher.last) < batch.number:
            self._with_brokers(partial(publisher.put, batch))
        """,
        "self._with_brokers(partial(publisher.put, batch._replace(number=publisher.last() + 1)))",
        (_RELAYING, "-k", "dies_over_a_batch and sqlite"),
    ),
    Bug(
        "what is for a function goes into the log if the relay has no function",
        "semel.outbox.sender:Divided.put",
        "topic.startswith(SEND_PREFIX) and topic not in self._sends",
        "False",
        (_DIVIDED, "-k", "stops_a_relay and sqlite"),
    ),
    Bug(
        "the log has a batch before the functions have its messages",
        "semel.outbox.sender:Divided.put",
        "topics = {record.topic for record in batch.records}",
        """
        self._publisher.publish(batch.number, *(one for one in batch.records if one.topic not in self._sends))
        topics = {record.topic for record in batch.records}
        """,
        (_DIVIDED, "-k", "dies and sqlite"),
    ),
    Bug(
        "a database that is older than the log loses what comes next",
        "semel.outbox.ledger:check_not_older",
        "in_log > known.last_batch",
        "in_log > known.last_batch + 100",
        (_SHARDS, "-k", "older_than_the_log and sqlite"),
    ),
    Bug(
        "a database that has lost batches gives their numbers to others",
        "semel.outbox.ledger:advance",
        "check_not_older(owner, known, in_log)",
        "",
        (_SHARDS, "-k", "lost_batches and sqlite"),
        seconds_max=10,
    ),
    Bug(
        "a relay that was taken over takes the shard back",
        "semel.outbox.ledger:_of_this_life",
        "row.owner != owner.life",
        "row.owner is None",
        (_RELAYING, "-k", "changes_nothing and sqlite"),
    ),
    # -- relays that are fenced are counted -------------------------------------------------------------------------
    Bug(
        "a relay that is fenced is not counted",
        "semel.outbox.relay:_fence_counted",
        "FENCED.add()",
        "",
        (_COUNTED, "-k", "at_its_start and sqlite"),
    ),
    Bug(
        "each thread of a relay that is fenced counts it",
        "semel.outbox.relay:Relay._guarded",
        "self._failure = self._failure or error",
        """
        FENCED.add()
        self._failure = self._failure or error
        """,
        (_COUNTED, "-k", "of_many_shards and sqlite"),
    ),
    # -- shards -----------------------------------------------------------------------------------------------------
    Bug(
        "each message has a shard of its own",
        "semel.outbox.ledger:_WAITS",
        "messages.c.bucket",
        "messages.c.number",
        (_SHARDS, "-k", "stays_in_one and sqlite"),
    ),
    Bug(
        "shards change their number under a batch that is at hand",
        "semel.outbox.relay:Relay._prepared",
        "shard.settle()",
        "",
        (_SHARDS, "-k", "another_number_of_shards and sqlite"),
    ),
    Bug(
        "shards change their number over a batch that may be in the log or not",
        "semel.outbox.layout:change",
        "if row.at_hand is not None: ...",
        "",
        (_SHARDS, "-k", "in_the_log_or_not and sqlite"),
    ),
    # -- what is refused, what is done, and who sleeps --------------------------------------------------------------
    Bug(
        "a message that was refused holds nobody up",
        "semel.outbox.ledger:is_held_up",
        "or_(quarantine.c.number == messages.c.number, quarantine.c.aggregate == messages.c.aggregate)",
        "or_(quarantine.c.number == messages.c.number)",
        (_REFUSED, "-k", "only_its_aggregate and sqlite"),
    ),
    Bug(
        "the first message of a request that was refused is taken to be the one",
        "semel.outbox.shard:Shard._narrow",
        "len(batch.records) > 1",
        "len(batch.records) < 1",
        (_REFUSED, "-k", "only_too_many and sqlite"),
    ),
    # -- rows that another program has written ----------------------------------------------------------------------
    Bug(
        "headers that cannot be read end the relay",
        "semel.outbox.rows:_headers_of",
        "except (ValueError, RecursionError) as error: ...",
        """
        except (ValueError, RecursionError) as error:
            raise TypeError from error
        """,
        (_OF_OTHERS, "-k", "in_the_same_batch and sqlite"),
    ),
    Bug(
        "the driver decodes what another program has written",
        "semel.database.dialects.sqlite:Sqlite.as_text",
        'case((kind == "text", self.as_shown(column)), (kind == "null", None), else_=_OF_ANOTHER_KIND)',
        "column",
        (_OF_OTHERS, "-k", "whatever_is_wrong and sqlite"),
    ),
    Bug(
        "what follows a row that cannot be a record overtakes it",
        "semel.outbox.rows:read",
        "not unreadable",
        "True",
        (_OF_OTHERS, "-k", "in_the_same_batch and sqlite"),
    ),
    Bug(
        "a message in a bucket below 0 is nobody's",
        "semel.outbox.ledger:_WAITS",
        'func.abs(messages.c.bucket % bindparam("of_shards", type_=BigInteger))',
        'messages.c.bucket % bindparam("of_shards", type_=BigInteger)',
        (_OF_OTHERS, "-k", "whatever_else and sqlite and 3"),
    ),
    Bug(
        "a message that is in the log is put aside over what was written into its row since",
        "semel.outbox.ledger:advance",
        "in_log >= batch.number",
        "in_log > batch.number",
        (_OF_OTHERS, "-k", "in_the_log_is_done and sqlite"),
    ),
    Bug(
        "what is deleted is all up to the last message of the batch",
        "semel.outbox.ledger:delete_messages",
        "_is_among(connection, numbers)",
        "messages.c.number <= max(numbers, default=0)",
        (_RELAYING, "-k", "is_on_its_way and postgresql"),
    ),
    Bug(
        "whoever adds only looks whether a relay is asleep",
        "semel.database.dialects.postgresql:Postgresql.wakes",
        'f"pg_try_advisory_xact_lock_shared({lock})"',
        """
        "NOT EXISTS (SELECT FROM pg_locks WHERE mode = 'ExclusiveLock' AND objid = 1 "
        "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"
        """,
        (_RELAYING, "-k", "fall_asleep and postgresql"),
    ),
    Bug(
        "a message takes its number before its aggregate is locked",
        "semel.outbox.messages:add_many",
        "if isinstance(handle, Session | scoped_session): ...",
        "if False: ...",
        ("tests/outbox/test_adding_in_a_session.py", "-k", "takes_its_number"),
    ),
    Bug(
        "a relay listens through a pooler in the session of another client",
        "semel.outbox.bell:sleeper_for",
        'news is News.NOTIFIED and engine.dialect.driver == "psycopg" and not _is_pooled(engine)',
        'news is News.NOTIFIED and engine.dialect.driver == "psycopg"',
        ("tests/outbox/test_pooled.py", "-k", "relay"),
    ),
    Bug(
        "an idle relay does not notice that its brokers hang",
        "semel.publish.publisher:Publisher.is_answered",
        "self._client is not None",
        "False",
        ("tests/outbox/test_relay_of_frozen_brokers.py", "-k", "idle"),
        seconds_max=20,
    ),
    Bug(
        "a relay that waits for an answer of its brokers is ready",
        "semel.outbox.shard:Shard.are_brokers_there",
        "time.monotonic() - since < _LATE_SECONDS",
        "True",
        ("tests/outbox/test_relay_of_frozen_brokers.py", "-k", "messages"),
        seconds_max=20,
    ),
)
