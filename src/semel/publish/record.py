"""A record as the application hands it over. It must hold nothing that a client decides."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Headers: TypeAlias = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True)
class Record:
    """What goes where; the key chooses the partition where none is named, and the client the time."""

    topic: str
    key: bytes | str | None = None
    value: bytes | str | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None
