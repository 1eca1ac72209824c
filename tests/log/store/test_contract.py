"""Holds what every store promises, whichever engine it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stores_under_test import Place

from semel.log.store import BODY_BYTES_MAX, Changed, Exists, Missing, Store, StoreError
from semel.log.store.contract import KEY_CHARACTERS_MAX

# Longer than what any engine sends, stores or reads in one piece.
LARGE = bytes(range(256)) * 4096 * 6


async def outcome(call: Awaitable[object]) -> type[StoreError] | object:
    """What the call answered, or the kind of its refusal."""
    try:
        return await call
    except StoreError as error:
        return type(error)


async def keys(store: Store, folder: str = "") -> list[str]:
    return sorted([listed.key async for listed in store.list(folder)])


def test_what_one_has_created_the_other_reads_at_once(place: Place) -> None:
    async def story(one: Store, other: Store) -> None:
        version = await one.create("journal/0", b"zero")
        assert await other.get("journal/0") == (b"zero", version)

    place.run(story)


def test_a_key_is_created_once_and_the_refusal_changes_nothing(place: Place) -> None:
    async def story(one: Store, other: Store) -> None:
        await one.create("journal/0", b"first")
        for store in (one, other):
            with pytest.raises(Exists):
                await store.create("journal/0", b"second")
        # An object that is equal to it is another one, too: whose it is, the caller finds out.
        with pytest.raises(Exists):
            await one.create("journal/0", b"first")
        assert (await other.get("journal/0")).body == b"first"

    place.run(story)


def test_when_many_create_one_key_one_succeeds_and_its_body_stays(place: Place) -> None:
    async def story(one: Store, other: Store) -> None:
        for slot in range(place.races):
            bodies = [f"{slot} by {writer}".encode() * 100 for writer in range(8)]
            creates = [
                outcome((one, other)[number % 2].create(f"race/{slot}", body)) for number, body in enumerate(bodies)
            ]
            outcomes = await asyncio.gather(*creates)
            winners = [body for body, ended in zip(bodies, outcomes, strict=True) if isinstance(ended, str)]
            assert len(winners) == 1, outcomes
            assert outcomes.count(Exists) == 7
            assert (await one.get(f"race/{slot}")).body == winners[0]

    place.run(story)


def test_an_object_that_is_being_created_is_missing_or_whole(place: Place) -> None:
    async def story(one: Store, other: Store) -> None:
        creating = asyncio.create_task(one.create("segments/0", LARGE))
        while not creating.done():
            seen = await outcome(other.get("segments/0"))
            assert seen is Missing or seen[0] == LARGE  # type: ignore[index]
            ranged = await outcome(other.get_range("segments/0", len(LARGE) - 3, 10))
            assert ranged in (Missing, LARGE[-3:])
            await asyncio.sleep(0)
        await creating
        assert (await other.get("segments/0")).body == LARGE

    place.run(story)


def test_an_object_may_be_empty(place: Place) -> None:
    async def story(one: Store, other: Store) -> None:
        await one.create("empty", b"")
        assert (await other.get("empty")).body == b""
        assert await other.get_range("empty", 0, 10) == b""

    place.run(story)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_body_may_be_any_buffer(place: Place, kind: type) -> None:
    async def story(one: Store, other: Store) -> None:
        await one.create("body", kind(b"some bytes"))
        assert (await other.get("body")).body == b"some bytes"

    place.run(story)


def test_what_has_no_object_is_missing(place: Place) -> None:
    async def story(one: Store, other: Store) -> None:
        await one.create("journal/0", b"zero")
        for key in ("journal/1", "journal", "nothing/at/all", "journal/0/below"):
            with pytest.raises(Missing):
                await other.get(key)
            with pytest.raises(Missing):
                await other.get_range(key, 0, 1)
        with pytest.raises(Missing):
            await other.replace("journal/1", b"one", (await other.get("journal/0")).version)
        assert await keys(one) == ["journal/0"]

    place.run(story)


def test_a_range_ends_where_the_object_ends(place: Place) -> None:
    async def story(one: Store, other: Store) -> None:
        await one.create("segments/0", b"0123456789")
        assert await other.get_range("segments/0", 0, 4) == b"0123"
        assert await other.get_range("segments/0", 4, 3) == b"456"
        assert await other.get_range("segments/0", 8, 100) == b"89"
        assert await other.get_range("segments/0", 10, 1) == b""
        assert await other.get_range("segments/0", 99, 1) == b""
        assert await other.get_range("segments/0", 3, 0) == b""

    place.run(story)


def test_a_body_is_replaced_by_whoever_has_read_it_last(place: Place) -> None:
    async def story(one: Store, other: Store) -> None:
        first = await one.create("floor", b"1")
        second = await one.replace("floor", b"2", first)
        assert await other.get("floor") == (b"2", second)
        with pytest.raises(Changed):
            await other.replace("floor", b"3", first)
        assert (await one.get("floor")).body == b"2"
        await other.replace("floor", b"3", second)
        assert (await one.get("floor")).body == b"3"

    place.run(story)


def test_when_many_replace_what_they_have_read_one_succeeds(place: Place) -> None:
    async def story(one: Store, other: Store) -> None:
        version = await one.create("floor", b"0")
        for turn in range(place.races):
            replaces = [
                outcome((one, other)[writer % 2].replace("floor", f"{turn} {writer}".encode(), version))
                for writer in range(6)
            ]
            outcomes = await asyncio.gather(*replaces)
            winners = [number for number, ended in enumerate(outcomes) if isinstance(ended, str)]
            assert len(winners) == 1, outcomes
            assert outcomes.count(Changed) == 5
            body, version = await other.get("floor")
            assert body == f"{turn} {winners[0]}".encode()

    place.run(story)


def test_what_is_deleted_is_missing_and_may_be_created_again(place: Place) -> None:
    async def story(one: Store, other: Store) -> None:
        version = await one.create("journal/0", b"zero")
        await other.delete("journal/0")
        with pytest.raises(Missing):
            await one.get("journal/0")
        with pytest.raises(Missing):
            await one.replace("journal/0", b"again", version)
        await one.delete("journal/0")
        await other.create("journal/0", b"again")
        assert (await one.get("journal/0")).body == b"again"

    place.run(story)


def test_a_listing_shows_what_lies_below_a_folder_and_how_large_it_is(place: Place) -> None:
    async def story(one: Store, other: Store) -> None:
        sizes = {"format": 3, "journal/0": 0, "journal/1": 10, "journal-of-old/7": 1, "checkpoints/a/b": 2}
        for key, size in sizes.items():
            await one.create(key, b"x" * size)
        assert {listed.key: listed.size_bytes async for listed in other.list("")} == sizes
        assert await keys(other, "journal") == ["journal/0", "journal/1"]
        assert await keys(other, "checkpoints/a") == ["checkpoints/a/b"]
        assert await keys(other, "nothing") == []
        # A key is no folder, and the beginning of a name is none.
        assert await keys(other, "format") == []
        assert await keys(other, "jour") == []

    place.run(story)


def test_a_listing_may_begin_after_a_key_and_shows_only_what_sorts_behind_it(place: Place) -> None:
    async def story(one: Store, other: Store) -> None:
        for key in ("journal/000000000001", "journal/000000000002", "journal/000000000010", "lease", "journal-2"):
            await one.create(key, b"content")
        # The key need not be there.
        for after, behind in (("1", {"02", "10"}), ("2", {"10"}), ("3", {"10"}), ("99", set())):
            listed = {found.key async for found in other.list("journal", f"journal/{int(after):012d}")}
            assert listed == {f"journal/0000000000{slot}" for slot in behind}
        assert {found.key async for found in other.list("", "journal/000000000003")} == {
            "journal/000000000010",
            "lease",
        }
        assert [found async for found in other.list("journal", "lease")] == []

    place.run(story)


def test_a_listing_has_as_many_pages_as_it_takes(place: Place) -> None:
    async def story(one: Store, other: Store) -> None:
        wanted = [f"journal/{slot}" for slot in range(2100)]
        for first in range(0, len(wanted), 100):
            await asyncio.gather(*(one.create(key, b"x") for key in wanted[first : first + 100]))
        assert await keys(other, "journal") == sorted(wanted)

    place.run(story)


@pytest.mark.parametrize(
    "key",
    ["", "/", "a/", "/a", "a//b", "../a", "a/../b", ".new", "a/.b", "a b", "ä", "a\n", "a" * (KEY_CHARACTERS_MAX + 1)],
)
def test_what_is_no_key_is_refused_before_anything_is_sent(place: Place, key: str) -> None:
    async def story(one: Store, _: Store) -> None:
        for call in (one.create(key, b""), one.replace(key, b"", "v"), one.get(key), one.delete(key)):
            with pytest.raises(ValueError, match="not a key"):
                await call
        if key:
            with pytest.raises(ValueError, match="not a key"):
                await keys(one, key)

    place.run(story)


def test_the_longest_key_is_one(place: Place) -> None:
    async def story(one: Store, other: Store) -> None:
        key = "k" * KEY_CHARACTERS_MAX
        await one.create(key, b"x")
        assert await keys(other) == [key]

    place.run(story)


def test_a_body_that_is_too_large_is_refused_before_anything_is_sent(place: Place) -> None:
    async def story(one: Store, _: Store) -> None:
        with pytest.raises(ValueError, match="at most"):
            await one.create("large", bytearray(BODY_BYTES_MAX + 1))
        assert await keys(one) == []

    place.run(story)


KEYS = st.sampled_from(["a", "b/a", "b/c"])
BODIES = st.binary(max_size=3)
CALLS = st.one_of(
    st.tuples(st.just("create"), KEYS, BODIES),
    st.tuples(st.just("replace"), KEYS, BODIES),
    st.tuples(st.just("replace what was read before"), KEYS, BODIES),
    st.tuples(st.just("get"), KEYS, st.none()),
    st.tuples(st.just("delete"), KEYS, st.none()),
)


@settings(max_examples=20)
@given(calls=st.lists(st.tuples(CALLS, st.booleans()), max_size=12))
def test_one_call_after_another_it_is_a_dictionary(place: Place, calls: list) -> None:  # type: ignore[type-arg]
    async def story(one: Store, other: Store) -> None:
        model: dict[str, bytes] = {}
        read: dict[str, tuple[str, bytes]] = {}
        for (call, key, body), by_other in calls:
            store = other if by_other else one
            if call == "create":
                ended = await outcome(store.create(key, body))
                assert (ended is Exists) == (key in model)
                model.setdefault(key, body)
            elif call == "get":
                ended = await outcome(store.get(key))
                assert ended is Missing if key not in model else ended[0] == model[key]  # type: ignore[index]
                if key in model:
                    read[key] = (ended[1], model[key])  # type: ignore[index]
            elif call == "replace" and key in model:
                await store.replace(key, body, (await one.get(key)).version)
                model[key] = body
            elif call == "replace what was read before" and key in read:
                version, body_then = read[key]
                ended = await outcome(store.replace(key, body, version))
                if key not in model:
                    assert ended is Missing
                elif model[key] != body_then:
                    assert ended is Changed
                elif ended is not Changed:
                    # The same body again may be the same version.
                    model[key] = body
            elif call == "delete":
                await store.delete(key)
                model.pop(key, None)
        assert await keys(other) == sorted(model)
        assert {key: (await one.get(key)).body for key in model} == model

    place.run(story)
