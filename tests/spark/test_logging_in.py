"""A query reads from and writes to a broker with SASL_SSL and SCRAM, and shows the password nowhere."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from semel.spark import lanes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from semel.testing.broker import FaultyBroker

# The logins of the client under it are held by tests/client/test_logins.py and tests/log/security.
pytestmark = [pytest.mark.slow, pytest.mark.semel_broker(security="SASL_SSL")]

SECRET, WRONG = "planted-5ecret", "planted-wr0ng"
SECONDS_MAX = 300


def rows_of(spark: SparkSession, options: dict[str, str]) -> DataFrame:
    reader = spark.readStream.format("semel").options(**options, subscribe="orders", startingOffsets="earliest")
    return reader.load()


def run(rows: DataFrame, options: dict[str, str], checkpoint: Path) -> Any:
    """One run of a query over what there is, from topic to topic."""
    writer = (
        lanes(rows.select("value"), 1).writeStream.format("semel").options(**options, topic="copies", sinkId="copies")
    )
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(SECONDS_MAX)
    return query


def test_source_and_sink_log_in_and_show_the_password_nowhere(
    spark: SparkSession, semel_broker: FaultyBroker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    semel_broker.add_user(str(semel_broker.login.user), SECRET)
    options = {f"kafka.{name}": value for name, value in semel_broker.client_settings.items()}
    options["kafka.sasl.password"] = SECRET
    semel_broker.create_topic("copies")
    semel_broker.seed("orders", "3 apples", "2 pears")
    rows = rows_of(spark, options)
    rows.explain(extended=True)
    query = run(rows, options, tmp_path / "checkpoint")
    query.explain(extended=True)
    copies = [record.value for record in semel_broker.log("copies", committed_only=True)]
    assert sorted(filter(None, copies)) == [b"2 pears", b"3 apples"]
    shown = "".join(capfd.readouterr()) + str(query.lastProgress) + repr(rows) + rows._jdf.queryExecution().toString()
    assert SECRET not in shown
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert kept
    assert SECRET.encode() not in b"".join(kept)

    options["kafka.sasl.password"] = WRONG
    with pytest.raises(PySparkException, match="refused user 'tester'") as raised:
        run(rows_of(spark, options), options, tmp_path / "another")
    assert WRONG not in "".join(traceback.format_exception(raised.value)) + "".join(capfd.readouterr())
