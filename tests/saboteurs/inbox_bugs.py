"""The planted bugs of the inbox."""

from typing import Final

from saboteurs.planting import Bug

_CLAIMING: Final = "tests/inbox/test_claiming.py"
_REAPER: Final = "tests/inbox/test_reaper.py"
_LOOP: Final = "tests/inbox/test_loop.py"
_FROZEN: Final = "tests/inbox/test_frozen_brokers.py"
_CONTENTION: Final = "tests/inbox/test_contention.py"
_OWN_ENDS: Final = "tests/inbox/test_own_ends.py"
_OPEN: Final = "tests/database/test_open_transactions.py"

INBOX_BUGS: Final[tuple[Bug, ...]] = (
    # -- claims: one for each consumer and event, with the effect ---------------------------------------------------
    Bug(
        "a process looks for a claim, and then inserts it",
        "semel.inbox.claims:claim",
        "if not is_new(connection, _CLAIM, new._asdict()): ...",
        """
        known = select(claims).filter_by(consumer=new.consumer, message_id=new.message_id)
        if connection.execute(known).first() or not connection.execute(claims.insert(), new._asdict()): ...
        """,
        (_CLAIMING, "-k", "second_waits and postgresql"),
    ),
    Bug(
        "a claim has a transaction of its own",
        "semel.inbox.claims:once",
        "outcome = claim(connection, new)",
        "with connection.engine.begin() as another: outcome = claim(another, new)",
        (_CLAIMING, "-k", "goes_when_its_effect_does and postgresql"),
    ),
    Bug(
        "an event is claimed for all consumers",
        "semel.inbox.tables:claims",
        'PrimaryKeyConstraint("consumer", "message_id", name="semel_inbox_pkey")',
        'PrimaryKeyConstraint("message_id", name="semel_inbox_pkey")',
        (_CLAIMING, "-k", "once_for_each_consumer"),
    ),
    Bug(
        "the ids of a batch are claimed in the order of the batch",
        "semel.inbox.claims:claim_each",
        "sorted(set(ids))",
        "dict.fromkeys(ids)",
        (_CLAIMING, "-k", "order_of_its_ids"),
    ),
    Bug(
        "a version may follow any that is smaller",
        "semel.inbox.versions:_NEXT",
        'versions.c.version == bindparam("before")',
        'versions.c.version <= bindparam("before")',
        (_CLAIMING, "-k", "without_gaps"),
    ),
    # -- the floor: what was forgotten is never new -----------------------------------------------------------------
    Bug(
        "the floor is ignored",
        "semel.inbox.claims:claim",
        "new.event_time_ms < floor_ms",
        "new.event_time_ms < 0",
        (_REAPER, "-k", "older_than_the_floor"),
    ),
    Bug(
        "the floor is read as of the transaction's beginning",
        "semel.inbox.claims:_floor_ms",
        "_.with_for_update(read=True)",
        "_",
        (_REAPER, "-k", "waited_for_the_reaper and postgresql"),
    ),
    Bug(
        "the floor follows a clock that goes back",
        "semel.inbox.reaper:raise_floor",
        "update(floors).where(floors.c.consumer == consumer, floors.c.floor_ms < floor_ms)",
        "update(floors).where(floors.c.consumer == consumer)",
        (_REAPER, "-k", "went_back"),
    ),
    Bug(
        "a claim is as old as its event",
        "semel.inbox.reaper:_old",
        "claims.c.claimed_at_ms < before_ms",
        "claims.c.claimed_at_ms < before_ms * 2",
        (_REAPER, "-k", "for_the_whole_retention and sqlite"),
    ),
    Bug(
        "the floor rises although nothing was forgotten",
        "semel.inbox.reaper:reap_procedure",
        "NO_FLOOR_MS if latest_ms is None else raise_floor(connection, name, latest_ms + 1)",
        "raise_floor(connection, name, before_ms)",
        (_REAPER, "-k", "new_consumer_takes and sqlite"),
    ),
    Bug(
        "the floor stays below the latest event that is forgotten",
        "semel.inbox.reaper:reap_procedure",
        "raise_floor(connection, name, latest_ms + 1)",
        "raise_floor(connection, name, latest_ms)",
        (_REAPER, "-k", "older_than_the_floor and sqlite"),
    ),
    Bug(
        "an event in the quarantine loses its claim",
        "semel.inbox.reaper:_old",
        "not_(waiting)",
        "claims.c.consumer == consumer",
        (_REAPER, "-k", "keeps_its_claim and sqlite"),
    ),
    # -- the transaction of the claim -------------------------------------------------------------------------------
    Bug(
        "statements go on after SQLite has rolled back",
        "semel.database.transactions:_before_statement",
        "_check_open(connection, watched)",
        "pass",
        (_OPEN, "-k", "nothing_more_is_written and sqlite"),
    ),
    Bug(
        "a caught error of PostgreSQL commits nothing without a word",
        "semel.database.transactions:_check_sound",
        "dialect_of(connection).has_failed(connection, watched.error)",
        "False",
        (_OPEN, "-k", "a_caught_error and postgresql"),
    ),
    Bug(
        "a block does not mind a commit",
        "semel.database.transactions:_before_commit",
        "raise watched.broken() if is_another else watched.ended_too_early()",
        "pass",
        (_OWN_ENDS, "-k", "ends_its_transaction and sqlite"),
    ),
    Bug(
        "a block does not mind a COMMIT in SQL",
        "semel.database.transactions:_before_end_in_sql",
        "raise CommitTooEarly",
        "pass",
        (_OPEN, "-k", "has_to_stay_open and COMMIT"),
    ),
    Bug(
        "a commit after an exception has left the block is let through",
        "semel.inbox.claims:once",
        "kept_open(handle, new.is_stored) if outcome else nullcontext()",
        "nullcontext()",
        (_OWN_ENDS, "-k", "caught_outside and sqlite"),
    ),
    Bug(
        "a session that wrote nothing is not missed",
        "semel.database.joined_sessions:_is_detached",
        "state.key is None or state.modified",
        "False",
        ("tests/database/test_joined_sessions.py", "-k", "without_a_block and sqlite"),
    ),
    Bug(
        "an event whose handler has committed its claim, and failed, is a duplicate",
        "semel.inbox.loop:Loop._admit",
        "outcome is Outcome.DUPLICATE and attempts.broken is not None",
        "False",
        (_OWN_ENDS, "-k", "through_the_driver and sqlite"),
    ),
    # -- the loop: offsets last, and nothing skipped ----------------------------------------------------------------
    Bug(
        "offsets are committed first",
        "semel.inbox.loop:Loop._consume",
        "outcome = yield from self._settle(handler, message)",
        """
        self._committable.note(message)
        yield from self._commit(client)
        outcome = yield from self._settle(handler, message)
        """,
        (_LOOP, "-k", "leaves_the_offset and sqlite"),
    ),
    Bug(
        "a transaction that was undone is taken for committed",
        "semel.inbox.confluent:Inbox._handle",
        "transaction.check()",
        "pass",
        (_LOOP, "-k", "was_undone and sqlite"),
    ),
    Bug(
        "what is put aside is not claimed",
        "semel.inbox.admission:Admission.put_aside",
        "isinstance(identity, str)",
        'identity == ""',
        ("tests/inbox/test_quarantine.py", "-k", "stays_known and sqlite"),
    ),
    Bug(
        "a version that fails counts as taken",
        "semel.inbox.admission:Admission.put_aside",
        "isinstance(identity, str)",
        "identity",
        (_LOOP, "-k", "holds_back"),
    ),
    Bug(
        "the offsets of revoked partitions are committed over those of their new owner",
        "semel.inbox.loop:Loop.give_up",
        "self._committable.forget(places)",
        "",
        ("tests/inbox/test_loop_commits.py", "-k", "revoked_partitions and sqlite"),
    ),
    Bug(
        "a message that still cannot be decoded when it is retried counts as done",
        "semel.inbox.admission:Admission.retake",
        "quarantine.hold_again(connection, number, State.DONE, reason_of(identity))",
        "pass",
        ("tests/inbox/test_quarantine.py", "-k", "still_cannot_be_decoded and sqlite"),
    ),
    # -- contention is not poison, and a stranger's id is not the program's -----------------------------------------
    Bug(
        "what passes by itself counts among the attempts",
        "semel.inbox.retries:Attempts.wait_seconds",
        "if self._passing(error): ...",
        "if False: ...",
        (_CONTENTION, "-k", "somebody_else"),
    ),
    Bug(
        "a message that has to wait is passed over",
        "semel.inbox.confluent:_Client.read_again",
        "self._consumer.seek(TopicPartition(message.topic, message.partition, message.offset))",
        "pass",
        (_CONTENTION, "-k", "keeps_its_partitions"),
        seconds_max=20,
    ),
    Bug(
        "a record whose headers nobody can read is taken for one without headers",
        "semel.inbox.admission:Admission.identity_of",
        "if not message.are_headers_readable: ...",
        "",
        (_LOOP, "-k", "no_client_can_read"),
    ),
    Bug(
        "an id that looks like its place ends the loop, whoever chose it",
        "semel.inbox.admission:Admission._follows_place",
        "self.identity(elsewhere) != identity",
        "True",
        (_LOOP, "-k", "only_looks_like"),
    ),
    Bug(
        "a claim exactly at the floor is reaped, and its event is accepted twice",
        "semel.inbox.reaper:delete_step",
        "claims.c.event_time_ms < floor_ms",
        "claims.c.event_time_ms <= floor_ms",
        (_REAPER, "-k", "made_at_the_floor and sqlite"),
    ),
    Bug(
        "a broker that hangs is taken for a topic without records",
        "semel.inbox.loop:Loop._run",
        "brokers.doubt()",
        "pass",
        (_FROZEN, "-k", "idle-consuming and not asyncio"),
        seconds_max=20,
    ),
    Bug(
        "a loop that waits for a commit of offsets is ready",
        "semel.inbox.brokers:Brokers.tell_of_commit",
        "waited_ms > SAY_AFTER_MS",
        "False",
        (_FROZEN, "-k", "commit-consuming and not asyncio"),
        seconds_max=20,
    ),
)
