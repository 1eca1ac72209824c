"""A record of a topic as handlers see it: the same from every client, and from the quarantine."""

from dataclasses import dataclass

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Message:
    """A record. Its place is where it lies, and never what it is known by."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int | None = None
    are_headers_readable: bool = True
    """False where the client cannot hand them over; then there are none."""

    def header(self, name: str) -> bytes | None:
        """The value of the last header of this name; None where there is none."""
        return next((value for header, value in reversed(self.headers) if header == name), None)

    @property
    def place(self) -> tuple[str, int]:
        return self.topic, self.partition
