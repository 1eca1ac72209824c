"""Of two copies in one batch the one that came first in the input is accepted, whatever order a shuffle brings them in.
Else a batch that is run again would accept the other one, and a sink could have both.
"""

from collections.abc import Sequence
from itertools import permutations

import pyarrow as pa
import pytest

from semel.spark.dedup.id_judge import IdJudge
from semel.spark.dedup.operator import _rows_of, _stateless
from semel.spark.dedup.pieces import PLACE, ROWS, packed, unpacked

PLACES = (0, 3, 1 << 40)


def piece(place: int) -> bytes:
    """Two rows, of which one is a copy in every piece."""
    return packed(
        pa.table(
            {
                "place": [place, place],
                "_semel_key_high": [7, place],
                "_semel_key_low": [7, place],
                "_semel_happened_ms": [1000, 1000],
            }
        )
    )


@pytest.mark.parametrize("order", list(permutations(PLACES)))
def test_the_pieces_of_a_stream_are_judged_in_the_order_of_the_input(order: Sequence[int]) -> None:
    import pandas

    whole = pandas.DataFrame({PLACE: order, ROWS: [piece(place) for place in order]})
    woken = pandas.DataFrame({PLACE: [2], ROWS: [None]})
    for chunks in ([whole], [whole[:1], woken, whole[1:]]):
        rows = _rows_of(chunks)
        assert rows is not None
        assert rows["place"].to_pylist() == [place for place in PLACES for _ in range(2)]


@pytest.mark.parametrize("order", list(permutations(PLACES)))
def test_the_pieces_of_a_batch_are_judged_in_the_order_of_the_input(order: Sequence[int]) -> None:
    pieces = pa.table({PLACE: order, ROWS: pa.array([piece(place) for place in order], pa.binary())})
    [judged] = _stateless(IdJudge({}, 1000))(pieces)[ROWS]
    copies = unpacked(judged.as_buffer()).to_pylist()[::2]
    assert [(row["place"], row["outcome"]) for row in copies] == [
        (0, "accepted"),
        (3, "duplicate"),
        (1 << 40, "duplicate"),
    ]


def test_a_bucket_that_is_only_woken_has_no_rows() -> None:
    import pandas

    assert _rows_of([pandas.DataFrame({PLACE: [2], ROWS: [None]})]) is None
