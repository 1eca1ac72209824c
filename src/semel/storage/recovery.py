"""Recovery: restores the state from the last checkpoint and from every entry of the journal after it.

This module also copies the state of partitions for a checkpoint, next to the code that restores it. `State.apply`
applies every entry, as it did in service. An entry that cannot be applied is `Damaged`, with the file and the place:
recovery skips only the entries that a person has told it to skip (`Repair`), and nothing here may guess.
"""

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from semel.core.batch import read_header
from semel.core.entries import BatchAppended, Entry, TransactionEnded
from semel.core.state import State
from semel.core.steps import Steps
from semel.storage import checkpoint, journal
from semel.storage.encoding import decode, name_of
from semel.storage.files import Files
from semel.storage.journal import Bookmark, Damaged
from semel.storage.markers import write_markers
from semel.storage.partition_log import PartitionLog
from semel.storage.producer_pages import ProducerPages
from semel.storage.repair import Repair
from semel.storage.segment import TOPICS, FilePart, SegmentFiles

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
    """Where the journal continues, and how many bytes of it were replayed."""

    life: int
    position: int
    replayed_bytes: int


def recover(
    files: Files,
    state: State[PartitionLog],
    new_cluster_id: str,
    on_progress: Callable[[int], None] | None,
    repair: Repair,
) -> Recovered:
    """Restore the state, or begin with an empty one."""
    last = checkpoint.read(files)
    if last is None:
        state.cluster_id = new_cluster_id
        refuse_lost_checkpoint(files)
        return Recovered(0, 0, 0)
    snapshot, packed = last
    bookmark = Bookmark(*snapshot["journal"])
    position = bookmark.position
    bring_back(files, state, snapshot, packed, repair)
    for entry in () if snapshot["clean"] else journal.read(files, bookmark):
        if entry.position not in repair.skipped_positions:
            _replay(files, state, entry)
        position = entry.end
        if on_progress is not None:
            on_progress(position - bookmark.position)
    if snapshot.get("acknowledges_unsynced") and not snapshot["clean"]:
        # Records that were acknowledged or read before may be lost: consumers and transactional producers must notice.
        state.partitions.leader_epoch += 1
        state.transactions.doubt()
    _check_strays(files, state, repair)
    return Recovered(bookmark.life, position, position - bookmark.position)


def refuse_lost_checkpoint(files: Files) -> None:
    """`Damaged` if a directory without a checkpoint holds a log all the same: an empty log would remove the records."""
    if not journal.is_untouched(files):
        raise Damaged(f"{files.describe(journal.DIRECTORY)}: a journal without a checkpoint")
    if any(_partition_directories(files, topic) for topic in _topic_directories(files)):
        raise Damaged(f"{files.describe(TOPICS)}: records without a checkpoint")


def remove_strangers(files: Files, segment_files: SegmentFiles, state: State[PartitionLog]) -> None:
    """Remove files that no partition has: a crash interrupted their creation or removal. What semel does not write
    there, such as the files in which a desktop notes how a directory is shown, is left alone.
    """
    known_paths = {path for partition in state.partitions.all() for path in partition.paths}
    for topic in _topic_directories(files):
        for directory in _partition_directories(files, topic):
            for name in files.names(directory):
                if f"{directory}/{name}" not in known_paths and _OWN_FILE.fullmatch(name):
                    files.remove(f"{directory}/{name}")
            segment_files.remove_empty(directory)
        segment_files.remove_empty(topic)
    pages = [page for partition in state.partitions.all() for page in partition.state.producers.pages]
    for path in ProducerPages(files).unneeded(pages):
        files.remove(path)


def _topic_directories(files: Files) -> list[str]:
    return [f"{TOPICS}/{name}" for name in files.names(TOPICS) if _OWN_TOPIC.fullmatch(name)]


def _partition_directories(files: Files, topic: str) -> list[str]:
    return [f"{topic}/{name}" for name in files.names(topic) if name.isdecimal()]


def take_partitions(
    state: State[PartitionLog],
    records: list[dict[str, Any]],
    parts: list[checkpoint.PartitionParts],
    contents: list[FilePart] | None,
) -> Steps[None]:
    """Copy the state of all partitions as of now into `records` and `parts`, the parts of their files into `contents`
    if it is given, and the state of all groups into the snapshot that `State.begin_snapshot` began.

    There may be twenty thousand partitions, so they are copied one by one; a partition that is about to change before
    its turn is copied at that moment.
    """

    def take(partition: PartitionLog) -> None:
        partition.keeper = None
        if partition.has_history:
            records.append(partition.to_record())
            parts.append(partition.to_parts())
            if contents is not None:
                contents.extend(partition.contents)

    partitions = state.partitions.all()
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
    files: Files, state: State[PartitionLog], snapshot: dict[str, Any], packed: memoryview, repair: Repair
) -> None:
    """Restore the state from a checkpoint; `Damaged`, with the reason, if its bytes are intact but its content is
    wrong.
    """

    def restore_partitions() -> None:
        for record, parts in checkpoint.unpack(snapshot["partitions"], packed, files):
            state.partitions.named(record["topic"], record["index"]).restore(record, parts)

    try:
        state.restore(repair.mended(snapshot), restore_partitions)
    except (OSError, Damaged):
        raise
    except Exception as error:
        raise Damaged(f"{files.describe(checkpoint.NAME)}: {error!r}") from error


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
            raise Damaged(
                f"{files.describe(partition.directory)}: a transaction of producer {producer_id} is open from "
                f"offset {partition.state.open_transactions[producer_id]} on, and no transactional id has it"
            )
        for entry in entries:
            state.apply(entry)
