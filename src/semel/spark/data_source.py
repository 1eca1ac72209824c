"""What Spark finds under `format("semel")`: the source, and the sink into the log.

This module only joins the two; each has a package of its own. No request goes to a broker before Spark plans. Spark
imports this module in every process that plans or reads, so only a query that writes imports the modules that write.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from semel.client.errors import LogError
from semel.spark.source import options as source_options
from semel.spark.source.batch import SemelBatchReader
from semel.spark.source.errors import OptionRefused, told_in_one_line
from semel.spark.source.rows import chosen_columns, schema_of
from semel.spark.source.stream import RefusedStreamReader, SemelStreamReader
from semel.spark.versions import ASKS_FOR_LIMITS, STREAMS_INTO_PYTHON, THIS_SPARK

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from semel.spark.lanes.stream_writer import LaneStreamWriter
    from semel.spark.lanes.writer import LaneBatchWriter


class SemelDataSource(DataSource):
    """Topics of semel, or of Apache Kafka, as tables and streams."""

    @classmethod
    def name(cls) -> str:
        return "semel"

    def schema(self) -> "StructType":
        with told_in_one_line():
            return schema_of(source_options.read_options(self.options))

    def reader(self, schema: "StructType") -> SemelBatchReader:
        with told_in_one_line():
            options = source_options.read_options(self.options)
            return SemelBatchReader(options, chosen_columns(schema), source_options.check_for_batch(options))

    def streamReader(self, schema: "StructType") -> SemelStreamReader | RefusedStreamReader:
        reader, refused = _stream_readers()
        try:
            options = source_options.read_options(self.options)
            source_options.check_for_stream(options)
            return reader(options, chosen_columns(schema))
        except LogError as reason:
            return refused(reason)

    def writer(self, schema: "StructType", overwrite: bool) -> "LaneBatchWriter":
        from semel.spark.lanes import options as sink_options
        from semel.spark.lanes.writer import LaneBatchWriter

        with told_in_one_line():
            options = sink_options.read_options(self.options)
            sink_options.check_for_batch(options)
            return LaneBatchWriter(options, schema, overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "LaneStreamWriter":
        from semel.spark.lanes import options as sink_options

        with told_in_one_line():
            if not STREAMS_INTO_PYTHON:
                raise OptionRefused(
                    f'{THIS_SPARK} cannot stream into format("semel"): write with semel.spark.fan_out and log_sink, '
                    "which store each batch once as well, or use Spark 4.1 or newer"
                )
            from semel.spark.lanes.stream_writer import LaneStreamWriter

            options = sink_options.read_options(self.options)
            sink_options.check_for_stream(options)
            return LaneStreamWriter(options, schema, overwrite)


def _stream_readers() -> tuple[type[SemelStreamReader], type[RefusedStreamReader]]:
    if not ASKS_FOR_LIMITS:
        return SemelStreamReader, RefusedStreamReader
    from semel.spark.source.limited_stream import LimitedStreamReader, RefusedLimitedStreamReader

    return LimitedStreamReader, RefusedLimitedStreamReader
