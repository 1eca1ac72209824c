"""What must be true of a history, whatever went wrong in it; named as Jepsen names it, where it has a name.

A checker compares what clients were told with what stands in the log in the end, when all has healed. It must never
look into the broker: what no client can see is no anomaly.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sim.consumers import READ_COMMITTED, Seen
from sim.world import Event

Place = tuple[str, int]


@dataclass
class Truth:
    """What a reader finds in the end: by partition, all records and the committed ones."""

    all_records: dict[Place, list[Seen]] = field(default_factory=dict)
    committed: dict[Place, list[Seen]] = field(default_factory=dict)
    # How far each reader came: the stable end and the end.
    ends: dict[Place, tuple[int, int]] = field(default_factory=dict)

    def of(self, isolation: int) -> dict[Place, list[Seen]]:
        return self.committed if isolation == READ_COMMITTED else self.all_records


def events(history: list[Event], what: str) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((event.who, event.particulars) for event in history if event.what == what)


def lost_writes(history: list[Event], truth: Truth, topic: str) -> Iterator[str]:
    """Records that were acknowledged, and are not at the place that was named."""
    for who, acked in events(history, "acked"):
        at = {seen.offset: seen.value for seen in truth.all_records[topic, acked["partition"]]}
        for number, value in enumerate(acked["values"]):
            found = at.get(acked["offset"] + number)
            if found != value:
                yield f"lost write: {who} was told {value} is at {acked['offset'] + number}, there is {found}"


def duplicates(truth: Truth) -> Iterator[str]:
    """Records that stand in the log twice though they were sent once."""
    for place, records in truth.all_records.items():
        for value, count in Counter(seen.value for seen in records).items():
            if count > 1:
                yield f"duplicate: {value} stands {count} times in {place}"


def disorder(truth: Truth, topic: str) -> Iterator[str]:
    """Records of one producer that stand in another order than they were sent in, or with one missing between."""
    for place, records in truth.all_records.items():
        if place[0] != topic:
            continue
        last: dict[str, int] = defaultdict(lambda: -1)
        for seen in records:
            producer, _, number = seen.value.rpartition("/")
            if int(number) != last[producer] + 1:
                yield f"non-monotonic send: {seen.value} at {seen.offset} of {place} follows number {last[producer]}"
            last[producer] = int(number)


def unfaithful_reads(history: list[Event], truth: Truth) -> Iterator[str]:
    """What a consumer saw on its way, against what it would see now: no more, no less, in the same order."""
    final: dict[tuple[int, Place], dict[int, str]] = {
        (isolation, place): {seen.offset: seen.value for seen in records}
        for isolation in (0, 1)
        for place, records in truth.of(isolation).items()
    }
    for who, read in events(history, "read"):
        place = read["topic"], read["partition"]
        there = final[read["isolation"], place]
        begin, end = read["from_offset"], read["next_offset"]
        seen = dict(read["records"])
        if list(seen) != sorted(seen):
            yield f"non-monotonic poll: {who} saw {list(seen)} of {place}"
        for offset, value in seen.items():
            if there.get(offset) != value:
                name = "aborted read" if read["isolation"] and _stands(truth, place, offset, value) else "lost write"
                yield f"{name}: {who} saw {value} at {offset} of {place}, there is {there.get(offset)}"
        for offset in range(begin, end):
            if offset in there and offset not in seen:
                yield f"unseen: {who} went from {begin} to {end} of {place} and did not see {there[offset]} at {offset}"


def _stands(truth: Truth, place: Place, offset: int, value: str) -> bool:
    return any(seen.offset == offset and seen.value == value for seen in truth.all_records[place])


def stuck(truth: Truth) -> Iterator[str]:
    """Partitions whose last stable offset stays behind their end when nobody is at work any more."""
    for place, (stable, end) in truth.ends.items():
        if stable != end:
            yield f"stuck last stable offset: {stable} of {end} in {place}"
