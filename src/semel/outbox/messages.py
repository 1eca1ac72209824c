"""A message: as the application adds it, as it lies in the table, and as the record that it becomes.

What can be no record, or would not come out of the table as it went in, is refused when it is added: there somebody can
still mend it.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from semel.outbox.errors import MessageRefused
from semel.publish.rules import Headers, Record

_BUCKET_BYTES: Final = 4
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class Message:
    """What is to become a record. Order is kept among those of one aggregate: the key, if nothing else is said."""

    topic: str
    key: bytes | str | None = None
    value: bytes | str | None = None
    headers: Headers = ()
    aggregate: bytes | str | None = None


def columns_of(message: Message, added_at_ms: int) -> dict[str, Any]:
    """The columns of a new row."""
    if not isinstance(message.topic, str) or not _TOPIC.fullmatch(message.topic) or message.topic in (".", ".."):
        raise MessageRefused(f"{message.topic!r} is no topic: letters, digits, '.', '_' and '-', 249 at most")
    key = _bytes("a key", message.key)
    aggregate = key if message.aggregate is None else _bytes("an aggregate", message.aggregate)
    return {
        "topic": message.topic,
        "key": key,
        "value": _bytes("a value", message.value),
        "headers": _headers_text(message.headers),
        "aggregate": aggregate,
        "bucket": _bucket(aggregate),
        "added_at_ms": added_at_ms,
    }


def record_of(topic: str, key: bytes | None, value: bytes | None, headers: str | None, added_at_ms: int) -> Record:
    """What a row becomes. Its time in the log is when it was added."""
    return Record(topic, key, value, _headers_of(headers) if headers else (), timestamp_ms=added_at_ms)


def _headers_of(text: str) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((name, None if value is None else bytes.fromhex(value)) for name, value in json.loads(text))


def _bucket(aggregate: bytes | None) -> int:
    """The same in every process and version. What has no aggregate is together, and so keeps its order, too."""
    return int.from_bytes(hashlib.blake2b(aggregate or b"", digest_size=_BUCKET_BYTES).digest())


def _headers_text(headers: Headers) -> str | None:
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    if not pairs:
        return None
    written = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise MessageRefused(f"{pair!r} is no header: a name and a value are, in a mapping or as pairs")
        name, value = pair
        _bytes("a header's name", name)
        if "\0" in name:
            raise MessageRefused(f"{name!r} is no name of a header: librdkafka would end it at the NUL")
        found = _bytes("a header's value", value)
        written.append([name, None if found is None else found.hex()])
    return json.dumps(written)


def _bytes(what: str, given: bytes | str | None) -> bytes | None:
    if isinstance(given, str):
        try:
            return given.encode()
        except UnicodeEncodeError:
            raise MessageRefused(f"{what} is text with half a character in it, {given!r}: hand over bytes") from None
    if given is None or isinstance(given, bytes):
        return given
    raise MessageRefused(f"{what} is bytes, text or None, and not {type(given).__qualname__}")
