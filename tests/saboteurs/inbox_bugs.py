"""The planted bugs of the inbox, as those of the broker in `bugs.py`."""

from typing import Final

from bugs import Bug

_CLAIMING: Final = "tests/inbox/test_claiming.py"
_REAPER: Final = "tests/inbox/test_reaper.py"
_LOOP: Final = "tests/inbox/test_loop.py"

INBOX_BUGS: Final[tuple[Bug, ...]] = (
    # -- claims: one for each consumer and event, with the effect ----------------------------------------------------
    Bug(
        "a claim is looked for, and then inserted",
        "semel.inbox.claims",
        "    if not is_new(connection, _CLAIM, asked._asdict()):\n",
        "    known = select(claims).filter_by(consumer=asked.consumer, message_id=asked.message_id)\n"
        "    if connection.execute(known).first() or not connection.execute(claims.insert(), asked._asdict()):\n",
        (_CLAIMING, "-k", "second_waits and postgresql"),
    ),
    Bug(
        "a claim has a transaction of its own",
        "semel.inbox.claiming",
        "        outcome = claims.claim(connection, asked)\n",
        "        with connection.engine.begin() as another:\n            outcome = claims.claim(another, asked)\n",
        (_CLAIMING, "-k", "goes_when_its_effect_does and postgresql"),
    ),
    Bug(
        "an event is claimed for all consumers",
        "semel.inbox.tables",
        'PrimaryKeyConstraint("consumer", "message_id", name="semel_inbox_pkey")',
        'PrimaryKeyConstraint("message_id", name="semel_inbox_pkey")',
        (_CLAIMING, "-k", "once_for_each_consumer"),
    ),
    Bug(
        "a batch is claimed in the order in which it came",
        "semel.inbox.claims",
        "for one in sorted(set(ids))}",
        "for one in dict.fromkeys(ids)}",
        (_CLAIMING, "-k", "order_of_its_ids"),
    ),
    Bug(
        "a version may follow any that is smaller",
        "semel.inbox.claims",
        '        versions.c.version == bindparam("before"),',
        '        versions.c.version <= bindparam("before"),',
        (_CLAIMING, "-k", "without_gaps"),
    ),
    # -- the floor: what was forgotten is never new ------------------------------------------------------------------
    Bug(
        "the floor is ignored",
        "semel.inbox.claims",
        "if asked.event_time_ms < floor_ms else",
        "if asked.event_time_ms < 0 else",
        (_REAPER, "-k", "older_than_the_floor"),
    ),
    Bug(
        "the floor is read as of the transaction's beginning",
        "semel.inbox.claims",
        ".with_for_update(read=True)",
        "",
        (_REAPER, "-k", "waited_for_the_reaper and postgresql"),
    ),
    Bug(
        "the floor follows a clock that goes back",
        "semel.inbox.reaper",
        ".where(floors.c.consumer == consumer, floors.c.floor_ms < floor_ms)",
        ".where(floors.c.consumer == consumer)",
        (_REAPER, "-k", "went_back"),
    ),
    # -- the loop: offsets last, and nothing skipped -----------------------------------------------------------------
    Bug(
        "offsets are committed first",
        "semel.inbox.loop",
        "                    if self.take(handler, message) is not None:\n"
        "                        self._progress.note(message)\n",
        "                    self._progress.note(message)\n"
        "                    self._commit(client)\n"
        "                    self.take(handler, message)\n",
        (_LOOP, "-k", "leaves_the_offset and sqlite"),
    ),
    Bug(
        "a transaction that was undone is taken for committed",
        "semel.inbox.loop",
        "                        handler(connection, message)\n                        check_unbroken(connection)\n",
        "                        handler(connection, message)\n",
        (_LOOP, "-k", "was_undone and sqlite"),
    ),
    Bug(
        "what is put aside is not claimed",
        "semel.inbox.admission",
        "        if isinstance(identity, str):\n",
        '        if identity == "":\n',
        ("tests/inbox/test_quarantine.py", "-k", "stays_known and sqlite"),
    ),
    Bug(
        "a version that fails counts as taken",
        "semel.inbox.admission",
        "        if isinstance(identity, str):\n",
        "        if identity:\n",
        (_LOOP, "-k", "holds_back"),
    ),
)
