"""Records of one partition: a page of them, from an offset or a time on or the last ones, and the pieces of a large
record.

A record is shown as the log holds it, with its claim. A record of an aborted transaction is marked as aborted, with the
marker that aborted it; a record after the last stable offset is marked as held back, because readers of committed
records do not get it yet. A page reads a limited number of bytes, and shows a limited part of each record: the rest
comes in pieces.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from semel.client.aborted import batches
from semel.client.bad_batches import BadBatch, Report, refuse
from semel.client.cluster import Cluster
from semel.client.errors import OffsetOutOfRange
from semel.client.one_fetch import fetched
from semel.client.places import EARLIEST, LATEST, Isolation, Topic, TopicPartition
from semel.client.topics import offsets_of, topic_of
from semel.ui.console.http import PageRefused
from semel.ui.console.query import Query
from semel.wire.errors import ErrorCode
from semel.wire.records import Batch, Record
from semel.wire.sequences import advance

# How many records one page shows.
RECORDS_MAX: Final = 50
# After this many bytes a search stops and reports its progress, and so does the decompression of one answer, after the
# batch that passes the limit. The bytes are counted decompressed, because a small compressed batch may hold many.
SEARCHED_BYTES_MAX: Final = 8 * 1024 * 1024
# The bytes of a batch without its records, and at least those of a record without its key, value and headers.
_BATCH_BYTES: Final = 61
_RECORD_BYTES: Final = 7
# How many bytes after a page are searched for the markers of its aborted transactions.
MARKERS_BYTES_MAX: Final = 2 * 1024 * 1024
# The parts of a record in which a text may be searched.
PARTS: Final = ("both", "key", "value")
# How many bytes of a key or a value a list shows.
SHOWN_BYTES_MAX: Final = 1_000
HEADERS_MAX: Final = 20
# The size of a piece of a large key or value.
PIECE_BYTES: Final = 64 * 1024
# What could mean something to a header of HTTP, or to a file system.
_NOT_IN_FILE_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]")

Answer = dict[str, Any]


def some_records(cluster: Cluster, query: Query) -> Answer:
    """A page of records: `from` is an offset, `earliest` or `latest`, `time` overrides it, and `find` is a text that
    the key or the value has to contain, or only the one that `in` names.
    """
    topic = topic_of(cluster, query.text("topic"))
    where = TopicPartition(topic.name, query.number("partition", 0, most=max(topic.partitions - 1, 0)))
    begin, stable, end = _range(cluster, where)
    start = at = _start(cluster, where, query, begin, end)
    search = _Search(query)
    shown: list[Row] = []
    markers = _Markers()
    searched_bytes = 0
    unreadable: list[BadBatch] = []
    while at < end and len(shown) < RECORDS_MAX and searched_bytes < SEARCHED_BYTES_MAX:
        searched, rows, at = read_from(cluster, topic, where, at, stable, unreadable.append)
        searched_bytes += searched
        for offset, row in rows:
            markers.note(row)
            if not search.finds(row):
                continue
            if len(shown) == RECORDS_MAX:
                at = offset
                break
            shown.append(row)
        if not searched:
            break
    # What comes after the page is not on it, and is told on the next one.
    told = [one for one in unreadable if one.first < at][:RECORDS_MAX]
    markers.look_on(cluster, topic, where, at, stable, shown)
    return {
        "topic": topic.name,
        "partition": where.partition,
        "partitions": topic.partitions,
        "begin": begin,
        "stable": stable,
        "end": end,
        "start": start,
        "records": [_shown(row, stable, markers) for row in shown],
        "unreadable": [{"first": one.first, "last": one.last, "why": one.why} for one in told],
        "next": at if at < end else None,
        "searched_bytes": searched_bytes if search.text else None,
    }


Row = tuple[Batch, Record, bool]


def _range(cluster: Cluster, where: TopicPartition) -> tuple[int, int, int]:
    begin = offsets_of(cluster, [where], EARLIEST)[where]
    stable = offsets_of(cluster, [where], LATEST, Isolation.READ_COMMITTED)[where]
    return begin, stable, offsets_of(cluster, [where], LATEST)[where]


def _start(cluster: Cluster, where: TopicPartition, query: Query, begin: int, end: int) -> int:
    if query.has("time"):
        time_ms = _time_ms(query.text("time").strip())
        ((_, offset),) = cluster.offsets([where], time_ms, Isolation.READ_UNCOMMITTED)
        return end if offset is None else offset
    place = query.text("from", "latest").strip() or "latest"
    if place == "earliest":
        return begin
    if place == "latest":
        return max(end - RECORDS_MAX, begin)
    return min(max(query.number("from"), begin), end)


def _time_ms(text: str) -> int:
    try:
        time = datetime.fromisoformat(text)
        return max(round(time.replace(tzinfo=time.tzinfo or UTC).timestamp() * 1000), 0)
    except (ValueError, OverflowError):
        raise PageRefused(400, "time is written as 2026-01-31T12:00:00Z") from None


def read_from(
    cluster: Cluster,
    topic: Topic,
    where: TopicPartition,
    at: int,
    stable: int,
    report: Report = refuse,
) -> tuple[int, Iterator[tuple[int, Row]], int]:
    """How many bytes one fetch from an offset on had after decompression, its records, and the offset after them. A
    batch that cannot be read is reported, and has no records if the report returns."""
    # Only readers of committed records learn what was aborted, and they get no records after the last stable offset.
    isolation = Isolation.READ_COMMITTED if at < stable else Isolation.READ_UNCOMMITTED
    answer = fetched(cluster, topic, where, at, isolation)
    if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        raise OffsetOutOfRange(f"partition {where} has no offset {at} any more: look again")
    cluster.check(where, answer.error_code, "Read")
    records = answer.records[0] if answer.records else b""
    rows: list[tuple[int, Row]] = []
    next_offset, opened_bytes = at, 0

    def pass_over(bad: BadBatch) -> None:
        nonlocal next_offset, opened_bytes
        if bad.last >= at:
            report(bad)
        next_offset = max(next_offset, bad.last + 1)
        opened_bytes += bad.header.batch_bytes

    for batch, is_aborted in batches(records, answer.aborted_transactions or (), pass_over):
        next_offset = max(next_offset, batch.base_offset + batch.last_offset_delta + 1)
        rows += [(one.offset, (batch, one, is_aborted)) for one in batch.records if one.offset >= at]
        opened_bytes += _BATCH_BYTES + sum(map(_bytes, batch.records))
        if opened_bytes >= SEARCHED_BYTES_MAX:
            break
    return opened_bytes, iter(rows), next_offset


def _bytes(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return _RECORD_BYTES + len(record.key or b"") + len(record.value or b"") + headers


class _Search:
    """The text to find."""

    def __init__(self, query: Query) -> None:
        self.text = query.text("find", "").encode()
        self._part = query.text("in", "both").strip() or "both"
        if self._part not in PARTS:
            raise PageRefused(400, f"in is one of {', '.join(PARTS)}")

    def finds(self, row: Row) -> bool:
        batch, record, _ = row
        if not self.text or batch.is_control:
            return not self.text
        in_key = self._part != "value" and self.text in (record.key or b"")
        return in_key or (self._part != "key" and self.text in (record.value or b""))


class _Markers:
    """The markers of aborted transactions, as far as they were read."""

    def __init__(self) -> None:
        self._aborts: dict[int, list[tuple[int, Batch, Record]]] = {}

    def note(self, row: Row) -> None:
        batch, record, _ = row
        if batch.is_control and _ending(record) == "abort":
            known = self._aborts.setdefault(batch.producer_id, [])
            if not known or known[-1][0] < record.offset:
                known.append((record.offset, batch, record))

    def look_on(
        self, cluster: Cluster, topic: Topic, where: TopicPartition, at: int, stable: int, shown: list[Row]
    ) -> None:
        """Read on from `at` until the markers of all shown aborted records are found; a marker further away is not
        shown.
        """
        looked_bytes = 0
        while at < stable and looked_bytes < MARKERS_BYTES_MAX and self._is_missed(shown):
            # A batch that cannot be read has no marker in it, and was told where the page came to it.
            opened, rows, at = read_from(cluster, topic, where, at, stable, lambda bad: None)
            for _, row in rows:
                self.note(row)
            if not opened:
                return
            looked_bytes += opened

    def _is_missed(self, shown: list[Row]) -> bool:
        return any(is_aborted and self.of(batch, record) is None for batch, record, is_aborted in shown)

    def of(self, batch: Batch, record: Record) -> Answer | None:
        """Which marker aborted this record, when, and whether it has a later epoch than the record."""
        for offset, ending, marker in self._aborts.get(batch.producer_id, ()):
            if offset > record.offset:
                is_later = ending.producer_epoch != batch.producer_epoch
                return {
                    "offset": offset,
                    "time_ms": marker.timestamp_ms,
                    "epoch": ending.producer_epoch,
                    "is_later": is_later,
                }
        return None


def _shown(row: Row, stable: int, markers: _Markers) -> Answer:
    batch, record, is_aborted = row
    is_claimed = batch.producer_id >= 0 and not batch.is_control
    return {
        "offset": record.offset,
        "time_ms": record.timestamp_ms,
        "kind": "marker" if batch.is_control else "aborted" if is_aborted else _commit_state(record, stable),
        "ending": _ending(record) if batch.is_control else None,
        "ended_by": markers.of(batch, record) if is_aborted else None,
        "producer_id": batch.producer_id if batch.producer_id >= 0 else None,
        "producer_epoch": batch.producer_epoch if batch.producer_id >= 0 else None,
        "sequence": advance(batch.base_sequence, record.offset - batch.base_offset) if is_claimed else None,
        "transactional": batch.is_transactional,
        "codec": batch.codec,
        "key": None if batch.is_control else field(record.key),
        "value": None if batch.is_control else field(record.value),
        "headers": [
            {"name": name[:SHOWN_BYTES_MAX], **(field(value) or {})} for name, value in record.headers[:HEADERS_MAX]
        ],
        "headers_left_out": max(len(record.headers) - HEADERS_MAX, 0),
    }


def _commit_state(record: Record, stable: int) -> str:
    return "held" if record.offset >= stable else "committed"


def _ending(record: Record) -> str:
    """What a marker means: its key has two bytes of version, then 0 for an abort or 1 for a commit."""
    return {b"\x00\x00": "abort", b"\x00\x01": "commit"}.get((record.key or b"")[2:4], "another marker")


def field(data: bytes | None, at: int = 0, bytes_max: int = SHOWN_BYTES_MAX) -> Answer | None:
    """A key or a value, or a piece of it: as text if it is UTF-8, otherwise as hexadecimal digits; None for null."""
    if data is None:
        return None
    piece = data[at : at + bytes_max]
    whole: Answer = {"bytes": len(data)}
    if at + len(piece) < len(data):
        # A character at the cut belongs to the next piece.
        cut = len(piece)
        while cut > len(piece) - 4 and cut and data[at + cut] & 0xC0 == 0x80:
            cut -= 1
        try:
            text = piece[:cut].decode()
        except UnicodeDecodeError:
            return {**whole, "hex": piece.hex(), "next": at + len(piece)}
        return {**whole, "text": text, "next": at + cut}
    try:
        return {**whole, "text": piece.decode(), "next": None}
    except UnicodeDecodeError:
        return {**whole, "hex": piece.hex(), "next": None}


def piece_of_record(cluster: Cluster, query: Query) -> Answer:
    """A piece of the key or the value of one record, from the byte `at` on."""
    _, offset, part, data = _part(cluster, query)
    at = query.number("at", 0, most=max(len(data or b""), 0))
    return {"offset": offset, "part": part, "at": at, "piece": field(data, at, PIECE_BYTES)}


def file_of_record(cluster: Cluster, query: Query) -> tuple[str, bytes]:
    """The whole key or value of one record, and a name for a file of it."""
    where, offset, part, data = _part(cluster, query)
    if data is None:
        raise PageRefused(404, f"the {part} at offset {offset} is null")
    return file_name(where, offset, part), data


def file_name(where: TopicPartition, offset: int, part: str) -> str:
    return _NOT_IN_FILE_NAMES.sub("_", f"{where}-{offset}.{part}")


def _part(cluster: Cluster, query: Query) -> tuple[TopicPartition, int, str, bytes | None]:
    """Which key or value of which record is meant, and its bytes."""
    topic = topic_of(cluster, query.text("topic"))
    where = TopicPartition(topic.name, query.number("partition", 0))
    offset = query.number("offset")
    part = query.text("part", "value")
    if part not in ("key", "value"):
        raise PageRefused(400, "part is key or value")
    # With -1 the fetch reads uncommitted records, so that no record is held back.
    _, rows, _ = read_from(cluster, topic, where, offset, stable=-1)
    record = next((row[1] for at, row in rows if at == offset), None)
    if record is None:
        raise PageRefused(404, f"partition {where} has no record at offset {offset}")
    return where, offset, part, record.key if part == "key" else record.value
