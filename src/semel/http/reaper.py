"""Deletes keys whose result has expired, on connections of its own. It must never take a key that somebody holds.

An expired key is free whether it was reaped or not: the reaper only gives back space.
"""

from sqlalchemy import Engine

from semel.database.times import now_ms as clock_ms
from semel.http.claims import REAPED_ROWS_MAX, reap_batch


def reap(engine: Engine, now_ms: int | None = None) -> int:
    """Delete all that has expired, in transactions of REAPED_ROWS_MAX keys; answer how many keys that were."""
    until_ms = clock_ms() if now_ms is None else now_ms
    reaped = 0
    while True:
        with engine.begin() as connection:
            count = reap_batch(connection, until_ms)
        reaped += count
        if count < REAPED_ROWS_MAX:
            return reaped
