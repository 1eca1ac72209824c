"""The planted bugs of the publisher."""

from typing import Final

from saboteurs.planting import Bug

_FAULTS: Final = "tests/publish/test_publish_faults.py"
_FORMER_LEADER: Final = "tests/publish/test_publish_former_leader.py"
_PUBLISHING: Final = "tests/publish/test_publishing.py"

PUBLISH_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "a client of a publisher that has ended goes on as long as anybody keeps the error",
        "semel.publish.publisher:Publisher._calling",
        "self._release()",
        "pass",
        ("tests/publish/test_ended_publishers.py",),
    ),
    # -- publish: a number is there at most once, in order, and never lost ------------------------------------------
    Bug(
        "the cursor is read as far as it is decided, and no further",
        "semel.publish.cursor_topic:CursorTopic._last",
        "end if until_decided else 0",
        "0",
        (_FAULTS, "-k", "strangers"),
    ),
    Bug(
        "a publisher believes the cursor of a former leader",
        "semel.publish.publisher:Publisher._note",
        "self._below(transaction, deadline) != cursor",
        "self._below(transaction, deadline) is transaction",
        (_FORMER_LEADER,),
    ),
    Bug(
        "what is below the note is asked of whoever answers first",
        "semel.publish.cursor_topic:CursorTopic.read_below",
        "until_decided=True",
        "until_decided=False",
        (_FORMER_LEADER, "-k", "still_hides"),
    ),
    Bug(
        "a login that was refused once is refused to new clients as well",
        "semel.publish.publisher:Publisher._claimed",
        "self._settings.events.forget()",
        "pass",
        ("tests/log/security/test_kit_logs_in.py", "-k", "takes_its_time"),
    ),
    Bug(
        "aborted cursors count",
        "semel.publish.cursor_topic:CursorTopic._reader",
        '"read_committed"',
        '"read_uncommitted"',
        (_PUBLISHING, "-k", "many_that_were_aborted"),
    ),
    Bug(
        "the cursor is looked for near the end alone",
        "semel.publish.cursor_topic:CursorTopic._last",
        "cursor is not None or begin == 0",
        "tail",
        (_PUBLISHING, "-k", "many_that_were_aborted"),
    ),
    Bug(
        "a cursor topic may delete what is old",
        "semel.publish.cursor_topic:CursorTopic.prepare",
        'policy != "compact"',
        '"compact" not in str(policy)',
        (_PUBLISHING, "-k", "forget"),
    ),
    Bug(
        "a commit that nobody knows of is taken for done",
        "semel.publish.publisher:Publisher._commit",
        "return False",
        "return True",
        (_FAULTS, "-k", "find_out"),
    ),
    Bug(
        "a commit that nobody knows of is done again",
        "semel.publish.publisher:Publisher._publish",
        "if self._cursor == outcome.cursor: break",
        "",
        (_FAULTS, "-k", "can_find_out"),
    ),
    Bug(
        "a commit that has timed out is asked for again",
        "semel.publish.transaction:_insist",
        "reason.code() == KafkaError._TIMED_OUT or deadline.is_over or not reason.retriable()",
        "deadline.is_over or not reason.retriable()",
        (_FAULTS, "-k", "timed_out_is_not"),
    ),
    Bug(
        "a publisher that was fenced takes its name back",
        "semel.publish.publisher:Publisher._check_owner",
        "cursor.instance != self._instance",
        "cursor.number < 0",
        (_FAULTS, "-k", "take_the_name_back"),
    ),
    Bug(
        "a running publisher whose cursor is gone goes on as a new name",
        "semel.publish.publisher:Publisher._check_owner",
        "if cursor is None: ...",
        "if cursor is None: return",
        (_FAULTS, "-k", "cursor_is_gone"),
    ),
    Bug(
        "every life is the same instance",
        "semel.publish.rules:this_instance",
        "secrets.token_hex(_RANDOM_BYTES)",
        '"0" * _RANDOM_BYTES',
        ("tests/publish/test_cursor.py",),
    ),
    Bug(
        "a publisher that has ended keeps every call that comes after that",
        "semel.publish.publisher:Publisher._claimed",
        "self._ended.with_traceback(None)",
        "self._ended",
        (_PUBLISHING, "-k", "ended_keeps"),
    ),
    Bug(
        "one number may be left out",
        "semel.publish.rules:decide",
        "number > cursor + 1",
        "number > cursor + 2",
        ("tests/publish/test_publish_rules.py",),
    ),
    Bug(
        "a full queue swallows a record",
        "semel.publish.transaction:Transaction._hand_over",
        "self._free_the_queue()",
        "return self._free_the_queue()",
        (_PUBLISHING, "-k", "queue_that_is_full"),
    ),
    Bug(
        "acks may be chosen",
        "semel.publish.clients:_ONLY",
        '"acks"',
        '"acks."',
        ("tests/publish/test_publish_settings.py",),
    ),
)
