"""An event: the message that brings it, its identity, and its outcome.

The identity of an event is the id that its producer gave it, or (aggregate, version), and never its place in a topic.
Two texts are the same id only if all bytes are the same. An outcome is true if, and only if, the effect is due. The
functions here depend only on their arguments.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NamedTuple
from uuid import UUID

from semel.database import keys
from semel.database.keys import is_unicode
from semel.metrics.traces import TRACEPARENT

# -- the message -------------------------------------------------------------------------------------------------------


Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Message:
    """A record. Its place says where it is stored, and is never its identity."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None
    are_headers_readable: bool = True
    """False if the client cannot decode the headers; then there are none."""

    def header(self, name: str) -> bytes | None:
        """The value of the last header of this name; None if there is none."""
        return next((value for header, value in reversed(self.headers) if header == name), None)

    @property
    def traceparent(self) -> str | None:
        """The trace in which the event was made; None if it has none."""
        value = self.header(TRACEPARENT)
        return None if value is None else value.decode(errors="replace")

    @property
    def place(self) -> tuple[str, int]:
        return self.topic, self.partition


# -- the outcome -------------------------------------------------------------------------------------------------------


class Outcome(StrEnum):
    """The outcome of an event; true if, and only if, its effect is due."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    GAP = "gap"
    """The version is not the one after the last: at least one in between is missing."""
    QUARANTINED = "quarantined"
    """It may be new or not, because its claim may have been deleted, or it cannot be handled: a person decides."""

    def __bool__(self) -> bool:
        return self is Outcome.ACCEPTED


class UnusableId(ValueError):
    """The value cannot name an event: it is no text, empty, too long, or a database would not keep it as it is."""


class BrokerCoordinates(ValueError):
    """A place in a topic was given as the identity of an event."""

    def __init__(self, value: Any) -> None:
        shown = value if isinstance(value, str) else f"a {type(value).__module__}.{type(value).__qualname__}"
        super().__init__(
            f"{shown} is a place in a topic and no event: an event that its producer sends twice has two places, and "
            "would be taken for new twice; use the id that the producer gave it, or (aggregate, version)"
        )


class IdentityIsPlace(BrokerCoordinates):
    """The program makes identities from places: this is a bug in the program, so no message is put aside because of
    it."""


class HeadersUnreadable(ValueError):
    """Kafka accepts any bytes as the name of a header, but its clients only text."""

    def __init__(self) -> None:
        super().__init__("a header has a name that is not UTF-8, so its client can read none of them")


# -- the identity ------------------------------------------------------------------------------------------------------


# An entry of a PostgreSQL index has at most 2,704 bytes; both texts have to fit into one with four bytes for each
# character.
ID_CHARACTERS_MAX: Final = 512
CONSUMER_CHARACTERS_MAX: Final = 128
# The largest integer that both databases keep.
VERSION_MAX: Final = 2**63 - 1

# Forms in which programs write a place: orders:0:17, orders/0/17, orders-0@17, orders[0]@17.
_COORDINATES: Final = re.compile(r"[\w.\-]+(?::\d+:|/\d+/|-\d+@|\[\d+\]@)\d+", re.ASCII)
# Only with its dashes: 32 digits in a row may be anything, and would contain a time by chance.
_UUID7: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE)


class Version(NamedTuple):
    """Version number `version` of one aggregate. Versions have no gaps."""

    aggregate: str
    version: int


def checked_id(value: str | UUID | None) -> str:
    """The text under which an event is claimed. Raises if the value cannot name an event, or is a place in a topic."""
    if value is None:
        raise UnusableId(
            "there is no event id (None): take the one that the producer gave the event; without, nobody can tell an "
            "event that comes again from a new one"
        )
    if isinstance(value, UUID):
        return str(value)
    _refuse_messages(value)
    text = _checked_text(value, "an event id", ID_CHARACTERS_MAX)
    if _COORDINATES.fullmatch(text):
        raise BrokerCoordinates(text)
    return text


def checked_version(aggregate: str | UUID, version: int) -> Version:
    _refuse_messages(aggregate)
    if isinstance(version, bool) or not isinstance(version, int) or not 0 <= version <= VERSION_MAX:
        raise UnusableId(f"a version is an integer from 0 to 2^63-1, not {version!r}")
    text = aggregate if isinstance(aggregate, str) else str(aggregate)
    return Version(_checked_text(text, "an aggregate", ID_CHARACTERS_MAX), version)


def checked_consumer(value: str) -> str:
    return _checked_text(value, "the name of a consumer", CONSUMER_CHARACTERS_MAX)


def time_of(message_id: str) -> int | None:
    """When the event happened, if its id contains that, as a UUID of version 7 does."""
    return int(message_id[:8] + message_id[9:13], 16) if _UUID7.fullmatch(message_id) else None


def derived_key(consumer: str, event_id: str | UUID, step: str) -> str:
    """The key for one outgoing call of a handler: the same each time the event is handled, in any process.

    It is the SHA-256, in hexadecimal digits, of the three texts in UTF-8, each after its length in four bytes (most
    significant first), so that no two triples give the same bytes.
    """
    return keys.derived_key(checked_consumer(consumer), checked_id(event_id), step)


def _refuse_messages(value: Any) -> None:
    if all(hasattr(value, name) for name in ("topic", "partition", "offset")):
        raise BrokerCoordinates(value)


def _checked_text(value: Any, what: str, characters_max: int) -> str:
    if not isinstance(value, str):
        raise UnusableId(f"{what} is a text, not {type(value).__name__}")
    if not 0 < len(value) <= characters_max:
        raise UnusableId(f"{what} has 1 to {characters_max} characters, not {len(value)}")
    if "\0" in value or not is_unicode(value):
        raise UnusableId(f"{what} holds a character that PostgreSQL cannot keep: {value!r}")
    return value
