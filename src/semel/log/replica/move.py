"""Moves a whole log from a directory into a store, and back, while no broker uses it. In a store the log becomes the
first checkpoint, so no broker has to replay anything. A move out of a store reads what a broker would take over: the
newest checkpoint and the journal after it. It creates a fence as a broker would, so a broker that comes back later can
write nothing that the directory does not have. Every byte is compared with its digest at the new place before the old
one is given up.
"""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from semel.log.core.slots import BrokenHistory, History
from semel.log.replica.cache import Cache, Unreadable
from semel.log.replica.contents import NOTHING, Contents, contents_in
from semel.log.replica.floor import FLOOR_KEY, Floor, decode_floor, read_floor
from semel.log.replica.journal import SlotJournal
from semel.log.replica.lease import LEASE_SECONDS, Lease, read_lease
from semel.log.replica.membership import Membership, cluster_of, format_of
from semel.log.replica.reader import SlotReader
from semel.log.replica.restore import Beginning, check_objects, read_checkpoint, restore
from semel.log.replica.uploads import Uploads
from semel.log.replica.worker import Here
from semel.log.replica.writer import answered, create_surely
from semel.log.storage import checkpoint, end_notes, journal
from semel.log.storage.cache import MARK, mark_as_cache, take_as_cache
from semel.log.storage.checkpoint import CheckpointJob
from semel.log.storage.end_notes import NOTHING_KNOWN, begin_notes
from semel.log.storage.files import Files
from semel.log.storage.journal import Bookmark, Damaged
from semel.log.storage.log import Log
from semel.log.storage.log_settings import LogSettings
from semel.log.store import FORMAT_KEY, Missing, Store
from semel.wire.steps import finish

# The address in the lease while a log is moved out of the store.
_NO_ADDRESS: Final = {"move": ("127.0.0.1", 0)}


class Moved(NamedTuple):
    """The log at its new place."""

    topics: int
    partitions: int
    # The total size of the partitions' files.
    size_bytes: int


async def move_to_store(files: Files, store: Store) -> Moved:
    """Make the log of this directory the log of an empty store. The directory is then its cache. Raises Damaged or
    BrokenHistory with the obstacle, or StoreError; then the directory is unchanged.
    """
    where = files.describe("")
    if checkpoint.NAME not in files.names(""):
        raise Damaged(f"{where}: no broker has kept a log there")
    floor_before = await _floor_in(store)
    log = Log.open(files, new_cluster_id="")
    try:
        job = finish(log.begin_checkpoint(clean=True))
        history = History()
        history.epoch = log.state.partitions.leader_epoch
        uploads = Uploads(store, Here(), cache_without_limit(store, files))
        if floor_before is None:
            contents = await uploads.contents(job, NOTHING, history.epoch)
            floor = Floor(history.epoch, 0, 0, await uploads.state(job, history.to_record(), contents))
            await read_checkpoint(store, floor)
        else:
            floor, contents = floor_before, await _same_contents(store, floor_before, uploads, job, history)
        await check_objects(store, contents)
        await _begin(store, floor, log.state.cluster_id)
        files.remove(checkpoint.NAME)
        files.sync_directory("")
        mark_as_cache(files, store.describe(), log.state.cluster_id)
        _remove_journal(files)
        return Moved(len(log.state.catalog), log.state.catalog.partition_count, sum(contents.objects.values()))
    finally:
        log.abandon()


async def move_from_store(store: Store, files: Files, note_active: Callable[[str], None]) -> Moved:
    """Make the log of a store the log of this directory, which is empty or the store's cache. Waits while a broker is
    active; `note_active` gets its address. Raises the same errors; the store keeps its objects.
    """
    try:
        await answered(lambda: store.get(FORMAT_KEY))
    except Missing:
        raise BrokenHistory(f"{store.describe()}: no broker has kept a log there") from None
    known = take_as_cache(files)
    noted: set[int] = set()

    def note(lease: Lease) -> None:
        if lease.epoch not in noted and not lease.is_released:
            noted.add(lease.epoch)
            note_active(_address_in(lease))

    try:
        cluster_id = await cluster_of(store, "", known)
        lease = await answered(lambda: read_lease(store))
        if lease is not None:
            # Before all bytes are fetched, which may take hours.
            note(lease)
        mark_as_cache(files, store.describe(), cluster_id)
        cache = cache_without_limit(store, files)
        beginning = await _all_of(store, cache)
        entries = SlotJournal(0)
        entries.follow(beginning.history.position)
        log = Log.beside(cache.files, entries, cluster_id, LogSettings(), beginning.content)
    except BaseException:
        files.close()
        raise
    reader = SlotReader(store, entries, log, beginning.history)
    membership = Membership(store, reader, _NO_ADDRESS, LEASE_SECONDS, cluster_id)
    try:
        await membership.become_active(note)
        settle_down(log)
        size_bytes = sum(partition.size for partition in log.state.partitions.used())
        return Moved(len(log.state.catalog), log.state.catalog.partition_count, size_bytes)
    finally:
        log.abandon()
        await membership.leave()


async def _all_of(store: Store, cache: Cache) -> Beginning:
    """The newest checkpoint, with all bytes of its files."""
    while True:
        beginning = await restore(store, cache)
        failures = await cache.bring(cache.files.all_lacking())
        if not failures:
            return beginning
        for failure in failures.values():
            if not isinstance(failure, Unreadable):
                raise failure
            if not failure.is_gone or (await answered(lambda: read_floor(store)))[0] == beginning.floor:
                raise BrokenHistory(str(failure)) from None


def cache_without_limit(store: Store, files: Files) -> Cache:
    """A cache without a limit."""
    cache = Cache(store, files, None)
    cache.use(Here(), _tell_nobody)
    return cache


def _tell_nobody(reason: str) -> None:
    """Tell nobody, because the caller gets the reason as an error."""


def settle_down(log: Log) -> None:
    """Make the directory that was a cache the place of the log."""
    files, job = log.files, finish(log.begin_checkpoint(clean=True))
    paths = frozenset(path for path, _ in job.contents())
    directories = {""}
    for path in paths:
        while path:
            path = path.rpartition("/")[0]
            directories.add(path)
    files.make_directory(journal.DIRECTORY)
    # A move into the store may have been killed before this step, and old entries may have positions that are used now.
    _remove_journal(files)
    files.remove(MARK)
    state = {**job.state, "journal": Bookmark(1, log.end, log.end)}
    notes = begin_notes(files, NOTHING_KNOWN, log.state.cluster_id, log.settings.journal_file_bytes)
    with contextlib.closing(notes):
        replace(job, state=state, dirty=paths, grown=frozenset(directories)).run()
        notes.start(log.end)


def _remove_journal(files: Files) -> None:
    for name in files.names(journal.DIRECTORY):
        files.remove(f"{journal.DIRECTORY}/{name}")
    with contextlib.suppress(FileNotFoundError):
        files.remove(end_notes.NAME)


def _address_in(lease: Lease) -> str:
    host, port = next(iter(lease.addresses.values()))
    return f"{host}:{port}"


async def _floor_in(store: Store) -> Floor | None:
    """The floor of an interrupted move, or perhaps of another log; None if the store is empty."""
    try:
        floor = decode_floor((await answered(lambda: store.get(FLOOR_KEY))).body)
    except Missing:
        with contextlib.suppress(Missing):
            await answered(lambda: store.get(FORMAT_KEY))
            raise _held_by_a_log(store) from None
        return None
    if not floor.pieces:
        raise _held_by_a_log(store)
    return floor


async def _same_contents(
    store: Store, floor: Floor, uploads: Uploads, job: CheckpointJob, history: History
) -> Contents:
    """The contents that the checkpoint of this floor names, if they are this log as it is now: then an earlier move of
    this log wrote the floor, and was perhaps killed when only the directory was left to change.
    """
    try:
        content = await read_checkpoint(store, floor)
    except Missing:
        raise _held_by_a_log(store) from None
    contents = contents_in(content)
    if not await uploads.is_same(floor.pieces, job, history.to_record(), contents):
        raise _held_by_a_log(store)
    return contents


async def _begin(store: Store, floor: Floor, cluster_id: str) -> None:
    """Make this log the log of the store. The move that creates the floor wins: if another move replaced the floor, the
    first would not notice, and would give up a log that the store no longer names.
    """
    for key, content in ((FLOOR_KEY, floor.encode()), (FORMAT_KEY, format_of(cluster_id))):
        if not await create_surely(store, key, content):
            raise _held_by_a_log(store)


def _held_by_a_log(store: Store) -> BrokenHistory:
    return BrokenHistory(
        f"{store.describe()}: holds a log already, perhaps an earlier state of this one: name a store that is empty"
    )
