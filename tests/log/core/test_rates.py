"""The rate of a quota, against all amounts written down one by one, and what a client gets that goes by it."""

from hypothesis import given
from hypothesis import strategies as st

from semel.log.core.rates import AGE_MS_MAX, SPAN_MS_MIN, WINDOW_MS, WINDOWS, Rate

History = list[tuple[int, float]]
# Milliseconds since the one before, and the amount. Some are whole windows.
histories = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 15_000), st.sampled_from([0, 1, 999, 1_000, 1_001, 10_999, 11_000, 11_001])),
        st.integers(1, 1_000).map(float),
    ),
    min_size=1,
    max_size=40,
)


def naive_windows(history: History) -> list[list[tuple[int, float]]]:
    """All amounts, in windows that begin with the first one that comes a second after the last window began. Before an
    amount is put into a window, those windows are gone whose last amount is too old."""
    windows: list[list[tuple[int, float]]] = []
    for at_ms, amount in history:
        windows = [window for window in windows if at_ms - window[-1][0] < AGE_MS_MAX]
        if not windows or at_ms - windows[-1][0][0] >= WINDOW_MS:
            windows.append([])
        windows[-1].append((at_ms, amount))
    return windows


def naive_wait_ms(history: History, limit: float, now_ms: int) -> float:
    """How long it takes until all that counts, divided by the time over which it came, is the limit."""
    windows = [window for window in naive_windows(history) if now_ms - window[-1][0] < AGE_MS_MAX]
    amount = sum(amount for window in windows for _, amount in window)
    elapsed_ms = now_ms - windows[0][0][0] if windows else 0
    while elapsed_ms // WINDOW_MS < WINDOWS - 1:
        elapsed_ms += WINDOW_MS
    return max(amount / limit * 1_000 - elapsed_ms, 0)


@given(histories, st.integers(0, 20_000), st.floats(0.5, 500))
def test_the_wait_is_that_of_all_amounts_written_down(steps: History, later_ms: int, limit: float) -> None:
    rate, history, now_ms = Rate(), [], 1_770_000_000_000
    for step_ms, amount in steps:
        now_ms += step_ms
        rate.record(amount, now_ms)
        history.append((now_ms, amount))
    now_ms += later_ms
    assert abs(rate.wait_ms(limit, now_ms) - naive_wait_ms(history, limit, now_ms)) <= 1


@given(histories)
def test_eleven_windows_and_the_one_before_them_are_all_that_is_kept(steps: History) -> None:
    """However long a client goes on, it takes no more memory."""
    rate, now_ms = Rate(), 0
    for step_ms, amount in steps:
        now_ms += step_ms
        rate.record(amount, now_ms)
        assert len(rate._windows) <= WINDOWS + 1


def test_what_is_allowed_in_ten_seconds_may_be_used_at_once_and_one_more_may_not() -> None:
    rate = Rate()
    rate.record(100 * SPAN_MS_MIN / 1_000, 0)
    assert rate.wait_ms(100, 0) == 0
    rate.record(100, 0)
    assert rate.wait_ms(100, 0) == 1_000


def test_after_eleven_seconds_nothing_is_held_against_a_client() -> None:
    rate = Rate()
    rate.record(1e9, 0)
    assert rate.wait_ms(1, AGE_MS_MAX - 1) > 0
    assert rate.wait_ms(1, AGE_MS_MAX) == 0
    assert rate.per_second(AGE_MS_MAX) == 0


@given(st.integers(1, 3_000), st.integers(100, 2_000))
def test_a_client_that_waits_as_it_is_told_gets_twice_its_limit_at_most(amount: int, limit: int) -> None:
    """It sends again as soon as it may. One that sends ten seconds' worth at once may do so whenever it has been idle,
    as with Apache Kafka."""
    rate, now_ms, sent = Rate(), 0, 0
    for _ in range(300):
        rate.record(amount, now_ms)
        sent += amount
        now_ms += rate.wait_ms(limit, now_ms)
        assert sent <= 2 * limit * (now_ms + SPAN_MS_MIN + WINDOW_MS) / 1_000 + amount


def test_the_wait_for_a_limit_of_next_to_nothing_is_a_number() -> None:
    rate = Rate()
    rate.record(1, 0)
    assert rate.wait_ms(5e-324, 0) > 10**10
