"""The source as a batch read: the records between two bounds, read once.

When Spark plans the query, the bounds become offsets, and these are cut into slices; a task reads only its slice.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from semel.client.client import LogClient
from semel.client.places import Slice
from semel.spark.source import losses, portions, reader
from semel.spark.source.errors import told_in_one_line
from semel.spark.source.options import SourceOptions
from semel.spark.source.view import Observer

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_LOG: Final = logging.getLogger(__name__)


class SemelBatchReader(DataSourceReader):
    """Spark makes one to plan a query, and one for each of its tasks."""

    def __init__(self, options: SourceOptions, columns: Sequence[str], without_effect: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._without_effect = tuple(without_effect)

    def partitions(self) -> list[InputPartition]:
        """The slices between the bounds, each for one task."""
        for name in self._without_effect:
            _LOG.warning("option %s is for streams and changes nothing in a batch", name)
        with told_in_one_line(), LogClient(self._options.client, address_is_new=True) as client:
            cut = portions.split(self._slices(client), self._options.partitions_min, self._options.records_max)
            return [reader.SlicePartition(piece) for piece in cut]

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        with told_in_one_line():
            # If there are no slices, PySpark makes one empty partition itself, of its own class.
            if isinstance(partition, reader.SlicePartition):
                yield from reader.read(partition.piece, self._columns, self._options)

    def _slices(self, client: LogClient) -> list[Slice]:
        observer = Observer(client, self._options)
        topics = observer.topics_that_exist()
        begins = observer.starting(topics, self._options.begins(streaming=False))
        ends = observer.ending(topics, self._options.ending)
        log_starts = observer.begins(begins)
        reader.report(losses.truncated(begins, log_starts), self._options)
        return [
            Slice(topics[place.topic], place.partition, max(begin, log_starts[place]), ends[place])
            for place, begin in sorted(begins.items())
            if begin <= ends[place]
        ]
