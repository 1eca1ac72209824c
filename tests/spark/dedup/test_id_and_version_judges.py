"""Event ids within a watermark and growing versions, against naive models: without Spark, at times the test says."""

from collections.abc import Sequence

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from semel.spark.dedup.id_judge import IdJudge
from semel.spark.dedup.judge import Judge, Moment, State
from semel.spark.dedup.silence import STEPS_MIN
from semel.spark.dedup.version_judge import VersionJudge

WITHIN_MS = 3000
FORGET_MS = 50
# Of one stretch without rows so much counts, and so much is no silence yet.
STEP_MS = FORGET_MS // STEPS_MIN
LONGEST_MS = FORGET_MS + STEP_MS
Row = tuple[int | None, int | None]


def rows_of(column: str, rows: Sequence[Row]) -> pa.Table | None:
    """Of (key, value); neither is there where the row makes no claim. Keys 1 and 2 share their first half."""
    if not rows:
        return None
    claims = [row if None not in row else (None, None) for row in rows]
    return pa.table(
        {
            "turn": pa.array(range(len(rows))),
            "_semel_key_high": pa.array([None if key is None else key // 3 for key, _ in claims], pa.int64()),
            "_semel_key_low": pa.array([None if key is None else -key for key, _ in claims], pa.int64()),
            column: pa.array([value for _, value in claims], pa.int64()),
        }
    )


def outcomes(judge: Judge, state: State | None, rows: pa.Table | None, moment: Moment) -> tuple[list[str], State]:
    """By the turn of the row, and the state afterwards."""
    verdict = judge.judge(state, rows, moment)
    if verdict.rows is None:
        return [], verdict.state
    shown = {row["turn"]: row["outcome"] for row in verdict.rows.to_pylist()}
    return [shown[turn] for turn in range(len(shown))], verdict.state


keys = st.none() | st.integers(0, 5)
id_batches = st.lists(
    st.tuples(
        st.lists(st.tuples(keys, st.none() | st.integers(0, 20).map(lambda second: second * 1000)), max_size=12),
        st.integers(0, 4),
    ),
    max_size=8,
)


@given(id_batches)
def test_ids_are_found_while_a_copy_may_come_in_time_and_what_is_late_is_never_new(
    batches: list[tuple[list[Row], int]],
) -> None:
    judge = IdJudge({}, WITHIN_MS)
    state: State | None = None
    watermark_ms = 0
    seen: dict[int, int] = {}
    for rows, step in batches:
        watermark_ms += step * 1000
        moment = Moment(0, watermark_ms or None, False)
        shown, state = outcomes(judge, state, rows_of("_semel_happened_ms", rows), moment)
        seen = {key: happened for key, happened in seen.items() if happened + WITHIN_MS >= watermark_ms}
        assert shown == naive_ids(rows, seen, watermark_ms)
        # The state holds exactly those ids that may still be needed, at 20 bytes each.
        assert len(state.kept) == 20 * len(seen)


def naive_ids(rows: Sequence[Row], seen: dict[int, int], watermark_ms: int) -> list[str]:
    """Rows that are not late are looked at first, in the order in which they came."""
    named = ["unclaimed"] * len(rows)
    in_time = [turn for turn, (_, happened) in enumerate(rows) if happened is not None and happened >= watermark_ms]
    late = [turn for turn, (_, happened) in enumerate(rows) if happened is not None and happened < watermark_ms]
    for turn in in_time + late:
        key, happened = rows[turn]
        if key is None or happened is None:
            continue
        if key in seen:
            named[turn] = "duplicate"
        elif turn in late:
            named[turn] = "late"
        else:
            named[turn] = "accepted"
            seen[key] = happened
    return named


version_batches = st.lists(
    st.tuples(st.lists(st.tuples(keys, st.none() | st.integers(-3, 9)), max_size=12), st.integers(0, 40)), max_size=8
)


def silent_aggregate(batches: int) -> list[tuple[list[Row], int]]:
    """One aggregate that is silent while another one is heard in so many batches, and then sends its version again."""
    return [([(0, 5), (1, -3)], 0), *(([(1, number)], FORGET_MS) for number in range(batches)), ([(0, 5)], 0)]


# In each batch a seventh of the time counts, so that only more batches than are drawn come to the end of it.
@example(silent_aggregate(STEPS_MIN))
@example(silent_aggregate(STEPS_MIN + 1))
@example(silent_aggregate(STEPS_MIN + 2))
@example(silent_aggregate(STEPS_MIN + 3))
@given(version_batches)
def test_a_version_is_accepted_when_it_is_newer_than_the_last_and_never_twice(
    batches: list[tuple[list[Row], int]],
) -> None:
    judge = VersionJudge({}, FORGET_MS)
    state: State | None = None
    now_ms = heard_ms = lived_ms = 0
    last: dict[int, tuple[int, int]] = {}
    for rows, step in batches:
        now_ms += step
        shown, state = outcomes(judge, state, rows_of("_semel_version", rows), Moment(now_ms, None, False))
        if rows:
            # A clock that stands still where nothing came for longer.
            at_ms = lived_ms + min(now_ms - heard_ms, STEP_MS)
            last = {key: (version, heard) for key, (version, heard) in last.items() if heard >= at_ms - LONGEST_MS}
            assert shown == naive_versions(rows, last, at_ms)
            if any(heard == at_ms for _, heard in last.values()):
                heard_ms, lived_ms = now_ms, at_ms
        assert len(state.kept) == 32 * len(last)


def test_an_aggregate_of_which_copies_keep_coming_is_not_forgotten_however_many_others_come() -> None:
    judge, state = VersionJudge({}, FORGET_MS), None
    for turn in range(3 * STEPS_MIN):
        rows = [(0, 5), (100 + turn, 1)]
        shown, state = outcomes(judge, state, rows_of("_semel_version", rows), Moment(turn * STEP_MS, None, False))
        assert shown == ["duplicate" if turn else "accepted", "accepted"]


def test_an_absence_of_the_query_is_no_silence_of_aggregates_of_which_nothing_comes_right_after_it_either() -> None:
    judge, state = VersionJudge({}, FORGET_MS), None
    for now_ms, row, outcome in (
        (0, (0, 5), "accepted"),
        (1_000_000, (1, 1), "accepted"),
        (1_000_000 + STEP_MS, (1, 2), "accepted"),
        (1_000_000 + STEP_MS, (0, 5), "duplicate"),
    ):
        shown, state = outcomes(judge, state, rows_of("_semel_version", [row]), Moment(now_ms, None, False))
        assert shown == [outcome]


def naive_versions(rows: Sequence[Row], last: dict[int, tuple[int, int]], now_ms: int) -> list[str]:
    """In one batch older versions come first, in whatever order they arrived, and copies behind what they copy."""
    named = ["unclaimed"] * len(rows)
    before = {key: version for key, (version, _) in last.items()}
    taken: set[Row] = set()
    for turn in sorted(range(len(rows)), key=lambda turn: (rows[turn][1] is None, rows[turn][1], turn)):
        key, version = rows[turn]
        if key is None or version is None:
            continue
        if key in before and version <= before[key]:
            named[turn] = "duplicate" if version == before[key] else "late"
        elif (key, version) in taken:
            named[turn] = "duplicate"
        else:
            named[turn] = "accepted"
            taken.add((key, version))
        newest = max(version, last[key][0]) if key in last else version
        last[key] = newest, now_ms
    return named
