"""What a judge is: it decides about the rows of one bucket in one batch, and returns the state that the bucket has to
keep. It is pure: time comes in as an argument, and the same state, rows and moment always give the same verdict.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import numpy
import pyarrow as pa

from semel.spark.dedup.key_table import Integers
from semel.spark.dedup.outcomes import EXPECTED, NAMES, OUTCOME

STATE_VERSION: Final = 2
"""The version of the bytes that a bucket keeps, and of how keys are made. A change of the layout raises it, and has to
read older layouts; state whose keys were made in another way would match no key, and is refused."""

CLAIM_PREFIX: Final = "_semel_"
"""The prefix of the columns that are added to the rows to judge them, and removed afterwards."""

KEY_HIGH: Final = f"{CLAIM_PREFIX}key_high"
KEY_LOW: Final = f"{CLAIM_PREFIX}key_low"
"""Both halves of the key, which `keys` makes from the columns that the user named; null if a row makes no claim."""


NOTHING_EXPECTED: Final = -1


class Moment(NamedTuple):
    """When a batch is judged. Both times are the same when the batch is replayed."""

    now_ms: int
    watermark_ms: int | None
    """Rows that are older are late; None while no row is, and without streaming."""
    is_last: bool
    """No rows will follow: these are the rows of a batch DataFrame."""


class State(NamedTuple):
    """What a bucket keeps: bytes that its judge understands, and a piece with the rows that are held."""

    kept: bytes
    held: bytes | None = None


@dataclass(frozen=True)
class Verdict:
    rows: pa.Table | None
    """The rows to return, with their outcomes; None if there are none."""
    state: State
    wake_at_ms: int | None = None
    """When the bucket has to be judged again even if no rows came; None for never."""


class Judge(Protocol):
    @property
    def pinned(self) -> Mapping[str, object]:
        """The settings that must not change while there is state, because the meaning of the state depends on them."""
        ...

    def judge(self, state: State | None, rows: pa.Table | None, moment: Moment) -> Verdict: ...


class StateMismatch(ValueError):
    """The checkpoint's state was made with other settings than the present ones."""


def pin(judge: Judge, buckets: int) -> str:
    return json.dumps({**judge.pinned, "buckets": buckets, "state_version": STATE_VERSION}, sort_keys=True)


def check_pin(pinned: str, wanted: str) -> None:
    """Refuses state that was made with other settings: it would call duplicates new."""
    if pinned == wanted:
        return
    then, now = json.loads(pinned), json.loads(wanted)
    changes = [
        f"{name} was {then.get(name)!r} and is {now.get(name)!r}"
        for name in sorted({*then, *now})
        if then.get(name) != now.get(name)
    ]
    raise StateMismatch(
        f"the deduplication in this checkpoint was begun with other settings: {'; '.join(changes)}."
        " Give what was given then, or begin with a new checkpoint"
    )


def with_outcomes(rows: pa.Table, outcomes: Integers, expected: Integers) -> pa.Table:
    """The rows without the columns that were added to judge them, and with the outcome of each."""
    rows = rows.select([name for name in rows.column_names if not name.startswith(CLAIM_PREFIX)])
    numbers = pa.array(expected, mask=expected == NOTHING_EXPECTED)
    return rows.append_column(OUTCOME, pa.array(NAMES).take(pa.array(outcomes))).append_column(EXPECTED, numbers)


def integers(rows: pa.Table, name: str) -> Integers:
    """A column of whole numbers, with -1 for null."""
    column: Integers = rows[name].fill_null(-1).to_numpy()
    return column.astype(numpy.int64, copy=False)
