"""The bytes that the checkpoints of queries keep. Whoever changes them raises STATE_VERSION, and has to read the older
ones: state that is read otherwise calls duplicates new, or new rows duplicates.
"""

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from semel.spark.dedup import by_id, by_sequence, by_version
from semel.spark.dedup.id_judge import IdJudge
from semel.spark.dedup.judge import KEY_HIGH, KEY_LOW, STATE_VERSION, Judge, Moment, StateMismatch, check_pin, pin
from semel.spark.dedup.keys import keyed
from semel.spark.dedup.sequence_judge import OnGap, SequenceJudge
from semel.spark.dedup.version_judge import VersionJudge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW_MS = 0x010203040506
HIGH, LOW = 0x1112131415161718, 0x2122232425262728
KEY = "1817161514131211 2827262524232221"


def kept(judge: Judge, **columns: int) -> str:
    """The state behind one row."""
    rows = pa.table({KEY_HIGH: [HIGH], KEY_LOW: [LOW], **{name: [value] for name, value in columns.items()}})
    return judge.judge(None, rows, Moment(NOW_MS, None, False)).state.kept.hex()


def test_the_state_of_ids_is_read_by_each_version() -> None:
    assert STATE_VERSION == 2
    # Its key, and when it expires in seconds: 0x1020 + 1.
    expected = f"{KEY} 21100000".replace(" ", "")
    assert kept(IdJudge({}, 1000), _semel_happened_ms=0x1020 * 1000) == expected


def test_the_state_of_versions_is_read_by_each_version() -> None:
    assert STATE_VERSION == 2
    # Its key, its last version, and when it was heard.
    expected = f"{KEY} 0504030201000000 0605040302010000".replace(" ", "")
    assert kept(VersionJudge({}, 1000), _semel_version=0x0102030405) == expected


def test_the_state_of_producers_is_read_by_each_version() -> None:
    assert STATE_VERSION == 2
    judge = SequenceJudge({}, ["pid"], "epoch", "number", 0, OnGap.QUARANTINE, 1000, 10, 1000)
    # Whether one was forgotten; then the key, when it was heard, and what `wire.sequences` keeps.
    known = "0605040302010000 0201 00000000 01000000 0000000000000000 ffffffffffffffff"
    expected = f"00 {KEY} 0605040302010000 {known}".replace(" ", "")
    assert kept(judge, epoch=0x0102, number=0) == expected


def test_a_name_has_the_same_key_in_each_version(spark: "SparkSession") -> None:
    """State whose keys were made in another way would match no row: all duplicates would be new."""
    assert STATE_VERSION == 2
    values = {
        "text": "'a'",
        "bytes": "X'00ff'",
        "number": "7S",
        "at": "timestamp_micros(1700000000123456)",
        "day": "DATE'2026-01-01'",
        "ratio": "-0.0D",
        "price": "1.50BD",
        "pair": "struct(1 AS a, timestamp_seconds(0) AS at)",
        "missing": "cast(null AS string)",
    }
    df = spark.range(1).selectExpr(*(f"{value} AS {name}" for name, value in values.items()), "true AS there")
    alone = keyed(df, "id", ["text"], needed=["text"]).select(KEY_HIGH, KEY_LOW)
    together = keyed(df, "scope", list(values), needed=["there"]).select(KEY_HIGH, KEY_LOW)
    assert [tuple(row) for row in alone.unionAll(together).collect()] == [
        (-8138069874981158523, -2059340250658660224),
        (-4440175424566330386, -3329001240637435128),
    ]


def test_each_setting_on_which_the_meaning_of_state_depends_is_pinned(spark: "SparkSession") -> None:
    """With another one, a query would go on with state that means something else, and call duplicates new."""
    df = spark.createDataFrame([], "id long, other long, name string, at timestamp, later timestamp")
    ids = [("id", "at", 1000), ("other", "at", 1000), ("id", "later", 1000), ("id", "at", 2000), ("name", "at", 1000)]
    versions = [("id", "id"), ("other", "id"), ("id", "other"), ("name", "id")]
    sequences = [
        ("id", "id", "id", ("other",), 0),
        ("other", "id", "id", ("other",), 0),
        ("id", None, "id", ("other",), 0),
        ("id", "id", "other", ("other",), 0),
        ("id", "id", "id", ("name",), 0),
        ("id", "id", "id", (), 0),
        ("id", "id", "id", ("other",), 1),
        ("id", "id", "id", ("other",), None),
    ]
    pins = [
        *[pin(IdJudge(by_id.pinned_of(df, *given), 1000), 16) for given in ids],
        *[pin(VersionJudge(by_version.pinned_of(df, *given), 1000), 16) for given in versions],
        *[pin(IdJudge(by_sequence.pinned_of(df, *given), 1000), 16) for given in sequences],
        pin(IdJudge(by_id.pinned_of(df, *ids[0]), 1000), 17),
    ]
    for one in pins:
        for other in pins:
            if one is other:
                check_pin(one, other)
            else:
                with pytest.raises(StateMismatch, match="was begun with other settings"):
                    check_pin(one, other)


def test_a_column_that_takes_another_kind_of_name_is_another_setting(spark: "SparkSession") -> None:
    """The text '1' and the number 1 have different keys."""
    numbers, texts = (spark.createDataFrame([], f"id {kind}, at timestamp, seq long") for kind in ("long", "string"))
    assert by_id.pinned_of(numbers, "id", "at", 1000) != by_id.pinned_of(texts, "id", "at", 1000)
    assert by_version.pinned_of(numbers, "id", "seq") != by_version.pinned_of(texts, "id", "seq")
    for producer, scope in (("id", ()), ("seq", ("id",))):
        assert by_sequence.pinned_of(numbers, producer, None, "seq", scope, 0) != by_sequence.pinned_of(
            texts, producer, None, "seq", scope, 0
        )
