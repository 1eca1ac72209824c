"""The spans that the promise about old ids rests on."""

from typing import Final

DAY_MS: Final = 24 * 60 * 60 * 1000

# How long a claim is kept unless somebody says otherwise: longer than any topic's usual retention, so that whatever can
# be delivered again is still known.
RETENTION_MS: Final = 30 * DAY_MS
# The least. The floor is never higher than this below the reaper's clock, and an id that is younger than FRESH_MS by
# the clock of whoever claims it is not compared with the floor. So two clocks may differ by 23 hours.
RETENTION_MIN_MS: Final = DAY_MS
FRESH_MS: Final = 60 * 60 * 1000
