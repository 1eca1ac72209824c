"""Very long ids: they hold up no audit, and each still counts as itself."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from semel.audit import Given, audit
from semel.audit.long_ids import LENGTH_MAX, shortened
from semel.audit.words import in_words

KEY = bytes(range(16))
LONG = 3_000_000


def test_an_id_of_megabytes_takes_no_more_steps_than_others() -> None:
    ids = pa.array([b"a", b"x" * LONG, b"b" * LENGTH_MAX], pa.binary())
    steps = [len(words) for _, words in in_words(shortened(ids, KEY))]
    assert sum(steps) < 300


@given(st.lists(st.integers(LENGTH_MAX - 2, LENGTH_MAX + 2).map(lambda length: b"x" * length) | st.binary(max_size=9)))
def test_ids_are_equal_behind_it_if_they_were_before(ids: list[bytes]) -> None:
    found = shortened(pa.array(ids, pa.binary()), KEY).to_pylist()
    assert [found.index(one) for one in found] == [ids.index(one) for one in ids]
    assert [one for one, given in zip(found, ids, strict=True) if len(given) <= LENGTH_MAX] == [
        given for given in ids if len(given) <= LENGTH_MAX
    ]
    assert all(len(one) <= LENGTH_MAX for one in found)


def test_nobody_without_the_key_knows_what_stands_for_an_id() -> None:
    ids = pa.array([b"x" * LONG], pa.binary())
    assert shortened(ids, KEY) != shortened(ids, KEY[::-1])


def test_a_slice_is_looked_at_where_it_is() -> None:
    ids = pa.array([b"y" * LONG, b"a", b"x" * LONG], pa.binary())
    assert shortened(ids[1:], KEY).to_pylist() == [b"a", *shortened(ids[2:], KEY).to_pylist()]


def test_a_long_id_that_is_lost_is_found() -> None:
    verdict = audit(Given(["p-1", "x" * LONG, "y" * LONG]), Given(["p-1", "y" * LONG, "y" * LONG]))
    [sink] = verdict.sinks
    assert [len(found.listed) for found in (sink.lost, sink.doubled)] == [1, 1]
    assert sink.lost.listed[0].text.startswith("xxxx")
