"""A way around PySpark's `mapInArrow`, which takes a dot in the name of a column for a part of it, and refuses
backticks: columns travel by number, and the function finds them under their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Task = Callable[["Iterable[pyarrow.RecordBatch]"], "Iterator[pyarrow.RecordBatch]"]


def map_in_arrow(rows: DataFrame, task: Task, schema: str | StructType) -> DataFrame:
    """What `rows.mapInArrow(task, schema)` gives, whatever the columns of the rows are called."""
    names = rows.columns
    numbered = rows.toDF(*(f"c{number}" for number in range(len(names))))
    return numbered.mapInArrow(_Named(task, names), schema)


@dataclass(frozen=True)
class _Named:
    """The function, with the columns called by their names again."""

    task: Task
    names: list[str]

    def __call__(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        return self.task(batch.rename_columns(self.names) for batch in batches)
