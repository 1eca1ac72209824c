"""A chart of the decisions in each of the last seconds: accepted batches below, and the others above them on another
scale, because one duplicate among four thousand batches would be less than a pixel.

Pure: the time is an argument.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from semel.ui.charts.drawing import HEIGHT, SENT_SHARE, WIDTH, Chart, Shape, stacked

SECONDS_SHOWN: Final = 120
_KINDS: Final = {"accepted": "stored", "duplicate": "absorbed", "gap": "gap", "fenced": "fenced"}


class History:
    """Counts for each second, from counts since the start of a broker."""

    def __init__(self, outcomes: Sequence[str]) -> None:
        self._outcomes = outcomes
        self._last: Mapping[str, int] | None = None
        # A second and its decisions, without seconds that had none.
        self._seconds: deque[tuple[int, dict[str, int]]] = deque(maxlen=SECONDS_SHOWN)

    def note(self, now: float, counts: Mapping[str, int]) -> None:
        """Note the present counts. The first ones do not say when the batches before them came."""
        last, self._last = self._last, {name: int(counts.get(name, 0)) for name in self._outcomes}
        fallen = {name: count - last[name] for name, count in self._last.items()} if last is not None else {}
        if not any(fallen.values()):
            return
        if not self._seconds or self._seconds[-1][0] != int(now):
            self._seconds.append((int(now), dict.fromkeys(self._outcomes, 0)))
        for name, count in fallen.items():
            self._seconds[-1][1][name] += max(count, 0)

    def drawn(self, now: float) -> dict[str, Any]:
        """The chart of the last two minutes, with the present second at the right."""
        first = int(now) - SECONDS_SHOWN + 1
        by_second = dict(self._seconds)
        nothing = dict.fromkeys(self._outcomes, 0)
        columns = [by_second.get(second, nothing) for second in range(first, int(now) + 1)]
        others = [name for name in self._outcomes if name != "accepted"]
        accepted_max = max(one["accepted"] for one in columns)
        others_max = max(sum(one[name] for name in others) for one in columns)
        below, above = HEIGHT * SENT_SHARE, HEIGHT * (1 - SENT_SHARE)
        shapes = (
            *stacked([[one["accepted"]] for one in columns], ["stored"], accepted_max, height=below),
            *stacked(
                [[one[name] for name in others] for one in columns],
                [_KINDS[name] for name in others],
                others_max,
                height=above,
                bottom=above,
            ),
            Shape("level", f"M0 {above:.1f}H{WIDTH:g}"),
        )
        totals = ", ".join(f"{sum(one[name] for one in columns):,} {name}" for name in self._outcomes)
        title = f"the last {SECONDS_SHOWN} seconds: {totals}"
        return {
            "seconds": SECONDS_SHOWN,
            "accepted_max": accepted_max,
            "others_max": others_max,
            "chart": Chart(title, shapes).as_json(),
        }
