"""The planted bugs of the publisher."""

from typing import Final

from saboteurs.planting import Bug

_FAULTS: Final = "tests/publish/test_publish_faults.py"
_PUBLISHING: Final = "tests/publish/test_publishing.py"

PUBLISH_BUGS: Final[tuple[Bug, ...]] = (
    # -- publish: a number is there at most once, in order, and never lost ------------------------------------------
    Bug(
        "the cursor is read before the fence is up",
        "semel.publish.publisher:Publisher._claim",
        """
        self._fence(producer, deadline)
        cursor = self._read(producer, deadline)
        """,
        """
        cursor = self._cursor_topic.peek(deadline)
        self._fence(producer, deadline)
        """,
        (_FAULTS, "-k", "until_it_is_fenced"),
    ),
    Bug(
        "the cursor is read as far as it is decided, and no further",
        "semel.publish.cursor_topic:CursorTopic.read",
        "until_decided=True",
        "until_decided=False",
        (_FAULTS, "-k", "strangers"),
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
        "found is not None or begin == 0",
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
        "if self._cursor == planned.cursor: break",
        "",
        (_FAULTS, "-k", "can_find_out"),
    ),
    Bug(
        "a publisher that was fenced takes its name back",
        "semel.publish.publisher:Publisher._check_owner",
        "cursor.instance != self._instance",
        "cursor.number < 0",
        (_FAULTS, "-k", "take_the_name_back"),
    ),
    Bug(
        "every life is the same instance",
        "semel.publish.cursor:this_instance",
        "secrets.token_hex(_RANDOM_BYTES)",
        '"0" * _RANDOM_BYTES',
        ("tests/publish/test_cursor.py",),
    ),
    Bug(
        "one number may be left out",
        "semel.publish.claims:decide",
        "number > cursor + 1",
        "number > cursor + 2",
        ("tests/publish/test_publish_claims.py",),
    ),
    Bug(
        "a full queue swallows a record",
        "semel.publish.transaction:Transaction._hand_over",
        "self._make_room()",
        "return self._make_room()",
        (_PUBLISHING, "-k", "queue_that_is_full"),
    ),
    Bug(
        "acks may be chosen",
        "semel.publish.settings:_ONLY",
        '"acks"',
        '"acks."',
        ("tests/publish/test_publish_settings.py",),
    ),
)
