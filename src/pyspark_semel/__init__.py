"""Where Spark looks for `format("semel")`: a package `pyspark_semel` with a `DefaultSource`."""

from semel.spark.data_source import SemelDataSource as DefaultSource

__all__ = ["DefaultSource"]
