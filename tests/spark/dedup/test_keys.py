"""What a producer, an event or an aggregate is known by: the same for the same meaning, and for nothing else."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

from semel.spark.dedup.judge import KEY_HIGH, KEY_LOW
from semel.spark.dedup.keys import keyed, kinds

Key = tuple[int | None, int | None]


def key_of_all(spark: "SparkSession", *names: str) -> Key:
    """The key of these names together, as of a scope and a producer; each is a column in SQL."""
    df = spark.range(1).selectExpr(*(f"{name} AS c{number}" for number, name in enumerate(names)), "true AS there")
    [row] = keyed(df, "scope", df.columns[:-1], needed=["there"]).select(KEY_HIGH, KEY_LOW).collect()
    return row[0], row[1]


def keys(spark: "SparkSession", *names: str) -> list[Key]:
    """The key of each of these names."""
    return [key_of_all(spark, name) for name in names]


def test_a_key_is_of_what_a_value_means_and_not_of_how_it_is_stored(spark: "SparkSession") -> None:
    whole = keys(spark, "1Y", "1S", "1", "1L", "-1L", "2L")
    assert len(set(whole[:4])) == 1
    assert len(set(whole)) == 3
    text = keys(spark, "'1'", "cast('1' AS binary)", "'1 '", "''")
    assert text[0] == text[1]
    assert len(set(text)) == 3
    zeros = keys(spark, "0.0D", "-0.0D")
    assert zeros[0] == zeros[1]


def test_a_key_does_not_depend_on_the_time_zone_of_the_session(spark: "SparkSession") -> None:
    names = ["timestamp_seconds(1700000000)", "struct(timestamp_seconds(1700000000) AS at)", "DATE'2026-01-01'"]
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        found = []
        for zone in ("UTC", "America/New_York"):
            spark.conf.set("spark.sql.session.timeZone", zone)
            found.append(keys(spark, *names))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert found[0] == found[1]


def test_where_one_value_ends_and_the_next_begins_is_part_of_the_key(spark: "SparkSession") -> None:
    pairs = [
        ("'ab'", "'c'"),
        ("'a'", "'bc'"),
        ("'abc'", "''"),
        ("''", "'abc'"),
        ("'abc'", "cast(null AS string)"),
        ("cast(null AS string)", "'abc'"),
        ("'-'", "'abc'"),
        ("'1:a'", "'1:b'"),
        ("1", "23"),
        ("12", "3"),
    ]
    assert len({key_of_all(spark, *pair) for pair in pairs}) == len(pairs)
    assert key_of_all(spark, "1", "23L") == key_of_all(spark, "1L", "23")


def test_what_would_change_a_key_is_a_kind_of_its_own_and_pinned(spark: "SparkSession") -> None:
    types = "a int, b bigint, c string, d binary, e decimal(10,2), f double, g struct<x:int>"
    df = spark.createDataFrame([], types)
    assert list(kinds(df, df.columns).values()) == [
        *["whole number"] * 2,
        *["text"] * 2,
        "decimal(10,2)",
        "double",
        "struct<x:int>",
    ]


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("map<int,int>", "a map has no order"),
        ("array<struct<inside:map<int,int>>>", "a map has no order"),
        ("string collate UTF8_LCASE", "a string collate UTF8_LCASE takes different texts for the same"),
    ],
)
def test_what_may_be_written_in_two_ways_names_nothing(spark: "SparkSession", kind: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"scope='name': {sentence}"):
        keyed(spark.createDataFrame([], f"name {kind}"), "scope", ["name"], needed=["name"])
