"""Moves a whole log from a directory into a store, and back, while no broker is at work on it.

In a store it becomes the first checkpoint, so nobody has to replay anything. Out of a store comes what a broker would
take over: the newest checkpoint and the journal behind it. This puts up a fence as a broker would, so one that comes
back later can write nothing that the directory does not have. Every byte is compared with its digest at its new place
before the old one is given up.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from semel.core.slots import BrokenHistory, History
from semel.core.steps import finish
from semel.replica.contents import NOTHING
from semel.replica.floor import FLOOR_KEY, Floor, decode_floor, read_floor
from semel.replica.journal import SlotJournal
from semel.replica.lease import LEASE_SECONDS, Lease
from semel.replica.membership import FORMAT_KEY, Membership, cluster_of, format_of
from semel.replica.reader import SlotReader
from semel.replica.restore import check_objects, read_checkpoint, restore
from semel.replica.uploads import Outcome, Uploads
from semel.replica.writer import answered, create_surely
from semel.storage import checkpoint, journal
from semel.storage.cache import MARK, mark_as_cache, take_as_cache
from semel.storage.files import Files
from semel.storage.journal import Bookmark, Damaged
from semel.storage.log import Log, LogSettings
from semel.store import Missing, Store

# What other brokers are told while a log is moved out of the store.
_NO_ADDRESS: Final = {"move": ("127.0.0.1", 0)}


class Moved(NamedTuple):
    """What is at its new place."""

    topics: int
    partitions: int
    # The size of the partitions' files.
    size_bytes: int


async def move_to_store(files: Files, store: Store) -> Moved:
    """Make the log of this directory the log of an empty store. The directory is the cache of it then. Raises Damaged
    and BrokenHistory with what keeps it from that, and StoreError; then the directory is as it was."""
    where = files.describe("")
    if checkpoint.NAME not in files.names(""):
        raise Damaged(f"{where}: no broker has kept a log there")
    await _check_empty(store)
    log = Log.open(files, new_cluster_id="")
    try:
        partitions = log.state.partitions.all()
        job = replace(
            finish(log.begin_checkpoint(clean=True)),
            contents=[part for partition in partitions for part in partition.contents],
        )
        history = History()
        history.epoch = log.state.partitions.leader_epoch
        uploads = Uploads(store, _Here())
        contents = await uploads.contents(job, NOTHING, history.epoch)
        floor = Floor(history.epoch, 0, 0, await uploads.state(job, history.to_record(), contents))
        await read_checkpoint(store, floor)
        await check_objects(store, contents)
        await _begin(store, floor, log.state.cluster_id)
        files.remove(checkpoint.NAME)
        files.sync_directory("")
        mark_as_cache(files, store.describe())
        for name in files.names(journal.DIRECTORY):
            files.remove(f"{journal.DIRECTORY}/{name}")
        return Moved(len(log.state.catalog), len(partitions), sum(contents.objects.values()))
    finally:
        log.abandon()


async def move_from_store(store: Store, files: Files, note_active: Callable[[str], None]) -> Moved:
    """Make the log of a store the log of this directory, which holds none, or is the store's cache. Waits while a
    broker is active; `note_active` is told its address. Raises as the other way; the store keeps what it has."""
    try:
        await answered(lambda: store.get(FORMAT_KEY))
    except Missing:
        raise BrokenHistory(f"{store.describe()}: no broker has kept a log there") from None
    cluster_id = await cluster_of(store, "")
    take_as_cache(files, store.describe())
    try:
        beginning = await restore(store, files)
        entries = SlotJournal(0)
        entries.follow(beginning.history.position)
        log = Log.beside(files, entries, cluster_id, LogSettings(), beginning.content)
    except BaseException:
        files.close()
        raise
    try:
        membership = Membership(store, SlotReader(store, entries, log, beginning.history), _NO_ADDRESS, LEASE_SECONDS)
        await membership.stand_by(lambda lease: note_active(_address_in(lease)))
        await membership.take_over()
        _settle_down(log)
        partitions = log.state.partitions.all()
        return Moved(len(log.state.catalog), len(partitions), sum(partition.size for partition in partitions))
    finally:
        log.abandon()


def _settle_down(log: Log) -> None:
    """Make the directory that was a cache the place of the log."""
    files, job = log.files, finish(log.begin_checkpoint(clean=True))
    paths = frozenset(path for path, _ in job.contents)
    directories = {""}
    for path in paths:
        while path:
            path = path.rpartition("/")[0]
            directories.add(path)
    files.make_directory(journal.DIRECTORY)
    files.remove(MARK)
    state = {**job.state, "journal": Bookmark(1, log.end, log.end)}
    replace(job, state=state, dirty=paths, grown=frozenset(directories)).run()


def _address_in(lease: Lease) -> str:
    host, port = next(iter(lease.addresses.values()))
    return f"{host}:{port}"


async def _check_empty(store: Store) -> None:
    """Refuse a store that has a log, or gets one just now. What a move that was interrupted has left is no log."""
    where = store.describe()
    try:
        await answered(lambda: store.get(FORMAT_KEY))
    except Missing:
        pass
    else:
        raise BrokenHistory(f"{where}: holds a log already")
    try:
        found = await answered(lambda: store.get(FLOOR_KEY))
    except Missing:
        return
    if not decode_floor(found.body).pieces:
        raise BrokenHistory(f"{where}: a broker is beginning a log there")


async def _begin(store: Store, floor: Floor, cluster_id: str) -> None:
    if not await create_surely(store, FLOOR_KEY, floor.encode()):
        await _check_empty(store)
        _, version = await answered(lambda: read_floor(store))
        await answered(lambda: store.replace(FLOOR_KEY, floor.encode(), version))
    if not await create_surely(store, FORMAT_KEY, format_of(cluster_id)):
        raise BrokenHistory(f"{store.describe()}: somebody else has begun a log there meanwhile")


class _Here:
    """A worker that is no thread: nobody else waits."""

    def run(self, job: Callable[[], None], done: Callable[[Outcome], None]) -> None:
        outcome: Outcome = None
        try:
            job()
        except Exception as error:
            outcome = error
        done(outcome)

    def stop(self) -> None:
        pass
