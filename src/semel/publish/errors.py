"""Why something was not published, each in one line with what to do. They say what is known, and never guess."""

from datetime import UTC, datetime

from semel.publish.cursor import Cursor
from semel.publish.record import Record


class PublishError(Exception):
    """What this room raises."""


class PublishRefused(PublishError, ValueError):
    """A setting, a name or a number that would break the promise; nothing was sent."""


class CursorRefused(PublishError):
    """The cursor topic, or what stands in it, cannot be relied on; nothing was written."""


class Gap(PublishError):
    """A number was left out; nothing of the call was written."""

    def __init__(self, name: str, expected: int, got: int) -> None:
        super().__init__(
            f"publisher {name!r} expected number {expected} and got {got}: publish what is missing first, or make the "
            'publisher with gaps="allow" where numbers come from outside and have holes'
        )
        self.expected = expected
        self.got = got


class RecordRefused(PublishError):
    """A record cannot be stored as it is; nothing of its call was written, and the publisher goes on.

    A broker refuses what came together as one: where it was that who refused, another record of the call may be to
    blame.
    """

    def __init__(self, record: Record, reason: str) -> None:
        super().__init__(
            f"a record for topic {record.topic!r} was refused, and nothing of its call was written: {reason}"
        )
        self.record = record
        self.topic = record.topic
        self.reason = reason


class Fenced(PublishError):
    """Another instance has the name now; this one writes no more.

    Where the fence came with a commit, the number of the call may be there: whoever has the name now knows.
    """

    def __init__(self, name: str, by: Cursor | None) -> None:
        who = (
            f"by {by.instance} (last seen {_time(by.at_ms)})"
            if by is not None
            else "by one that has not noted itself yet, or a transaction of this one took longer than its timeout"
        )
        super().__init__(
            f"publisher {name!r} was fenced {who}: it writes no more. Run one instance for each name; make a new "
            "publisher if this one is to have the name"
        )
        self.by = by


class PublishFailed(PublishError):
    """The time was over before anything could be committed; nothing of the call was written."""


class PublishUncertain(PublishError):
    """Nobody could be asked whether a commit happened. The next start, or the next call, will know."""

    def __init__(self, name: str, number: int, reason: str) -> None:
        super().__init__(
            f"publisher {name!r} does not know whether number {number} was published: {reason}. Publish it again, with "
            "this publisher or after a restart: it is written if it was not"
        )
        self.number = number


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
