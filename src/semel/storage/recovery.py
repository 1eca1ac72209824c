"""From the files back to the state: the last checkpoint, then every entry of the journal behind it.

What a checkpoint remembers of partitions is copied here as well, next to the code that restores it. Every entry is
applied as it was when it was made, by the same `State.apply`. An entry that cannot be applied is `Damaged`, with the
file and the place: recovery skips only what a person has told it to skip (`Repair`), and nothing here may guess.
"""

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
from semel.storage.repair import Repair
from semel.storage.segment import TOPICS, FilePart, SegmentFiles

# The work of copying a partition's state, without the parts that its `weight` counts.
_SNAPSHOT_PIECES: Final = 5


class CannotFollow(Exception):
    """An entry cannot be made true behind those before it."""

    def __init__(self, name: str, why: object) -> None:
        super().__init__(f"{name}: {why}")
        self.name = name
        self.why = why


class Recovered(NamedTuple):
    """Where the journal goes on, and how many bytes of it were replayed."""

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
    """Bring the state to where it was, or let it begin."""
    last = checkpoint.read(files)
    if last is None:
        state.cluster_id = new_cluster_id
        if not journal.is_untouched(files):
            raise Damaged(f"{files.describe(journal.DIRECTORY)}: a journal without a checkpoint")
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
        # What was acknowledged or read before this start may be lost: consumers and owners must be able to tell.
        state.partitions.leader_epoch += 1
        state.transactions.doubt()
    _check_strays(files, state, repair)
    return Recovered(bookmark.life, position, position - bookmark.position)


def remove_strangers(files: Files, segment_files: SegmentFiles, state: State[PartitionLog]) -> None:
    """Remove what a crash left of files that were being made or removed. The checkpoint before may name them."""
    known = {path for partition in state.partitions.all() for path in partition.paths}
    for topic_name in files.names(TOPICS):
        for partition_name in files.names(f"{TOPICS}/{topic_name}"):
            directory = f"{TOPICS}/{topic_name}/{partition_name}"
            for name in files.names(directory):
                if f"{directory}/{name}" not in known:
                    files.remove(f"{directory}/{name}")
            segment_files.remove_empty(directory)
        segment_files.remove_empty(f"{TOPICS}/{topic_name}")


def take_partitions(
    state: State[PartitionLog],
    records: list[dict[str, Any]],
    parts: list[checkpoint.PartitionParts],
    contents: list[FilePart] | None,
) -> Steps[None]:
    """Put the state of all partitions as of now into these lists, in words and packed, and that of all groups where
    `State.begin_snapshot` said; and into the last list the parts of their files, if that is given.

    There may be twenty thousand of them, so they come one after the other; one that is about to change meanwhile is
    taken at that moment.
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
    """Restore what the checkpoint holds; `Damaged`, with the reason, if its bytes are intact and its content is not."""

    def restore_partitions() -> None:
        for record, parts in checkpoint.unpack(snapshot["partitions"], packed):
            state.partitions.named(record["topic"], record["index"]).restore(record, parts)

    try:
        state.restore(repair.mended(snapshot), restore_partitions)
    except (OSError, Damaged):
        raise
    except Exception as error:
        raise Damaged(f"{files.describe(checkpoint.NAME)}: {error!r}") from error


def replay(state: State[PartitionLog], kind: int, payload: memoryview) -> None:
    """Make an entry true that is read back, with its records. Raises CannotFollow."""
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
    """Make an entry of the journal true, or say which one cannot be."""
    try:
        replay(state, stored.kind, stored.payload)
    except CannotFollow as error:
        raise journal.Misfit(files, stored, error.name, error.why) from error


def _write_again(state: State[PartitionLog], entry: Entry) -> None:
    """A segment may have lost what the journal kept of it."""
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
