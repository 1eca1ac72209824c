"""Offsets go into Spark's checkpoint and come back, each place in one way only."""

import json
from collections.abc import Iterator
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semel.client.places import NO_ID, TopicPartition
from semel.spark.source import losses
from semel.spark.source.errors import CheckpointNotUnderstood
from semel.spark.source.offsets import Offsets

NAMES = st.text(alphabet="abcdefgh._-09", min_size=1, max_size=8) | st.sampled_from(["id", "from", "0"])


@st.composite
def some_offsets(draw: st.DrawFn) -> Offsets:
    ids = draw(st.dictionaries(NAMES, st.uuids() | st.just(NO_ID), max_size=4))
    places = [TopicPartition(name, number) for name in ids for number in range(draw(st.integers(0, 12)))]
    numbers = st.integers(0, 2**63 - 1)
    at = {place: draw(numbers) for place in draw(st.permutations(places))}
    began = {place: draw(numbers) for place in places} if draw(st.booleans()) else {}
    return Offsets(ids, at, began)


@given(some_offsets())
def test_offsets_come_back_as_they_went(offsets: Offsets) -> None:
    assert Offsets.from_json(json.loads(json.dumps(offsets.to_json()))) == offsets


@given(some_offsets(), st.randoms())
def test_one_place_is_written_in_one_way_whatever_the_order_it_was_found_in(offsets: Offsets, chance: Random) -> None:
    names, places = list(offsets.ids), list(offsets.at)
    chance.shuffle(names)
    chance.shuffle(places)
    other = Offsets(
        {name: offsets.ids[name] for name in names}, {place: offsets.at[place] for place in places}, offsets.began
    )
    assert json.dumps(other.to_json()) == json.dumps(offsets.to_json())


def test_partitions_are_written_in_the_order_of_their_numbers_with_the_id_behind_them() -> None:
    topic_id = UUID("00000000-0000-0000-0000-0000000000aa")
    at = {TopicPartition("payments", 10): 4, TopicPartition("payments", 9): 3}
    written = json.dumps(Offsets({"payments": topic_id}, at).to_json())
    assert written == f'{{"payments": {{"9": 3, "10": 4, "id": "{topic_id}"}}}}'


class _Counted(dict[TopicPartition, int]):
    """Counts how often somebody went through all of it."""

    passes = 0

    def __iter__(self) -> Iterator[TopicPartition]:
        self.passes += 1
        return super().__iter__()


def test_however_many_topics_there_are_the_places_are_gone_through_as_often() -> None:
    ids = {f"topic-{number}": UUID(int=number + 1) for number in range(100)}
    at = _Counted({TopicPartition(name, 0): 7 for name in ids})
    offsets = Offsets(ids, at)
    assert len(offsets.to_json()) == 100
    assert len(losses.gone(offsets, Offsets(ids, {}))) == 100
    assert at.passes == 2


def test_what_sparks_own_source_wrote_is_understood_as_offsets_without_ids() -> None:
    read = Offsets.from_json(json.loads('{"payments":{"0":23,"1":40}}'))
    assert read == Offsets({"payments": NO_ID}, {TopicPartition("payments", 0): 23, TopicPartition("payments", 1): 40})


@pytest.mark.parametrize(
    "text", ['{"logOffset": 7}', '{"payments": {"0": "x"}}', '{"a": {"id": "nobody"}}', '{"a": [1]}']
)
def test_a_checkpoint_of_another_source_is_refused(text: str) -> None:
    with pytest.raises(CheckpointNotUnderstood, match="it belongs to another one"):
        Offsets.from_json(json.loads(text))
