"""The source as a stream whose batches have limits, and which ends in a run with `availableNow`. Spark asks for that
from 4.2 on; this module cannot be imported before.
"""

from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from semel.spark.source.errors import told_in_one_line
from semel.spark.source.stream import RefusedStreamReader, SemelStreamReader


class LimitedStreamReader(SemelStreamReader, SupportsTriggerAvailableNow):
    """Spark names the last end whenever it asks for the next one."""

    def getDefaultReadLimit(self) -> ReadLimit:
        """Says only whether there is a limit: Spark hands this back, and cannot express two limits at once."""
        if self._options.offsets_max is not None:
            return ReadMaxRows(self._options.offsets_max)
        if self._options.offsets_min is not None:
            return ReadMinRows(self._options.offsets_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        with told_in_one_line():
            self._target = self._observer.look()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # type: ignore[override]
        return self._next_end(start, is_limited=not isinstance(limit, ReadAllAvailable))


class RefusedLimitedStreamReader(RefusedStreamReader, SupportsTriggerAvailableNow):
    """The same reason, whatever Spark asks first."""

    def prepareForTriggerAvailableNow(self) -> None:
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:
        return self._refuse()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # type: ignore[override]
        return self._refuse()
