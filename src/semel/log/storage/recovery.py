"""Recovery: restores the state from the last checkpoint and from every entry of the journal after it.

This module also copies the state of partitions for a checkpoint, next to the code that restores it. `State.apply`
applies every entry, as it did in service. An entry that cannot be applied is `Damaged`, with the file and the place:
recovery skips only the entries that a person has told it to skip (`Repair`), and nothing here may guess.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Final, NamedTuple

from semel.log.core.entries import BatchAppended, Entry, TransactionEnded
from semel.log.core.state import State
from semel.log.storage import checkpoint, end_notes, journal
from semel.log.storage.aside import Aside
from semel.log.storage.cache import refuse_cache
from semel.log.storage.encoding import decode, name_of
from semel.log.storage.end_notes import NOTHING_KNOWN, Note
from semel.log.storage.files import Files
from semel.log.storage.journal import Bookmark, Damaged, JournalEntry, Lost
from semel.log.storage.markers import write_markers
from semel.log.storage.partition_log import PartitionLog
from semel.log.storage.producer_pages import ProducerPages
from semel.log.storage.repair import Repair
from semel.log.storage.segment import TOPICS, Proven, Segment
from semel.log.storage.segment_files import SegmentFiles
from semel.log.storage.verification import Verification, aborted_in, intact_batches
from semel.wire.batch import read_header
from semel.wire.checksum import crc32c
from semel.wire.steps import Steps

# The names of the directories of topics, and of the files in the directory of a partition.
_OWN_TOPIC: Final = re.compile(r"[0-9]+-.+")
_OWN_FILE: Final = re.compile(r"[0-9]{20}(-[0-9]+)?\.log|[0-9]{20}\.aborted")
# The work of copying a partition's state, besides its `weight`.
_SNAPSHOT_PIECES: Final = 5


class CannotFollow(Exception):
    """An entry that cannot be applied after those before it."""

    def __init__(self, name: str, why: object) -> None:
        super().__init__(f"{name}: {why}")
        self.name = name
        self.why = why


class Recovered(NamedTuple):
    """Where the journal continues, how many bytes of it were replayed, and what was noted beside it."""

    life: int
    position: int
    replayed_bytes: int
    note: Note
    # How much the checkpoint has of the files that grow.
    proven: dict[str, Proven]


def recover(
    files: Files,
    state: State[PartitionLog],
    new_cluster_id: str | None,
    on_progress: Callable[[int], None] | None,
    repair: Repair,
    verified_bytes_max: int,
    aside: Aside,
) -> Recovered:
    """Restore the state, or begin with an empty one; `Damaged` if there is none, and none may be begun. What lies after
    the end of the journal and of the partitions is put aside.
    """
    refuse_cache(files)
    last = checkpoint.read(files)
    note = end_notes.read(files)
    if last is None:
        refuse_lost_checkpoint(files, note)
        if new_cluster_id is None:
            raise Damaged(f"{files.describe('')}: holds no log, and none may be begun there")
        state.cluster_id = new_cluster_id
        # The entries of another broker's journal have other lives, so none of them is taken for one of this journal.
        return Recovered(crc32c(new_cluster_id.encode()), 0, 0, note or NOTHING_KNOWN, {})
    snapshot, packed = last
    bookmark = Bookmark(*snapshot["journal"])
    position = bookmark.position
    try:
        note = check_note(files, note, snapshot)
    except Lost as lost:
        repair.lose(lost)
        note = NOTHING_KNOWN
    bring_back(files, state, snapshot, packed, repair, Verification(files, verified_bytes_max))
    proven = checkpoint.proven_in(partition.to_files() for partition in state.partitions.used())
    try:
        for entry in entries_after(files, snapshot, note):
            if entry.position not in repair.skipped_positions:
                _replay(files, state, entry)
            position = entry.end
            if on_progress is not None:
                on_progress(position - bookmark.position)
    except Lost as lost:
        repair.lose(lost)
    if snapshot["acknowledges_unsynced"] and not snapshot["clean"]:
        # Records that were acknowledged or read before may be lost: consumers and transactional producers must notice.
        state.partitions.leader_epoch += 1
        state.transactions.doubt()
    _check_strays(files, state, repair)
    _cut_tails(files, state, aside, repair.lose if end_notes.is_same_run(note, files) else None)
    aside.move(journal.strays(files, position))
    return Recovered(bookmark.life, position, position - bookmark.position, note, proven)


def check_note(files: Files, note: Note | None, snapshot: dict[str, Any]) -> Note:
    """The note beside the journal; `Lost` if it is gone, and `Damaged` if it is that of another log."""
    where = files.describe(end_notes.NAME)
    if note is None:
        raise Lost(f"{where}: missing or damaged, and only it says how far the journal went")
    if note.cluster != end_notes.digest_of(snapshot["cluster_id"]):
        raise Damaged(f"{where}: names another cluster than the checkpoint: one of the two is another broker's")
    return note


def entries_after(files: Files, snapshot: dict[str, Any], note: Note) -> Iterator[JournalEntry]:
    """The entries of the journal after a checkpoint. `Lost` in the end if there were more."""
    bookmark = Bookmark(*snapshot["journal"])
    if not snapshot["clean"]:
        yield from journal.read(files, bookmark, note)
    elif missing := journal.missing_after(note, bookmark.position):
        raise Lost(f"{files.describe(checkpoint.NAME)}: an older one, the log went on after it{missing}")


def refuse_lost_checkpoint(files: Files, note: Note | None) -> None:
    """`Damaged` if a directory without a checkpoint holds a log all the same: an empty log would hide the records."""
    if note is not None and note.has_log:
        raise Damaged(f"{files.describe(checkpoint.NAME)}: missing, though a log was kept here")
    if not journal.is_untouched(files):
        raise Damaged(f"{files.describe(journal.DIRECTORY)}: a journal without a checkpoint")
    if any(_partition_directories(files, topic) for topic in _topic_directories(files)):
        raise Damaged(f"{files.describe(TOPICS)}: records without a checkpoint")


def put_away_strangers(
    files: Files,
    segment_files: SegmentFiles,
    state: State[PartitionLog],
    put_away: Callable[[list[str]], None],
) -> None:
    """Call `put_away` with the files that no partition has: a crash interrupted their creation or removal. What semel
    does not write there, such as the files in which a desktop notes how a directory is shown, is left alone.
    """
    known_paths = {path for partition in state.partitions.used() for path in partition.paths}
    for topic in _topic_directories(files):
        for directory in _partition_directories(files, topic):
            own = [f"{directory}/{name}" for name in files.names(directory) if _OWN_FILE.fullmatch(name)]
            put_away([path for path in own if path not in known_paths])
            segment_files.remove_empty(directory)
        segment_files.remove_empty(topic)
    pages = [page for partition in state.partitions.used() for page in partition.state.producers.pages]
    put_away(ProducerPages(files).unneeded(pages))


def _cut_tails(files: Files, state: State[PartitionLog], aside: Aside, lose: Callable[[Lost], None] | None) -> None:
    """Cut what lies after the end of each partition, and keep a copy of it if it has a whole batch, which the journal
    does not have. `lose` is given if the machine has run without a break: then a kill explains one such batch and no
    more.
    """
    for partition in state.partitions.used():
        if partition.segments and partition.segments[-1].size:
            last = partition.segments[-1]
            count = _count_after(files, last, partition.state.next_offset)
            if count > 1 and lose is not None:
                where = files.describe(last.path)
                lose(
                    Lost(
                        f"{where}: has batches after its end at offset {last.size}, from offset {last.next_offset} of "
                        "the partition on, and the journal no longer has them"
                    )
                )
            if count:
                aside.copy(last.path, last.size)
        partition.cut_after_end()


def _count_after(files: Files, segment: Segment, offset: int) -> int:
    """How many batches that continue the partition lie after the end of its last segment, up to two."""
    count = 0
    file = files.open(segment.path)
    with closing(file):
        size = file.size()
        for _, header in intact_batches(file, size, segment.size) if size > segment.size else ():
            if header is None or header.base_offset != offset or count == 2:
                break
            offset = header.next_offset
            count += 1
    return count


def _topic_directories(files: Files) -> list[str]:
    return [f"{TOPICS}/{name}" for name in files.names(TOPICS) if _OWN_TOPIC.fullmatch(name)]


def _partition_directories(files: Files, topic: str) -> list[str]:
    return [f"{topic}/{name}" for name in files.names(topic) if name.isdecimal()]


def take_partitions(
    state: State[PartitionLog],
    records: list[dict[str, Any]],
    parts: list[checkpoint.PartitionParts],
    files: list[checkpoint.PartitionFiles],
) -> Steps[None]:
    """Copy the state of all partitions as of now into `records`, `parts` and `files`, and the state of all groups into
    the snapshot that `State.begin_snapshot` began.

    There may be twenty thousand partitions, so they are copied one by one; a partition that is about to change before
    its turn is copied at that moment.
    """

    def take(partition: PartitionLog) -> None:
        partition.keeper = None
        if partition.has_history:
            records.append(partition.to_record())
            parts.append(partition.to_parts())
            files.append(partition.to_files())

    partitions = state.partitions.used()
    for partition in partitions:
        partition.keeper = take
    try:
        for partition in partitions:
            if partition.keeper is not None:
                take(partition)
            yield _SNAPSHOT_PIECES + partition.weight
        yield from state.groups.take_all()
    finally:
        state.groups.end_snapshot()
        for partition in partitions:
            partition.keeper = None


def bring_back(
    files: Files,
    state: State[PartitionLog],
    snapshot: dict[str, Any],
    packed: memoryview,
    repair: Repair,
    verification: Verification,
) -> None:
    """Restore the state from a checkpoint; `Damaged`, with the reason, if its bytes are intact but its content is
    wrong, and `Lost` if its segments are not what it says.
    """

    def restore_partitions() -> None:
        for record, parts in checkpoint.unpack(snapshot["partitions"], packed, files):
            partition = state.partitions.named(record["topic"], record["index"])
            partition.restore(verification.passed(record, partition.directory, repair.lose, repair.keep), parts)
            try:
                verification.check_blocks(partition.aborted)
            except Lost as lost:
                _find_aborted_again(files, partition, lost)
                repair.lose(Lost(f"{lost}; the records of the partition tell which these were", lost.paths))

    try:
        state.restore(repair.mended(snapshot), restore_partitions)
    except (OSError, Damaged):
        raise
    except Exception as error:
        raise Damaged(f"{files.describe(checkpoint.NAME)}: {error!r}") from error


def _find_aborted_again(files: Files, partition: PartitionLog, lost: Lost) -> None:
    """Have the records tell which transactions were aborted; `Damaged` if these have lost something as well."""
    segments = [segment for segment in partition.segments if segment.size]
    floor = partition.state.aborted.floor
    # Compaction may have removed markers below the floor. What was deleted has only made the log shorter.
    begin = floor if floor > partition.state.log_start or not segments else segments[0].base_offset
    found = None if partition.given_up else aborted_in(files, segments, begin)
    if found is None or not partition.aborted.replace_all(found, begin):
        raise Damaged(f"{lost}, and the records of the partition are damaged as well")


def replay(state: State[PartitionLog], kind: int, payload: memoryview) -> None:
    """Apply an entry that was read from a journal, and write its records. Raises CannotFollow."""
    name = f"kind {kind}"
    try:
        entry = decode(kind, payload)
        name = name_of(entry)
        state.check(entry)
        _write_again(state, entry)
        state.apply(entry)
    except (OSError, Damaged):
        raise
    except Exception as error:
        raise CannotFollow(name, error if isinstance(error, ValueError) else repr(error)) from error


def _replay(files: Files, state: State[PartitionLog], stored: journal.JournalEntry) -> None:
    """Apply an entry of the journal; `Misfit` with its place if it cannot be applied."""
    try:
        replay(state, stored.kind, stored.payload)
    except CannotFollow as error:
        raise journal.Misfit(files, stored, error.name, error.why) from error


def _write_again(state: State[PartitionLog], entry: Entry) -> None:
    """Write the records of an entry to their segments again: a crash may have lost them there."""
    if isinstance(entry, BatchAppended):
        configs = state.catalog.known(entry.number).parsed
        partition = state.partitions.named(entry.number, entry.partition)
        partition.write(read_header(entry.batch), entry.batch, entry.at_ms, configs)
    elif isinstance(entry, TransactionEnded):
        write_markers(state, entry)


def _check_strays(files: Files, state: State[PartitionLog], repair: Repair) -> None:
    for partition, producer_id in state.strays():
        entries = repair.adoption(partition, producer_id, state.transactions)
        if not entries:
            raise Lost(
                f"{files.describe(partition.directory)}: a transaction of producer {producer_id} is open from "
                f"offset {partition.state.open_transactions[producer_id]} on, and no transactional id has it"
            )
        for entry in entries:
            state.apply(entry)
