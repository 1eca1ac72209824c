"""Holds both functions to it that they do the same over Spark Connect: the client asks the registry, and the workers of
the server know the schemas."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from driver_process import DriverProcess
from local_cluster import LocalCluster
from registries import SmallRegistry

AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
JSON = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
JOB = """
import sys
from pyspark.sql import functions as f
from semel.spark import from_registry, session, to_registry

remote, url = sys.argv[1:]
spark = session(remote=remote)
rows = spark.sql("SELECT named_struct('id', 'a') AS value UNION ALL SELECT NULL")
for subject in ("avro", "json"):
    written = to_registry(rows, url, subject=subject)
    print(sorted(str(row.value) for row in from_registry(written, url, subject=subject).collect()))
    cut = written.where("value IS NOT NULL").withColumn("value", f.substring("value", 1, 6))
    marked = from_registry(cut, url, subject=subject, on_bad_row="quarantine")
    print([row.reason for row in marked.collect()])
"""


@pytest.mark.slow
@pytest.mark.usefixtures("runs_spark")
def test_a_client_of_spark_connect_reads_and_writes_values_of_a_registry(
    small_registry: SmallRegistry, tmp_path: Path
) -> None:
    for subject, schema in (("avro", AVRO), ("json", JSON)):
        body = {"schema": json.dumps(schema), "schemaType": subject.upper()}
        small_registry.answer(f"/subjects/{subject}/versions", body)
    with (
        LocalCluster(tmp_path) as cluster,
        cluster.connect_server(PYSPARK_PYTHON=sys.executable) as remote,
        DriverProcess(JOB, remote, small_registry.url) as client,
    ):
        said = client.finish()
    assert said == [
        "['None', \"Row(id='a')\"]",
        "['the bytes after schema id 1 are no avro, version 1, at field id']",
        "['None', \"Row(id='a')\"]",
        "['the text after schema id 2 is no json']",
    ]
