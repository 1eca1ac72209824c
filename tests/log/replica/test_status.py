"""What `semel status` is promised to say: who is active, who stands by and how far behind, or that nobody is active."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from test_slot_writer import Active

from asking import Asker, at
from eventually import SECONDS_MAX
from semel.log.broker.broker import Broker
from semel.log.replica.lease import LeaseHolder
from semel.log.replica.membership import Membership, cluster_of
from semel.log.replica.note import FOLDER, FORGOTTEN_SECONDS, NoteKeeper, NoteWatch, StandbyNote
from semel.log.replica.record import encode_record
from semel.log.replica.status import StoreStatus, status_of
from semel.log.store import Missing, Store, open_store
from semel.log.store.contract import Listed
from semel.testing.stores import FaultyStore, MemoryStore, StoreFault
from semel.ui.cli.status import as_json, as_lines
from semel_command import semel, semel_failure

NOW = 1_800_000_000.0
ADDRESSES = {"PLAINTEXT": ("10.0.0.1", 9092)}


async def held(store: Store, *, position: int = 0) -> LeaseHolder:
    """The lease of a broker that is active in epoch 3."""
    await cluster_of(store, "the-cluster")
    holder = LeaseHolder(store, "active", ADDRESSES, 3.0, "a cluster")
    assert await holder.claim(3, None, 0.0)
    assert await holder.renew(3, 0.0, position)
    return holder


async def look(store: Store) -> StoreStatus:
    loop = asyncio.get_running_loop()
    return await status_of(store, clock=loop.time, time_of_day=lambda: NOW + loop.time())


def note(nonce: str, *, port: int, position: int = 0, sent: int = 0, ago: float = 0.0) -> StandbyNote:
    return StandbyNote({"PLAINTEXT": ("10.0.0.2", port)}, nonce, 3, position, sent, NOW - ago)


@pytest.mark.virtual_time
async def test_a_broker_is_active_as_long_as_it_replaces_its_lease() -> None:
    loop = asyncio.get_running_loop()
    store = MemoryStore()
    holder = await held(store)

    async def renew() -> None:
        while True:
            await asyncio.sleep(1.0)
            await holder.renew(3, loop.time())

    renewing = loop.create_task(renew())
    status = await look(store)
    assert status.is_active
    assert loop.time() < 3.0, "it need not wait for the end of a lease that is replaced"
    assert ("active", "10.0.0.1:9092, epoch 3") in as_lines("memory", status)
    renewing.cancel()
    status = await look(store)
    assert not status.is_active
    assert ("active", "nobody: 10.0.0.1:9092 of epoch 3 is silent") in as_lines("memory", status)
    assert as_json("memory", status)["active"] is None


@pytest.mark.virtual_time
async def test_a_broker_that_was_stopped_is_not_waited_for() -> None:
    loop = asyncio.get_running_loop()
    store = MemoryStore()
    await (await held(store)).release()
    status = await look(store)
    assert (status.is_active, loop.time()) == (False, 0.0)
    assert ("active", "nobody: 10.0.0.1:9092 of epoch 3 has stopped") in as_lines("memory", status)


@pytest.mark.virtual_time
async def test_a_standby_is_as_far_behind_as_its_note_says_and_silent_without_one() -> None:
    store = MemoryStore()
    await held(store, position=5000)
    for nonce, port, position, sent, ago in (
        ("near", 9093, 3000, 4000, 4.0),
        ("gone", 9094, 100, 100, 90.0),
        ("forgotten", 9095, 0, 0, 100_000.0),
        # What the active one left behind when it took over, and what went on behind its last lease.
        ("active", 9096, 0, 0, 1.0),
        ("ahead", 9097, 6000, 4500, 0.0),
        # It has read everything, and the active one has sent more since then, as it does under load.
        ("keeps up", 9098, 4000, 4000, 4.0),
    ):
        one = note(nonce, port=port, position=position, sent=sent, ago=ago)
        await NoteKeeper(store, one.addresses).put(one)
    await store.create(f"{FOLDER}/10-0-0-9", b'{"addresses": 17}')
    status = await look(store)
    assert [(s.addresses["PLAINTEXT"][1], s.behind_bytes, s.is_silent) for s in status.standbys] == [
        *((9093, 1000, False), (9094, 4900, True), (9097, 0, False), (9098, 0, False))
    ]
    lines = as_lines("memory", status)
    assert ("standby", "10.0.0.2:9093, was 1,000 bytes behind 7 s ago") in lines, "the lease was waited for"
    assert ("standby", "10.0.0.2:9094, silent for 2 min, 4,900 bytes behind then") in lines


@pytest.mark.virtual_time
async def test_a_standby_has_one_note_however_often_it_starts_and_whatever_answers_are_lost() -> None:
    store = FaultyStore()
    store.arm(StoreFault("lost answer", call="create", times=1))
    store.arm(StoreFault("lost answer", call="replace", times=1))
    for nonce in ("first life", "second life", "third life"):
        keeper, tries = NoteKeeper(store, note(nonce, port=9093).addresses), 0
        for position in (1, 2):
            while True:
                try:
                    await keeper.put(note(nonce, port=9093, position=position))
                    break
                except Exception:
                    tries += 1
                    assert tries < 3
    [listed] = [one async for one in store.list(FOLDER)]
    kept = json.loads((await store.get(listed.key)).body)
    assert (kept["nonce"], kept["position"]) == ("third life", 2)
    assert store.fired["lost answer"] == 2


@pytest.mark.virtual_time
async def test_two_standbys_that_say_one_address_have_a_note_each() -> None:
    """As two machines do that both say to be reached at 127.0.0.1."""
    store = MemoryStore()
    await held(store)
    keepers = {nonce: NoteKeeper(store, note(nonce, port=9093).addresses) for nonce in ("one", "other")}
    for _ in range(3):
        for position, (nonce, keeper) in enumerate(keepers.items(), start=1):
            await keeper.put(note(nonce, port=9093, position=position, sent=5))
    assert sorted(standby.behind_bytes for standby in (await look(store)).standbys) == [3, 4]
    for keeper in keepers.values():
        await keeper.remove()
    assert (await look(store)).standbys == []


@pytest.mark.virtual_time
async def test_a_broker_that_has_taken_over_and_is_stopped_is_no_standby() -> None:
    loop = asyncio.get_running_loop()
    store = MemoryStore()
    before = await held(store)
    standby = Active(store)
    membership = Membership(store, standby.reader, {"PLAINTEXT": ("10.0.0.2", 9093)}, 3.0, "a cluster", loop.time)
    standing_by = loop.create_task(membership.stand_by(lambda _: None))
    await asyncio.sleep(1)
    assert len(store.objects.list(FOLDER)) == 1
    await before.release()
    await standing_by
    await membership.take_over()
    await membership.leave()
    assert store.objects.list(FOLDER) == []


async def took_over(store: MemoryStore) -> Membership:
    """A standby that has taken over from a broker that was stopped, while another standby runs."""
    before = await held(store)
    other = StandbyNote({"PLAINTEXT": ("10.0.0.3", 9094)}, "other", 3, 0, 0, time.time())
    await NoteKeeper(store, other.addresses).put(other)
    loop = asyncio.get_running_loop()
    membership = Membership(store, Active(store).reader, {"PLAINTEXT": ("10.0.0.2", 9093)}, 3.0, "a cluster", loop.time)
    standing_by = loop.create_task(membership.stand_by(lambda _: None))
    await asyncio.sleep(1)
    await before.release()
    await standing_by
    await membership.take_over()
    return membership


@pytest.mark.virtual_time
async def test_a_broker_knows_the_other_standbys_when_it_becomes_active() -> None:
    """Clients ask it for Metadata at once, and drop the brokers that are not in the answer: if this broker was lost as
    well, they would know none."""
    assert (await took_over(MemoryStore())).standbys == [{"PLAINTEXT": ("10.0.0.3", 9094)}]


@pytest.mark.virtual_time
async def test_a_broker_that_takes_over_names_no_note_of_the_active_broker_before_it() -> None:
    """That note may still be there when its broker is lost, and leads clients to a machine that is gone."""
    store = MemoryStore()
    lost = StandbyNote({"PLAINTEXT": ("10.0.0.1", 9092)}, "active", 3, 0, 0, time.time())
    await NoteKeeper(store, lost.addresses).put(lost)
    assert (await took_over(store)).standbys == [{"PLAINTEXT": ("10.0.0.3", 9094)}]


@pytest.mark.virtual_time
async def test_a_takeover_does_not_wait_for_a_store_that_cannot_say_who_stands_by() -> None:
    class Listless(MemoryStore):
        async def list(self, folder: str, after: str = "") -> AsyncIterator[Listed]:
            if folder == FOLDER:
                await asyncio.sleep(3600)
                yield Listed("", 0)

    loop = asyncio.get_running_loop()
    membership = await took_over(Listless())
    assert (membership.standbys, loop.time() < 10) == ((), True)


@pytest.mark.virtual_time
async def test_a_store_that_no_broker_was_ever_on_is_said_to_be_none() -> None:
    store = MemoryStore()
    with pytest.raises(Missing, match="no broker was ever here"):
        await look(store)
    assert [listed async for listed in store.list("")] == [], "it writes nothing"


async def test_a_standby_is_named_to_clients_while_its_note_changes() -> None:
    """Also if its clock is wrong. At first only the time in the note tells whether it runs."""
    store = MemoryStore()
    keepers = {}

    async def put(one: StandbyNote) -> None:
        keeper = keepers.setdefault(one.nonce, NoteKeeper(store, one.addresses))
        await keeper.put(one)

    watch = NoteWatch(store, ("self", "lost"))

    async def ports(now: float) -> list[int]:
        return sorted(addresses["PLAINTEXT"][1] for addresses in await watch.look(now, NOW + now))

    await put(note("self", port=9093))
    await put(note("lost", port=9094))
    await put(note("runs", port=9095, ago=9.0))
    await put(note("died long ago", port=9096, ago=31.0))
    await put(note("clock is slow", port=9097, ago=1000.0))
    assert await ports(0.0) == [9095]
    await put(note("clock is slow", port=9097, ago=990.0))
    assert await ports(10.0) == [9095, 9097]
    await put(note("is new", port=9098, ago=1000.0))
    assert await ports(22.0) == [9097, 9098]
    assert await ports(41.0) == [9098]
    assert await ports(53.0) == []


def harmed_note(**harm: object) -> bytes:
    """With the digest of a note that is whole, so that it is its fields that are refused."""
    return encode_record(FOLDER, {**note("harmed", port=9093)._asdict(), **harm})


# What no standby writes; each of them would otherwise be told to every client, or end the search for standbys.
HARMED_NOTES = {
    "no JSON": b"\xff{",
    "no note": b'{"addresses": 17}',
    "too deep": b"[" * 50_000,
    "an endless port": harmed_note(addresses={"PLAINTEXT": ("10.0.0.2", float("inf"))}),
    "a port that no answer can have": harmed_note(addresses={"PLAINTEXT": ("10.0.0.2", 1 << 40)}),
    "a port below 0": harmed_note(addresses={"PLAINTEXT": ("10.0.0.2", -1)}),
    "a host that no answer can have": harmed_note(addresses={"PLAINTEXT": ("h" * 40_000, 9093)}),
    "a host that is no text": harmed_note(addresses={"PLAINTEXT": ("\ud800", 9093)}),
    "a time that no clock has": harmed_note(noted_at=10**400),
    "a place that no journal has": harmed_note(position=10**400),
    "a place that no broker has sent": harmed_note(active_position=10**400),
    "no active position": harmed_note(active_position="far"),
    "no position": harmed_note(position="far"),
    "very much": harmed_note(nonce="n" * 100_000),
}


@pytest.mark.virtual_time
@pytest.mark.parametrize("harm", HARMED_NOTES)
async def test_a_note_that_no_standby_wrote_is_shown_to_nobody_and_disturbs_nobody(harm: str) -> None:
    store = MemoryStore()
    await held(store)
    await store.create(f"{FOLDER}/10-0-0-2-9093", HARMED_NOTES[harm])
    runs = note("runs", port=9094)
    await NoteKeeper(store, runs.addresses).put(runs)
    watch = NoteWatch(store, ("self",))
    for now in (0.0, 3.0):
        assert list(await watch.look(now, NOW + now)) == [runs.addresses]
    assert [standby.addresses for standby in (await look(store)).standbys] == [runs.addresses]
    # A standby that starts at this address puts its own note in the place of that one.
    starts = note("starts", port=9093)
    await NoteKeeper(store, starts.addresses).put(starts)
    assert sorted(map(str, await watch.look(6.0, NOW + 6.0))) == [str(starts.addresses), str(runs.addresses)]


@pytest.mark.virtual_time
async def test_a_key_that_no_standby_has_disturbs_nobody() -> None:
    """As programs leave it behind that show a bucket as if it had directories."""
    store = MemoryStore()
    await held(store)
    store.objects.create(f"{FOLDER}/.keep", b"")
    runs = note("runs", port=9094)
    await NoteKeeper(store, runs.addresses).put(runs)
    assert list(await NoteWatch(store, ("self",)).look(0.0, NOW)) == [runs.addresses]
    assert [standby.addresses for standby in (await look(store)).standbys] == [runs.addresses]


@pytest.mark.virtual_time
async def test_the_note_of_a_standby_that_disappeared_is_removed_after_a_day() -> None:
    """The active broker reads all notes again and again, and each container may have an address of its own."""
    store = MemoryStore()
    day = FORGOTTEN_SECONDS
    keepers = {}
    for one in (
        note("disappeared before", port=9093, ago=day + 1),
        note("disappears", port=9094),
        note("runs", port=9095),
        note("lost", port=9096),
    ):
        keepers[one.nonce] = NoteKeeper(store, one.addresses)
        await keepers[one.nonce].put(one)
    await store.create(f"{FOLDER}/unreadable", b"{")

    def keys() -> list[str]:
        return sorted(listed.key.rpartition("-")[2] for listed in store.objects.list(FOLDER))

    watch = NoteWatch(store, ("lost",))
    await watch.look(0.0, NOW)
    assert keys() == ["9094", "9095", "9096", f"{FOLDER}/unreadable"]
    await keepers["runs"].put(note("runs", port=9095, position=1))
    await watch.look(10.0, NOW + 10.0)
    assert len(keys()) == 4
    await watch.look(day + 5.0, NOW)
    assert keys() == ["9095"]
    # It was only away for so long, and has a note again.
    back = note("disappears", port=9094, position=1)
    await keepers["disappears"].put(back)
    assert list(await watch.look(day + 10.0, NOW)) == [back.addresses]


@pytest.mark.virtual_time
async def test_a_store_that_lets_no_note_be_removed_hides_no_standby() -> None:
    store = FaultyStore()
    gone, runs = note("gone", port=9093, ago=2 * FORGOTTEN_SECONDS), note("runs", port=9094)
    for one in (gone, runs):
        await NoteKeeper(store, one.addresses).put(one)
    store.arm(StoreFault("lost request", call="delete"))
    assert list(await NoteWatch(store, ()).look(0.0, NOW)) == [runs.addresses]
    assert store.fired["lost request"] == 1


async def test_brokers_tell_by_themselves_how_far_they_are() -> None:
    store = MemoryStore()
    async with Broker(store=store, lease_seconds=1.0) as active:

        def pay() -> None:
            with Asker(active.bootstrap) as asker:
                asker.create("payments")
                asker.produce("payments", at(1))

        await asyncio.to_thread(pay)
        async with asyncio.timeout(SECONDS_MAX), Broker(store=store, lease_seconds=1.0) as standby:
            while not (status := await status_of(store)).standbys or not status.lease or not status.lease.position:
                pass
            [seen] = status.standbys
            assert status.is_active
            assert status.lease.addresses == {"PLAINTEXT": active.listeners[0].reached_at}
            assert seen.addresses == {"PLAINTEXT": standby.listeners[0].reached_at}
            assert (seen.behind_bytes, seen.is_silent) == (0, False)
            assert status.contents["journal"].objects >= 2
            assert status.idle_puts_per_day == round(86_400 * (3 / 1.0 + 1 / 10))
            # The standby looks for a slot and at the lease, and the active broker lists the notes and reads each.
            looks, notes = 2 * 10, 1 + status.contents[FOLDER].objects
            assert status.idle_gets_per_day == 86_400 * (looks + notes)
        assert (await status_of(store)).standbys == [], "it was stopped, and is not missed"
    assert not (await status_of(store)).is_active


def test_the_command_ends_with_1_where_nobody_is_active(tmp_path: Path) -> None:
    async def prepare() -> None:
        store = open_store(f"file://{tmp_path}/store")
        await (await held(store)).release()
        await store.close()

    asyncio.run(prepare())
    told = semel("status", f"file://{tmp_path}/store", "--json")
    status = json.loads(told.stdout)
    assert (told.returncode, told.stderr) == (1, "")
    assert (status["active"], status["last_active"]["epoch"], status["standbys"]) == (None, 3, [])
    assert status["contents"]["format"]["objects"] == 1
    (tmp_path / "another").mkdir()
    assert "no broker was ever here" in semel_failure("status", f"file://{tmp_path}/another")
