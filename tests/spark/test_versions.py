"""What older versions of Spark lack is done in another way with the same result, or refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as sf

from semel.spark.lanes.options import LANES_MAX
from semel.spark.source.errors import OptionRefused
from semel.spark.source.options import check_for_stream, read_options
from semel.spark.versions import salts_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("count", [1, 2, 7, LANES_MAX])
def test_where_spark_knows_only_hashes_each_lane_has_one_that_brings_it_into_its_own_partition(
    spark: SparkSession, count: int
) -> None:
    """By the very expression with which Spark chooses a partition, `pmod(hash(salt), count)`."""
    salts = spark.createDataFrame(list(enumerate(salts_of(count))), "lane int, salt int")
    assert salts.where(sf.pmod(sf.hash("salt"), sf.lit(count)) != sf.col("lane")).count() == 0
    assert salts.count() == count


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"])
def test_a_limit_is_refused_by_name_where_spark_asks_for_none(name: str) -> None:
    value = "10s" if name == "maxTriggerDelay" else "10"
    options = read_options({"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "payments", name.lower(): value})
    check_for_stream(options, asks_for_limits=True)
    with pytest.raises(OptionRefused, match=f"leave out option {name}, or use Spark 4.2 or newer"):
        check_for_stream(options, asks_for_limits=False)
