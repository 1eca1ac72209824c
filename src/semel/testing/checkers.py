"""Checks what must be true of a history, whatever faults it had. Anomalies have Jepsen's names, if there are any.

A checker compares the answers that clients got with the log in the end, after all faults; each anomaly is one line. It
must never look into the broker: if no client can see something, it is no anomaly.

The value of a record is "SENDER/NUMBER": each sender counts its records, and a sender with a "#" in its name is a
transaction. The events that checkers use, and their particulars:

    acked           topic, partition, offset, values; for zombies also owner, sent_us
    read            topic, partition, isolation, from_offset, next_offset, records: [(offset, value), ...]
    part of         transaction, values
    outcome         transaction, outcome: committed, aborted, refused or unknown; for zombies also owner, sent_us
    claimed         owner: (transactional id, producer id, epoch)
    offsets of      transaction, group, topic, offsets: {partition: offset}
    offsets seen    group, topic, offsets: [offset, ...], asked_us
    commit sent     group, topic, partition, offset
    commit answered group, topic, partition, offset, error
    assigned        group, generation, member, partitions
    group_emptied
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

Place = tuple[str, int]
READ_COMMITTED: Final = 1


class Event(NamedTuple):
    """Something that a client saw: when, which client, what, and the particulars."""

    at_us: int
    who: str
    what: str
    particulars: dict[str, Any]

    def __str__(self) -> str:
        particulars = " ".join(f"{name}={value!r}" for name, value in self.particulars.items())
        return f"{self.at_us:>12} {self.who:<14} {self.what} {particulars}".rstrip()


class Seen(NamedTuple):
    """A record and its offset."""

    offset: int
    value: str
    # The record that it is a copy of, if it is a copy.
    origin: str = ""


class Gone(Protocol):
    """Which records may be missing in the end, for example because compaction has removed them."""

    def has(self, value: str) -> bool:
        """Whether this committed record may be gone."""

    def may_lack(self, value: str) -> bool:
        """Whether this record may be gone, committed or not."""


class Nothing:
    """No record may be missing: the `Gone` of topics that are not compacted."""

    def has(self, value: str) -> bool:
        return False

    def may_lack(self, value: str) -> bool:
        return False


NOTHING: Final = Nothing()


@dataclass
class Truth:
    """The records that a reader finds in the end, by partition: all of them, and the committed ones."""

    all_records: dict[Place, list[Seen]] = field(default_factory=dict)
    committed: dict[Place, list[Seen]] = field(default_factory=dict)
    # The committed offset of each group in each partition.
    offsets: dict[tuple[str, Place], int] = field(default_factory=dict)
    # The last stable offset and the end of each partition.
    ends: dict[Place, tuple[int, int]] = field(default_factory=dict)

    def of(self, isolation: int) -> dict[Place, list[Seen]]:
        return self.committed if isolation == READ_COMMITTED else self.all_records


def events(history: list[Event], what: str) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((event.who, event.particulars) for event in history if event.what == what)


def lost_writes(history: list[Event], truth: Truth, gone: Gone = NOTHING) -> Iterator[str]:
    """Records that were acknowledged, and are not at the offset of the acknowledgement."""
    at = {place: {record.offset: record.value for record in records} for place, records in truth.all_records.items()}
    for who, acked in events(history, "acked"):
        place = acked["topic"], acked["partition"]
        if place not in at:
            # The topic was deleted.
            continue
        there = at[place]
        for offset, value in enumerate(acked["values"], start=acked["offset"]):
            if there.get(offset) != value and not (offset not in there and gone.may_lack(value)):
                yield f"lost write: {who} was told {value} is at {offset}, there is {there.get(offset)}"


def duplicates(truth: Truth) -> Iterator[str]:
    """Records that the log holds twice, though they were sent once."""
    for place, records in truth.all_records.items():
        for value, count in Counter(record.value for record in records).items():
            if count > 1:
                yield f"duplicate: {value} stands {count} times in {place}"


def disorder(truth: Truth, *, dense: Collection[str]) -> Iterator[str]:
    """Records of one sender that are stored in another order than they were sent.

    In `dense` topics a sender counts the records of each partition separately, so that no number may be missing.
    """
    for place, records in truth.all_records.items():
        last: dict[str, int] = defaultdict(lambda: -1)
        for record in records:
            sender, _, number = record.value.rpartition("/")
            step = int(number) - last[sender]
            if step < 1 or (step > 1 and place[0] in dense):
                yield f"non-monotonic send: {record.value} at {record.offset} of {place} follows number {last[sender]}"
            last[sender] = int(number)


def unfaithful_reads(history: list[Event], truth: Truth, gone: Gone = NOTHING) -> Iterator[str]:
    """Reads on the way that differ from what the consumer would see now: each has to have the same records, in the same
    order.
    """
    final: dict[tuple[int, Place], dict[int, str]] = {
        (isolation, place): {record.offset: record.value for record in records}
        for isolation in (0, 1)
        for place, records in truth.of(isolation).items()
    }
    for who, read in events(history, "read"):
        place = read["topic"], read["partition"]
        if (read["isolation"], place) not in final:
            continue
        there = final[read["isolation"], place]
        begin, end = read["from_offset"], read["next_offset"]
        values_by_offset = dict(read["records"])
        if list(values_by_offset) != sorted(values_by_offset):
            yield f"non-monotonic poll: {who} saw {list(values_by_offset)} of {place}"
        may_lack = gone.has if read["isolation"] == READ_COMMITTED else gone.may_lack
        for offset, value in values_by_offset.items():
            if there.get(offset) != value and not (offset not in there and may_lack(value)):
                name = "aborted read" if read["isolation"] and _stands(truth, place, offset, value) else "lost write"
                yield f"{name}: {who} saw {value} at {offset} of {place}, there is {there.get(offset)}"
        for offset in range(begin, end):
            # A broker that has taken over may have what its predecessor had compacted away.
            if offset in there and offset not in values_by_offset and not may_lack(there[offset]):
                yield f"unseen: {who} went from {begin} to {end} of {place} and did not see {there[offset]} at {offset}"


def _stands(truth: Truth, place: Place, offset: int, value: str) -> bool:
    return any(record.offset == offset and record.value == value for record in truth.all_records[place])


def stuck(truth: Truth) -> Iterator[str]:
    """Partitions whose last stable offset stays below their end after all clients have ended."""
    for place, (stable, end) in truth.ends.items():
        if stable != end:
            yield f"stuck last stable offset: {stable} of {end} in {place}"


def broken_transactions(history: list[Event], truth: Truth, gone: Gone = NOTHING) -> Iterator[str]:
    """Transactions that are only partly visible, or whose visibility contradicts the outcome that their producer
    knows.
    """
    visible = {record.value for records in truth.committed.values() for record in records}
    ended = outcomes(history)
    parts: dict[str, list[str]] = {}
    for _, part in events(history, "part of"):
        parts[part["transaction"]] = part["values"]
    for transaction, values in parts.items():
        # A transaction whose commit was never sent counts as aborted.
        outcome = ended.get(transaction, "left")
        visible_values = [value for value in values if value in visible]
        missing = [value for value in values if value not in visible and not gone.has(value)]
        if outcome == "committed" and missing:
            yield f"lost write: {transaction} was committed, {missing} are not to be seen"
        elif outcome in ("aborted", "refused", "left") and visible_values:
            yield f"aborted read: {transaction} was {outcome}, and {visible_values} are to be seen"
        elif outcome == "unknown" and visible_values and missing:
            yield f"torn transaction: of {transaction} only {visible_values} are to be seen"


def zombies(history: list[Event]) -> Iterator[str]:
    """Requests of an owner of a transactional id that succeeded, though they were sent after its successor's claim was
    answered.
    """
    claims: dict[str, list[tuple[int, tuple[int, int]]]] = defaultdict(list)
    for event in history:
        if event.what == "claimed":
            transactional_id, *generation = event.particulars["owner"]
            claims[transactional_id].append((event.at_us, (generation[0], generation[1])))
    for event in history:
        if event.what not in ("acked", "outcome") or "owner" not in event.particulars:
            continue
        transactional_id, *generation = event.particulars["owner"]
        sent_us = event.particulars["sent_us"]
        for claimed_us, claim in claims.get(transactional_id, ()):
            if claimed_us < sent_us and (generation[0], generation[1]) < claim:
                yield f"zombie write: {event.who} in {generation} at {sent_us}, fenced by {claim} at {claimed_us}"


def is_transaction(sender: str) -> bool:
    return "#" in sender


def outcomes(history: list[Event]) -> dict[str, str]:
    """How each transaction ended, as far as its producer knows; without transactions whose commit was never sent."""
    return {known["transaction"]: known["outcome"] for _, known in events(history, "outcome")}


def unfaithful_copies(truth: Truth, group: str, source: str, target: str) -> Iterator[str]:
    """Partitions of the copy that do not hold each committed record below the group's offset once and in order."""
    for place, records in truth.committed.items():
        if place[0] != source:
            continue
        wanted = [record.value for record in records if record.offset < truth.offsets[group, place]]
        copies = [record.origin for record in truth.committed[target, place[1]]]
        if copies != wanted:
            missing, doubled = Counter(wanted) - Counter(copies), Counter(copies) - Counter(wanted)
            name = "lost write" if missing else "duplicate" if doubled else "non-monotonic send"
            yield f"{name}: copies of {place} lack {dict(missing)}, hold beyond {dict(doubled)}"


def dirty_offsets(history: list[Event], group: str) -> Iterator[str]:
    """Offsets of a group that a client saw though their transaction was not committed, or that went back."""
    ended = outcomes(history)
    possible: dict[tuple[str, str, int], set[int]] = defaultdict(lambda: {-1})
    for _, moved in events(history, "offsets of"):
        if ended.get(moved["transaction"]) in ("committed", "unknown"):
            for partition, offset in moved["offsets"].items():
                possible[moved["group"], moved["topic"], partition].add(offset)
    shown: dict[tuple[str, str, int], list[tuple[int, int]]] = defaultdict(list)
    for event in history:
        if event.what != "offsets seen" or event.particulars["group"] != group:
            continue
        particulars = event.particulars
        for partition, offset in enumerate(particulars["offsets"]):
            place = particulars["group"], particulars["topic"], partition
            if offset not in possible[place]:
                yield f"dirty offsets: {event.who} was shown {offset} of {place}"
            # Compared only with offsets that were known when the request was sent, because an answer may take some
            # time.
            before = max((known for at_us, known in shown[place] if at_us < particulars["asked_us"]), default=-1)
            if offset < before:
                yield f"non-monotonic offsets: {event.who} was shown {offset} of {place} after {before}"
            shown[place].append((event.at_us, offset))


def lost_commits(history: list[Event], group: str) -> Iterator[str]:
    """Acknowledged or shown offsets that are not shown later, for a group in which one client commits.

    There is one exception: a commit whose answer was lost may arrive late, and then counts.
    """
    stands: dict[Place, int] = defaultdict(lambda: -1)
    unanswered: dict[Place, set[int]] = defaultdict(set)
    for event in history:
        particulars = event.particulars
        if particulars.get("group") != group:
            continue
        if event.what == "commit sent":
            unanswered[particulars["topic"], particulars["partition"]].add(particulars["offset"])
        elif event.what == "commit answered":
            unanswered[particulars["topic"], particulars["partition"]].remove(particulars["offset"])
            if not particulars["error"]:
                stands[particulars["topic"], particulars["partition"]] = particulars["offset"]
        elif event.what == "offsets seen":
            for partition, offset in enumerate(particulars["offsets"]):
                place = particulars["topic"], partition
                if offset in unanswered[place]:
                    unanswered[place].remove(offset)
                    stands[place] = offset
                elif offset != stands[place]:
                    yield f"lost commit: {event.who} was shown {offset} in {place} by {group}, not {stands[place]}"


def shared_ownership(history: list[Event]) -> Iterator[str]:
    """Partitions that were assigned to two members of a group in one generation.

    A group that was empty and goes on with the other protocol counts its generations from the start.
    """
    owners: dict[tuple[str, int, int], str] = {}
    for event in history:
        if event.what == "group_emptied":
            owners.clear()
        if event.what != "assigned":
            continue
        assignment = event.particulars
        for partition in assignment["partitions"]:
            place = assignment["group"], assignment["generation"], partition
            owner = owners.setdefault(place, assignment["member"])
            if owner != assignment["member"]:
                yield f"two owners: {owner} and {assignment['member']} were both given {place}"
