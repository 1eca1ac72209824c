"""The planted bugs of the publisher, as those of the broker in `bugs.py`."""

from typing import Final

from bugs import Bug

_FAULTS: Final = "tests/publish/test_publish_faults.py"
_PUBLISHING: Final = "tests/publish/test_publishing.py"

PUBLISH_BUGS: Final[tuple[Bug, ...]] = (
    # -- publish: a number is there at most once, in order, and never lost -------------------------------------------
    Bug(
        "the cursor is read before the fence is up",
        "semel.publish.publisher",
        "        self._fence(producer, deadline)\n        cursor = self._read(producer, deadline)\n",
        "        cursor = self._cursor_topic.peek(deadline)\n        self._fence(producer, deadline)\n",
        (_FAULTS, "-k", "until_it_is_fenced"),
    ),
    Bug(
        "the cursor is read as far as it is decided, and no further",
        "semel.publish.cursor_topic",
        "        return self._last(deadline, until_decided=True)",
        "        return self._last(deadline, until_decided=False)",
        (_FAULTS, "-k", "strangers"),
    ),
    Bug(
        "aborted cursors count",
        "semel.publish.cursor_topic",
        '"isolation.level": "read_committed"',
        '"isolation.level": "read_uncommitted"',
        (_PUBLISHING, "-k", "many_that_were_aborted"),
    ),
    Bug(
        "the cursor is looked for near the end alone",
        "semel.publish.cursor_topic",
        "                if found is not None or begin == 0:",
        "                if tail:",
        (_PUBLISHING, "-k", "many_that_were_aborted"),
    ),
    Bug(
        "a cursor topic may delete what is old",
        "semel.publish.cursor_topic",
        '        if policy != "compact":',
        '        if "compact" not in str(policy):',
        (_PUBLISHING, "-k", "forget"),
    ),
    Bug(
        "a commit that nobody knows of is taken for done",
        "semel.publish.publisher",
        "            self._producer = None\n            return False\n",
        "            self._producer = None\n            return True\n",
        (_FAULTS, "-k", "find_out"),
    ),
    Bug(
        "a commit that nobody knows of is done again",
        "semel.publish.publisher",
        "            if self._cursor == planned.cursor:\n                break\n",
        "",
        (_FAULTS, "-k", "can_find_out"),
    ),
    Bug(
        "a publisher that was fenced takes its name back",
        "semel.publish.publisher",
        "        if cursor.instance != self._instance:",
        "        if cursor.number < 0:",
        (_FAULTS, "-k", "take_the_name_back"),
    ),
    Bug(
        "every life is the same instance",
        "semel.publish.cursor",
        "secrets.token_hex(_RANDOM_BYTES)",
        '"0" * _RANDOM_BYTES',
        ("tests/publish/test_cursor.py",),
    ),
    Bug(
        "one number may be left out",
        "semel.publish.claims",
        "    if number > cursor + 1 and not gaps_allowed:",
        "    if number > cursor + 2 and not gaps_allowed:",
        ("tests/publish/test_publish_claims.py",),
    ),
    Bug(
        "a full queue swallows a record",
        "semel.publish.transaction",
        "            except BufferError:\n                self._make_room()\n",
        "            except BufferError:\n                return self._make_room()\n",
        (_PUBLISHING, "-k", "queue_that_is_full"),
    ),
    Bug(
        "acks may be chosen",
        "semel.publish.settings",
        '    "acks": (',
        '    "acks.": (',
        ("tests/publish/test_publish_settings.py",),
    ),
)
