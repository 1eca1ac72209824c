"""How far a broker has looked for damage in its sealed segments, kept over restarts in the file `scrub`.

Nobody reads a segment that was sealed until a consumer wants its records, which may be in a year; the copies of what
the disk has lost by then may be gone as well. The file is a note and no authority: without it, or if it is damaged, the
pass begins again. This must never say that a segment is whole.
"""

import contextlib
import json
from typing import Any, Final, NamedTuple

from semel.log.storage.files import Files

NAME: Final = "scrub"
_BYTES_MAX: Final = 1024 * 1024
# More damaged segments than this say that the disk is gone.
DAMAGED_MAX: Final = 1000


class Scrub(NamedTuple):
    """Where a pass is."""

    # When the pass began, by the time of day.
    began_ms: int
    # The number and the index of the partition, and the offset at which its last verified segment begins.
    place: tuple[int, int, int] = (-1, -1, -1)
    is_over: bool = False
    # On a store: the last object that was read.
    key: str = ""
    # Each damaged segment: its path, how many of its bytes are right, and the offset after these.
    damaged: tuple[tuple[str, int, int], ...] = ()

    def is_due(self, now_ms: float, period_ms: int) -> bool:
        """Whether to go on with the pass, or to begin the next one: a pass that is over is the only one in a period."""
        return not self.is_over or now_ms >= self.began_ms + period_ms


def read(files: Files) -> Scrub | None:
    """The note; None if there is none that can be read."""
    try:
        file = files.open(NAME)
    except FileNotFoundError:
        return None
    with contextlib.closing(file):
        content = bytes(file.read_at(_BYTES_MAX, 0))
    try:
        fields: dict[str, Any] = json.loads(content)
        number, index, offset = fields["place"]
        damaged = tuple((str(path), int(size), int(after)) for path, size, after in fields["damaged"])
        place = int(number), int(index), int(offset)
        return Scrub(int(fields["began_ms"]), place, bool(fields["is_over"]), str(fields["key"]), damaged)
    except (ValueError, LookupError, TypeError):
        return None


def write(files: Files, scrub: Scrub) -> None:
    """Replace the note. After a loss of power it may be an older one, or none."""
    content = json.dumps(scrub._replace(damaged=scrub.damaged[:DAMAGED_MAX])._asdict()).encode()
    file = files.open(NAME, create=True)
    with contextlib.closing(file):
        file.write_at([content], 0)
        file.truncate(len(content))
