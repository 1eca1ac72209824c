"""What older versions of Spark lack is done in another way with the same result, or refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as sf

from semel.spark.data_source import SemelDataSource
from semel.spark.lanes.options import LANES_MAX
from semel.spark.source.errors import OptionRefused
from semel.spark.source.options import check_for_stream, read_options
from semel.spark.versions import partitioned_by_number, register, salts_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.mark.parametrize("count", [1, 2, 7, LANES_MAX])
def test_where_spark_knows_only_hashes_each_lane_has_one_that_brings_it_into_its_own_partition(
    spark: SparkSession, count: int
) -> None:
    """By the very expression with which Spark chooses a partition, `pmod(hash(salt), count)`."""
    salts = spark.createDataFrame(list(enumerate(salts_of(count))), "lane int, salt int")
    assert salts.where(sf.pmod(sf.hash("salt"), sf.lit(count)) != sf.col("lane")).count() == 0
    assert salts.count() == count


class OlderRows:
    """Rows as Spark 4.0 has them: it cannot be told which partition a row belongs in."""

    def __init__(self, rows: DataFrame) -> None:
        self.repartition = rows.repartition


def test_where_spark_knows_only_hashes_each_row_is_in_the_partition_of_its_number(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(number % 7,) for number in range(21)], "lane int")
    placed = partitioned_by_number(OlderRows(rows), 7, "lane")  # type: ignore[arg-type]
    assert placed.where(sf.spark_partition_id() == sf.col("lane")).count() == 21


class OlderSession:
    """A session that refuses each source, for a reason."""

    def __init__(self, condition: str) -> None:
        self._condition = condition
        self.dataSource = self

    def register(self, source: object) -> None:
        error = AnalysisException("refused")
        error.getCondition = lambda: self._condition  # type: ignore[method-assign]
        raise error


def test_a_source_that_spark_has_found_itself_need_not_be_made_known_and_any_other_refusal_is_told() -> None:
    register(OlderSession("DATA_SOURCE_ALREADY_EXISTS"), SemelDataSource)  # type: ignore[arg-type]
    with pytest.raises(AnalysisException, match="refused"):
        register(OlderSession("DATA_SOURCE_NOT_FOUND"), SemelDataSource)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"])
def test_a_limit_is_refused_by_name_where_spark_asks_for_none(name: str) -> None:
    value = "10s" if name == "maxTriggerDelay" else "10"
    options = read_options({"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "payments", name.lower(): value})
    check_for_stream(options, asks_for_limits=True)
    with pytest.raises(OptionRefused, match=f"leave out option {name}, or use Spark 4.2 or newer"):
        check_for_stream(options, asks_for_limits=False)
