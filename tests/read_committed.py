"""The rule by which a client leaves out what was aborted, batch after batch, as Java's client follows it.

It is what the real readers are held against: it must never know how they do it.
"""

from collections.abc import Iterable, Iterator

from semel.wire.batch import read_header
from semel.wire.records import Batch, decode_batches

# Where the key of a marker's record ends with the marker's type, and the type of one that aborts.
_MARKER_TYPE_AT = 69
_ABORT = 0


def batches_in(data: bytes) -> Iterator[bytes]:
    """Batches that lie one behind the other."""
    at = 0
    while at < len(data):
        end = at + read_header(data, at).batch_bytes
        yield bytes(data[at:end])
        at = end


def unaborted(batches: Iterable[bytes], aborted: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """The batches that a client shows, by the list of the aborted that came with them: producer id, first offset."""
    to_come = sorted(aborted, key=lambda transaction: transaction[1])
    aborting: set[int] = set()
    for stored in batches:
        header = read_header(stored)
        while to_come and to_come[0][1] < header.next_offset:
            aborting.add(to_come.pop(0)[0])
        if header.is_control:
            if stored[_MARKER_TYPE_AT : _MARKER_TYPE_AT + 1] == bytes([_ABORT]):
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            yield stored


def shown(records: bytes, aborted: Iterable[tuple[int, int]]) -> Iterator[Batch]:
    """The same, of what a fetch brought, and open to be looked into."""
    for stored in unaborted(batches_in(records), aborted):
        yield from decode_batches(stored)
