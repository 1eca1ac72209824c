"""Names and tables that are unusual, and that a sink into a database takes all the same, or refuses by name."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from mariadb_under_test import MariadbMissing, MariadbServer, asked, lent_database
from semel.spark import sql_sink
from semel.spark.claims import Batch, Outcome

FIRST = Batch("query", 0)


def test_a_server_that_takes_no_table_without_a_primary_key_is_given_none(spark: SparkSession) -> None:
    try:
        server = MariadbServer("--innodb-force-primary-key=ON")
    except MariadbMissing as missing:
        pytest.skip(str(missing))
    rows = spark.sql("SELECT * FROM VALUES (1L, 'fine'), (2L, 'bad'), (3L, 'too long') AS rows (id, name)")
    try:
        with lent_database(server.url()) as url:
            kept = "id bigint PRIMARY KEY, name varchar(5) CHARACTER SET utf8mb4 CHECK (name <> 'bad')"
            asked(url, f"CREATE TABLE payments ({kept})")
            sink = sql_sink(url, "payments", "upsert", key="id", on_bad_row="quarantine")
            assert sink.write(rows, FIRST) is Outcome.ACCEPTED
            assert asked(url, "SELECT id FROM payments") == [(1,)]
            quarantined = asked(url, "SELECT count(*) FROM payments_quarantine WHERE reason LIKE '%name%'")
            assert quarantined == [(2,)]
            with pytest.raises(ValueError, match=r"appended to others have none: make the table yourself"):
                sql_sink(url, "others").write(rows, FIRST)
    finally:
        server.stop()
