"""The rules of publishing, without IO: records, the cursor, the verdict on a number, and the errors.

The cursor is the last number that was published, or `NOTHING`. It also names the instance that wrote it, so that a
fenced instance can say which one fenced it. A number at or below the cursor is a duplicate, the next one is accepted,
and a higher one is a gap; with gaps="allow", for numbers from outside that only rise, it is accepted, too. A call with
several numbers is judged as if each was published by itself, with one difference: if one of them is a gap, the whole
call is refused. A cursor that cannot be read is refused as well: a name whose cursor is unknown must never be taken for
a name that has not begun. An error says what is known, and never guesses.
"""

import json
import os
import secrets
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

# -- the record --------------------------------------------------------------------------------------------------------


Headers: TypeAlias = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]


class Record(NamedTuple):
    """A record for a topic. Without a partition, its key chooses one; without a time, the client sets it."""

    topic: str
    key: bytes | str | None = None
    value: bytes | str | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


# -- the cursor --------------------------------------------------------------------------------------------------------


_FORMAT: Final = 1
_RANDOM_BYTES: Final = 8


class NoCursor(ValueError):
    """A record that is no cursor, or a cursor of a later version of semel."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One life of a publisher: where it runs, and since when. The random part makes two publishers of one process
    differ."""

    host: str
    pid: int
    random: str
    since_ms: int

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last number of a name, and which instance wrote it, and when."""

    number: int
    instance: Instance
    at_ms: int


def this_instance(now_ms: int) -> Instance:
    """A new instance, in this process."""
    return Instance(socket.gethostname(), os.getpid(), secrets.token_hex(_RANDOM_BYTES), now_ms)


def encode(cursor: Cursor) -> bytes:
    """The value of a cursor's record."""
    return json.dumps({"format": _FORMAT, **asdict(cursor)}, separators=(",", ":")).encode()


def decode(value: bytes | None) -> Cursor:
    """A cursor from its record; raises `NoCursor` if it is none."""
    try:
        fields = json.loads(value or b"")
        if fields["format"] != _FORMAT:
            raise NoCursor(f"a cursor has format {fields['format']!r}, and this version of semel knows {_FORMAT}")
        instance = fields["instance"]
        return Cursor(
            int(fields["number"]),
            Instance(str(instance["host"]), int(instance["pid"]), str(instance["random"]), int(instance["since_ms"])),
            int(fields["at_ms"]),
        )
    except NoCursor:
        raise
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise NoCursor(f"a record is no cursor: {error!r}") from None


# -- errors ------------------------------------------------------------------------------------------------------------


class PublishError(Exception):
    """The base of this package's errors."""


class PublishRefused(PublishError, ValueError):
    """A setting, a name or a number that would break the promise; nothing was sent."""


class CursorRefused(PublishError):
    """The cursor topic, or a record in it, cannot be relied on, or a right to keep the cursor is missing; nothing was
    written."""


class Gap(PublishError):
    """A number was left out; no record of the call was written."""

    def __init__(self, name: str, expected: int, got: int) -> None:
        super().__init__(
            f"publisher {name!r} expected number {expected} and got {got}: publish what is missing first, or make the "
            'publisher with gaps="allow" where numbers come from outside and have holes'
        )
        self.expected = expected
        self.got = got


class RecordRefused(PublishError):
    """A record cannot be stored as it is; no record of its call was written, and the publisher can be used further.

    A broker refuses a batch as a whole. So if the broker refused it, another record of the call may be the cause.
    """

    def __init__(self, record: Record, reason: str) -> None:
        super().__init__(
            f"a record for topic {record.topic!r} was refused, and no record of its call was written: {reason}"
        )
        self.record = record
        self.topic = record.topic
        self.reason = reason


class Fenced(PublishError):
    """Another instance has the name now; this one writes no more.

    If it was fenced during a commit, the number may be in the log: only the instance that has the name now knows.
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
    """The time was over before anything could be committed; no record of the call was written."""


class LoginRefused(PublishFailed):
    """The brokers refuse the user or the password; no record of the call was written."""


class PublishUncertain(PublishError):
    """No broker could say whether a commit happened. The next start, or the next call, will know."""

    def __init__(self, name: str, number: int, reason: str) -> None:
        super().__init__(
            f"publisher {name!r} does not know whether number {number} was published: {reason}. Publish it again, with "
            "this publisher or after a restart: it is written if it was not"
        )
        self.number = number


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# -- the rule ----------------------------------------------------------------------------------------------------------


NOTHING: Final = -1
# The largest number: it has to fit into the integers of databases and other languages.
NUMBER_MAX: Final = 2**63 - 1


class Receipt(StrEnum):
    """The result for a number: this call has written its records, or they were in the log before."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True)
class Plan:
    """The result of a call: a receipt for each number, and the cursor after it."""

    receipts: tuple[Receipt, ...]
    cursor: int


def decide(name: str, cursor: int, number: int, *, gaps_allowed: bool) -> Receipt:
    """Accepted, a duplicate, or `Gap`."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= NUMBER_MAX:
        raise PublishRefused(f"{number!r} is no number to publish under: they are integers, and begin with 0")
    if number <= cursor:
        return Receipt.DUPLICATE
    if number > cursor + 1 and not gaps_allowed:
        raise Gap(name, expected=cursor + 1, got=number)
    return Receipt.ACCEPTED


def plan(name: str, cursor: int, numbers: Iterable[int], *, gaps_allowed: bool) -> Plan:
    """The verdicts on the numbers of a call, one after the other."""
    receipts = []
    for number in numbers:
        receipts.append(decide(name, cursor, number, gaps_allowed=gaps_allowed))
        cursor = max(cursor, number)
    return Plan(tuple(receipts), cursor)
