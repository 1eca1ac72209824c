"""What a person does with messages that were put aside: look at them, have them tried again, or drop them.

Trying again is the loop's work, before anything new. What is dropped is dealt with: its event is a duplicate from then
on. Nothing here hands a message to a handler, and each call is one transaction of the caller's.
"""

from collections.abc import Sequence

from sqlalchemy import Connection

from semel.inbox import asides
from semel.inbox.asides import Entry, State
from semel.inbox.claims import claim_version
from semel.inbox.errors import Unsettled
from semel.inbox.outcomes import Outcome

OPEN = (State.HELD, State.DUE)


def open_entries(connection: Connection, consumer: str | None = None) -> list[Entry]:
    """What waits for a person or for the loop, in the order in which it came."""
    return asides.entries(connection, consumer=consumer, states=OPEN)


def retry(connection: Connection, numbers: Sequence[int]) -> None:
    """Mark as due; the loop of the consumer takes them in the order in which they were put aside."""
    for number in numbers:
        if _open_entry(connection, number).message is None:
            raise Unsettled(
                f"{number} has no message that a loop could take: it was claimed outside of one; deal with it, then "
                "drop it"
            )
        asides.move(connection, number, State.HELD, State.DUE)


def drop(connection: Connection, numbers: Sequence[int], *, first_version: int, now_ms: int) -> None:
    """Have nobody try them again. A version counts as taken, so that the ones behind it can be tried."""
    for number in numbers:
        entry = _open_entry(connection, number)
        version = entry.version
        if version is not None and not _is_passed(
            claim_version(connection, entry.consumer, version, first_version, now_ms)
        ):
            raise Unsettled(
                f"{number} is version {version.version} of {version.aggregate}, and one before it is still missing: "
                "deal with that first"
            )
        if not asides.move(connection, number, entry.state, State.DROPPED):
            raise Unsettled(f"{number} was taken by a loop just now")
        asides.forget_message(connection, number)


def _is_passed(outcome: Outcome) -> bool:
    return outcome in (Outcome.ACCEPTED, Outcome.DUPLICATE)


def _open_entry(connection: Connection, number: int) -> Entry:
    entry = asides.entry_of(connection, number)
    if entry is None or entry.state not in OPEN:
        raise Unsettled(f"there is no {number} in the quarantine" + ("" if entry is None else f" now: {entry.state}"))
    return entry
