"""The cache of a broker on a store: a start fetches no records, what has no room is freed and comes again, what only
this broker has is never freed, and nobody ever reads anything else than what was written.
"""

import asyncio
from collections.abc import Callable

import pytest

from lives import Gate, Inline, Life, WatchedStore, names, written
from semel.log.replica.cache import AT_ONCE, Unreadable
from semel.log.replica.reader import Overtaken
from semel.log.replica.slot import digest_of
from semel.log.storage.files import MemoryFile, MemoryFiles, NotHere
from semel.log.storage.segment import Stretch
from semel.testing.stores import StoreFault, StoreFaultKind

pytestmark = pytest.mark.virtual_time

# Of a segment of the test, two of which have a checkpoint of three records.
SEGMENT = 1200


def fetched(store: WatchedStore) -> list[str]:
    """The reads of records. Others look at the heads of slots."""
    return [key for call, key in store.calls if call == "get_range" and key.startswith("segments/")]


async def all_values(life: Life) -> list[bytes]:
    """What a consumer gets that waits for what has to come."""
    partition, values = life.partition(), []
    offset = partition.state.log_start
    while offset < partition.readable.offset:
        try:
            data, offset = partition.read(offset, 1, partition.readable, whole_first_batch=True)
            values.append(digest_of([data]))
        except NotHere as absent:
            failures = await life.cache.bring([Stretch(absent.path, absent.position, absent.size)])
            assert not failures
    return values


async def followed(standby: Life) -> None:
    """The standby has read what the active broker wrote, and takes the last checkpoint over."""
    await standby.catch_up()
    assert standby.reader.floor is not None
    await standby.checkpoints.follow(standby.reader.floor)


async def test_a_start_fetches_no_records_and_a_reader_those_that_it_asks_for() -> None:
    store = WatchedStore()
    first = await written(store)
    await first.write(*names(100))
    store.calls.clear()
    second = await Life(store, is_cold=True).start()
    assert not fetched(store)
    assert not [key for call, key in store.calls if call == "get" and key.startswith("segments/")]
    partition = second.partition()
    with pytest.raises(NotHere):
        partition.read(0, 300, partition.readable, whole_first_batch=True)
    assert await all_values(second) == first.values()
    # Each part once.
    assert second.cache.fetched_bytes == second.cache.files.cached_bytes
    assert second.cache.fetches == len(fetched(store)) > 1


async def test_what_has_no_room_is_freed_and_comes_again() -> None:
    """The disk holds no more of what the store has than it may, whatever is written and read."""
    store = WatchedStore()
    room = await written(WatchedStore())
    life = await written(store, cache_bytes=3 * SEGMENT)
    for _ in range(3):
        assert life.cache.files.cached_bytes <= 3 * SEGMENT
        on_disk = sum(
            part.extent.size
            for path, row in life.cache.files._rows.items()
            for part in row.parts
            if life.files.open(path).holds(part.extent.size, part.extent.position)
        )
        assert on_disk == life.cache.files.cached_bytes
        assert await all_values(life) == room.values()
    assert life.cache.freed_bytes > 3 * SEGMENT


async def test_what_only_this_broker_has_is_never_freed() -> None:
    store = WatchedStore()
    life = await written(store, cache_bytes=1)
    await life.write(*names(*range(50, 60)))
    before = len(fetched(store))
    partition = life.partition()
    assert partition.read(18, 10_000, partition.readable, whole_first_batch=True)[0]
    assert len(fetched(store)) == before


async def test_what_was_read_last_stays() -> None:
    store = WatchedStore()
    life = await written(store, cache_bytes=5 * SEGMENT)
    await all_values(life)
    partition = life.partition()
    first = Stretch(partition.segments[0].path, 0, 300)
    await life.cache.bring([first])
    for number in range(4):
        partition.read(0, 300, partition.readable, whole_first_batch=True)
        await life.write(*names(200 + number))
        await life.keep()
    assert partition.read(0, 300, partition.readable, whole_first_batch=True)[1] == 1


async def test_what_comes_is_not_freed_together_with_its_neighbour() -> None:
    """Small parts are freed with those around them, and one of these may have been written a moment ago."""
    store = WatchedStore()
    life = await Life(store).start()
    for number in range(4):
        await life.write(*names(number))
        await life.keep()
    await life.write(*names(4, 5))
    await life.keep()
    values = life.values()
    files = life.cache.files
    path = life.partition().segments[0].path
    parts = files._rows[path].parts
    assert len(parts) > 2
    # The first two are gone, the second comes, and the third is freed meanwhile.
    for part in parts[:2]:
        part.state, files.cached_bytes = 0, files.cached_bytes - part.extent.size
        life.files.open(path).free(part.extent.size, part.extent.position)
    gate = Gate(store, "get_range", "segments/")
    coming = asyncio.ensure_future(life.cache.bring([Stretch(path, parts[1].extent.position, 1)]))
    await gate.reached.wait()
    parts[2].read_at = -1
    stretches = files.choose(files.cached_bytes - 1)
    assert stretches[0].position == parts[2].extent.position
    gate.opened.set()
    await coming
    assert await all_values(life) == values


async def test_what_is_compared_with_its_digest_is_not_freed_meanwhile() -> None:
    """After a restart a part is found on the disk. If its space were freed before that is noted, its reader would get
    zeros for records.
    """
    store = WatchedStore()
    first = await written(store)
    values = first.values()
    second = await Life(store, first.files, is_cold=True).start()
    files = second.cache.files

    class Full(Inline):
        """After each job there is no space left, so that all is freed that may be."""

        def run(self, job: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
            super().run(job, done)
            for path, position, size in files.choose(0):
                second.files.open(path).free(size, position)

    second.cache.use(Full(), second.told.append)
    assert await all_values(second) == values


@pytest.mark.parametrize("kind", ["lost request", "lost answer", "throttled", "slow"])
async def test_however_the_store_answers_a_reader_gets_what_was_written(kind: StoreFaultKind) -> None:
    store = WatchedStore()
    first = await written(store)
    store.arm(StoreFault(kind, call="get_range", chance=0.6))
    second = await Life(store, cache_bytes=2 * SEGMENT, is_cold=True).start()
    assert await all_values(second) == first.values()
    assert store.fired[kind] > 0


@pytest.mark.parametrize("what", ["wiped", "another log", "other bytes", "cut short"])
async def test_nothing_on_the_disk_is_believed_before_its_digest_was_compared(what: str) -> None:
    """The directory may have been wiped, or be the cache of another store, or of a time before a restore."""
    store = WatchedStore()
    first = await written(store)
    files = first.files
    assert isinstance(files, MemoryFiles)
    if what == "wiped":
        files = MemoryFiles()
    elif what == "another log":
        other = await Life(WatchedStore()).start()
        for number in range(20):
            await other.write(*names(1000 + number))
        await other.keep()
        assert isinstance(other.files, MemoryFiles)
        files = other.files
    else:
        for segment in first.partition().segments[::2]:
            file = files.open(segment.path)
            assert isinstance(file, MemoryFile)
            if what == "cut short":
                file.truncate(file.size() // 2)
            else:
                file.write_at([b"?"], 70)
    second = await Life(store, files, is_cold=True).start()
    assert await all_values(second) == first.values()


async def test_a_cache_that_is_whole_fetches_nothing_after_a_start() -> None:
    store = WatchedStore()
    first = await written(store)
    store.calls.clear()
    second = await Life(store, first.files, is_cold=True).start()
    assert await all_values(second) == first.values()
    assert not fetched(store)


@pytest.mark.parametrize("is_gone", [False, True])
async def test_an_object_that_is_damaged_or_gone_is_named_and_keeps_nobody_from_a_checkpoint(
    is_gone: bool,
) -> None:
    """What it had is refused to readers, and stays named. What others have is kept."""
    store = WatchedStore()
    first = await written(store)
    path = first.partition().segments[0].path
    key = first.checkpoints._contents.files[path][0].key
    life = await Life(store, cache_bytes=SEGMENT, is_cold=True).start()
    body, version = store.objects.get(key)
    if is_gone:
        store.objects.delete(key)
    else:
        store.objects.replace(key, bytes(len(body)), version)
    failure = (await life.cache.bring([Stretch(path, 0, 10)]))[path]
    assert isinstance(failure, Unreadable)
    assert key in str(failure)
    assert failure.is_gone == is_gone
    # Of the other objects so little is needed that they are given up, and this one as well.
    contents = life.checkpoints._contents
    for other in contents.objects:
        contents.objects[other] *= 10
    await life.write(*names(70, 71, 72))
    store.check = lambda: None  # type: ignore[method-assign]
    await life.keep()
    assert {extent.key for extent in life.checkpoints._contents.files[path]} == {key}
    assert set(life.checkpoints._contents.objects) & set(contents.objects) == {key}


async def test_what_has_to_be_uploaded_again_comes_first() -> None:
    store = WatchedStore()
    first = await written(store)
    life = await Life(store, cache_bytes=SEGMENT, is_cold=True).start()
    contents = life.checkpoints._contents
    for key in contents.objects:
        contents.objects[key] *= 10
    await life.keep()
    assert not set(contents.objects) & set(life.checkpoints._contents.objects)
    assert (await Life(store).start()).values() == first.values()
    assert await all_values(life) == first.values()


async def test_a_standby_frees_what_the_active_broker_has_put_into_the_store() -> None:
    """And after a takeover it need not read its disk again to know what the store has."""
    store = WatchedStore()
    active = await Life(store).start()
    standby = await Life(store, cache_bytes=2 * SEGMENT, is_cold=True).stand_by()
    for number in range(8):
        await active.write(*names(*range(3 * number, 3 * number + 3)))
        await active.keep()
        await followed(standby)
    assert standby.cache.freed_bytes > 2 * SEGMENT
    assert standby.cache.files.cached_bytes <= 2 * SEGMENT
    await standby.take_over()
    store.calls.clear()
    await standby.write(*names(100))
    await standby.keep()
    assert not fetched(store)
    assert await all_values(standby) == [*active.values(), *standby.values_from(24)]


async def test_a_standby_fetches_what_it_has_freed_before_its_object_is_deleted() -> None:
    """The active broker has compacted a segment, and names its own file in place of the one that is half here."""
    store = WatchedStore()
    active = await written(store)
    values = active.values()
    standby = await Life(store, cache_bytes=SEGMENT, is_cold=True).stand_by()
    compact(active)
    for number in range(50, 54):
        await active.write(*names(number))
        await active.keep()
        await followed(standby)
    await standby.take_over()
    assert (await all_values(standby))[:18] == values
    await standby.keep()
    assert (await Life(store).start()).values()[:18] == values


async def test_a_standby_frees_nothing_that_is_about_to_be_deleted_while_it_fetches_the_rest() -> None:
    """The active broker has compacted two segments, one of which is here as a whole, and there is room for one."""
    store = WatchedStore()
    active = await written(store)
    values = active.values()
    standby = await Life(store, cache_bytes=SEGMENT, is_cold=True).stand_by()
    _, second, *_ = [segment.path for segment in standby.partition().segments]
    assert not await standby.cache.bring([Stretch(second, 0, SEGMENT)])
    compact(active, 0)
    compact(active, 1)
    for number in range(50, 54):
        await active.write(*names(number))
        await active.keep()
        await followed(standby)
    await standby.take_over()
    assert (await all_values(standby))[:18] == values


async def test_work_that_needs_parts_begins_when_they_are_here_whatever_a_checkpoint_names_meanwhile() -> None:
    """Many extents became one while one of them was on its way, so what has come does not count."""
    store = WatchedStore()
    await written(store)
    life = await Life(store, is_cold=True).start()
    path = life.partition().segments[0].path
    contents = life.checkpoints._contents
    first, *others = contents.files[path]
    gate = Gate(store, "get_range", first.key)
    worked: list[bytes] = []

    async def work() -> None:
        worked.append(life.cache.files.open(path).read_at(first.size, first.position))

    working = asyncio.get_running_loop().create_task(life.cache.held([Stretch(path, 0, first.size)], work))
    await gate.reached.wait()
    # The same bytes under two names.
    half = first.size // 2
    body = store.objects.get(first.key).body[first.place : first.place + first.size]
    halves = [
        first._replace(size=half, digest=digest_of([body[:half]]).hex()),
        first._replace(
            position=first.position + half,
            size=first.size - half,
            place=first.place + half,
            digest=digest_of([body[half:]]).hex(),
        ),
    ]
    life.cache.name(contents._replace(files={**contents.files, path: [*halves, *others]}))
    gate.opened.set()
    await working
    assert worked == [body]


async def test_an_extent_that_is_half_here_counts_as_space_that_may_be_freed() -> None:
    """A checkpoint has put two extents into one while one of them was freed: the other lies on the disk."""
    store = WatchedStore()
    await written(store)
    life = await Life(store, cache_bytes=SEGMENT, is_cold=True).start()
    contents, files = life.checkpoints._contents, life.cache.files
    path = next(path for path, row in contents.files.items() if len(row) > 1)
    first, second, *others = contents.files[path]
    assert not await life.cache.bring([Stretch(path, first.position, first.size)])
    body = b"".join(store.objects.get(each.key).body[each.place : each.place + each.size] for each in (first, second))
    store.objects.create("segments/one", body)
    one = first._replace(size=len(body), key="segments/one", place=0, digest=digest_of([body]).hex())
    life.cache.name(contents._replace(files={**contents.files, path: [one, *others]}))
    file = life.files.open(path)
    assert file.holds(first.size, first.position)
    # Others come, and have no room beside it.
    assert not await life.cache.bring([stretch for stretch in files.all_lacking() if stretch.path != path])
    assert files.cached_bytes <= SEGMENT
    assert not file.holds(one.size, one.position)


async def test_objects_that_the_store_does_not_hand_out_keep_no_others_from_coming() -> None:
    """A store that has lost most copies of an object answers for ever that it is busy."""
    store = WatchedStore()
    first = await written(store, rounds=12)
    life = await Life(store, is_cold=True).start()
    rows = life.checkpoints._contents.files
    paths = [segment.path for segment in life.partition().segments]
    sick = {extent.key for path in paths[:6] for extent in rows[path]}
    well = next(path for path in reversed(paths[:-1]) if sick.isdisjoint(extent.key for extent in rows[path]))
    for key in sick:
        store.arm(StoreFault("throttled", call="get_range", key=key))
    loop = asyncio.get_running_loop()
    waiting = [loop.create_task(life.cache.bring([Stretch(path, 0, 10)])) for path in paths[:6]]
    # In virtual time: as many as may come at once are asked for, again and again.
    await asyncio.sleep(5)
    assert store.fired["throttled"] > AT_ONCE
    async with asyncio.timeout(60):
        assert not await life.cache.bring([Stretch(well, 0, 10)])
    assert (well, rows[well][0].position) not in life.cache._coming
    assert not any(task.done() for task in waiting)
    store.calm()
    await asyncio.wait(waiting)
    assert await all_values(life) == first.values()


async def test_a_standby_that_comes_too_late_for_that_starts_again() -> None:
    store = WatchedStore()
    active = await written(store)
    standby = await Life(store, is_cold=True).stand_by()
    compact(active)
    for number in range(3):
        await active.write(*names(number))
        await active.keep()
        await standby.catch_up()
    with pytest.raises(Overtaken, match="start again"):
        await followed(standby)


def compact(life: Life, number: int = 0) -> None:
    """Put a rewritten file with the same records in the place of a segment."""
    from semel.log.storage.segment import Segment

    partition = life.partition()
    old = partition.segments[number]
    new = Segment.from_record(partition.directory, [*old.to_record()[:5], old.generation + 1, -1, old.digest])
    file, copy = life.files.open(old.path), life.files.open(new.path, create=True)
    copy.write_at([file.read_at(file.size(), 0)], 0)
    assert life.log.swap(partition, [old], new)
