"""Downtime is nobody's silence, and neither is what a clock skips: only time that a broker lived through counts."""

from hypothesis import given
from hypothesis import strategies as st

from semel.log.core.silence import ABSENCES_MAX, Silence

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS
NOW_MS = 100 * WEEK_MS
TICK_MS = 5_000


def lived(silence: Silence, from_ms: int, until_ms: int) -> None:
    """A process that looks at its clocks at these times, and every day between them."""
    for now_ms in [*range(from_ms, until_ms, DAY_MS), until_ms]:
        silence.note_time(now_ms, now_ms - from_ms, WEEK_MS)


def restarted(silence: Silence) -> Silence:
    again = Silence()
    again.restore(silence.snapshot())
    return again


def test_who_was_silent_for_a_week_of_one_process_may_be_forgotten() -> None:
    silence = Silence()
    lived(silence, NOW_MS, NOW_MS + 2 * WEEK_MS)
    assert silence.horizon_ms == NOW_MS + WEEK_MS


def test_before_the_first_look_nobody_can_have_been_forgotten() -> None:
    silence = Silence()
    silence.note_time(NOW_MS, 0, WEEK_MS)
    assert silence.horizon_ms is not None
    assert silence.horizon_ms < 0


def test_the_time_between_two_processes_is_nobodys_silence() -> None:
    silence = Silence()
    lived(silence, NOW_MS, NOW_MS + 3 * DAY_MS)
    silence = restarted(silence)
    back_ms = NOW_MS + 300 * DAY_MS
    lived(silence, back_ms, back_ms + 5 * DAY_MS)
    # Three days before the outage and five since are a week and a day.
    assert silence.horizon_ms == NOW_MS + DAY_MS


def test_what_was_forgotten_before_a_restart_is_known_after_it() -> None:
    silence = Silence()
    lived(silence, NOW_MS, NOW_MS + 2 * WEEK_MS)
    again = restarted(silence)
    later_ms = NOW_MS + 3 * WEEK_MS
    assert again.producer_allowed_ms(later_ms, WEEK_MS) == later_ms - (NOW_MS + WEEK_MS)


def test_a_clock_that_is_a_day_ahead_for_a_moment_forgets_nobody() -> None:
    silence = Silence()
    lived(silence, NOW_MS, NOW_MS + 8 * DAY_MS)
    before = silence.horizon_ms
    assert before is not None
    now_ms, steady_ms = NOW_MS + 8 * DAY_MS, 8 * DAY_MS
    silence.note_time(now_ms + TICK_MS + DAY_MS, steady_ms + TICK_MS, WEEK_MS)
    assert before <= silence.horizon_ms <= before + TICK_MS
    silence.note_time(now_ms + 2 * TICK_MS, steady_ms + 2 * TICK_MS, WEEK_MS)
    assert before <= silence.horizon_ms <= before + 2 * TICK_MS


def test_a_clock_that_is_set_back_forgets_nobody_sooner() -> None:
    silence = Silence()
    lived(silence, NOW_MS, NOW_MS + 8 * DAY_MS)
    silence.note_time(NOW_MS + DAY_MS, 8 * DAY_MS + TICK_MS, WEEK_MS)
    assert silence.horizon_ms is not None
    assert silence.horizon_ms <= NOW_MS + DAY_MS


def test_a_clock_that_is_put_right_little_by_little_is_believed() -> None:
    silence = Silence()
    for tick in range(1_000):
        silence.note_time(NOW_MS + tick * (TICK_MS + 1), tick * TICK_MS, WEEK_MS)
    assert silence.snapshot()["absences"] == [(0, NOW_MS)]


@given(
    st.lists(
        st.tuples(st.integers(1, 30), st.integers(0, 30)),
        max_size=2 * ABSENCES_MAX + 10,
    )
)
def test_nobody_is_forgotten_before_a_broker_was_there_for_the_whole_period(
    lives: list[tuple[int, int]],
) -> None:
    """Against a plain count of the hours in which one was there, however often it went and came back."""
    hour_ms = 3_600_000
    silence = Silence()
    now_ms, attended = NOW_MS, list[bool]()
    for up_hours, down_hours in lives:
        began_ms = now_ms
        for _ in range(up_hours + 1):
            silence.note_time(now_ms, now_ms - began_ms, WEEK_MS)
            assert silence.horizon_ms is not None
            hours = max((silence.horizon_ms - NOW_MS) // hour_ms, 0)
            if silence.horizon_ms >= NOW_MS:
                assert sum(attended[hours:]) * hour_ms >= WEEK_MS
            attended.append(True)
            now_ms += hour_ms
        attended.pop()
        now_ms -= hour_ms
        silence = restarted(silence)
        assert len(silence.snapshot()["absences"]) <= ABSENCES_MAX
        attended += [False] * down_hours
        now_ms += down_hours * hour_ms


def test_a_clock_that_was_far_ahead_for_a_moment_keeps_nobody_longer_once_a_week_has_gone_by() -> None:
    silence = Silence()
    silence.note_time(NOW_MS, 0, WEEK_MS)
    silence.note_time(NOW_MS + 300 * DAY_MS, TICK_MS, WEEK_MS)
    back_ms = NOW_MS + 2 * TICK_MS
    for days in range(9):
        silence.note_time(back_ms + days * DAY_MS, 2 * TICK_MS + days * DAY_MS, WEEK_MS)
    assert silence.horizon_ms == back_ms + DAY_MS


def test_of_very_many_absences_none_is_forgotten() -> None:
    silence = Silence()
    for day in range(ABSENCES_MAX + 10):
        silence = restarted(silence)
        lived(silence, NOW_MS + day * DAY_MS, NOW_MS + day * DAY_MS + TICK_MS)
    assert silence.horizon_ms is not None
    assert silence.horizon_ms < NOW_MS, "in all these days a broker was there for minutes"
