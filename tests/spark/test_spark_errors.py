"""The sentence in the text of an error that Spark raised. The texts are Spark's own, with fewer frames."""

from __future__ import annotations

import subprocess
import sys

import pytest

from semel.spark import error_of

QUERY = """
=== Streaming Query ===
Identifier: [id = 0c2b50dd-9602-4fb4-994d-62ca43ffddd2, runId = 28dab493-077b-4c7e-8c18-879201b04b81]
Current Committed Offsets: {}

Logical Plan:
~WriteToMicroBatchDataSourceV1 ForeachBatchSink, 0c2b50dd-9602-4fb4-994d-62ca43ffddd2, Append
"""
FAILED = "[STREAM_FAILED] Query [id = 0c2b50dd, runId = 28dab493] terminated with exception: "
BY_PROXY = f"""{FAILED}[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach \
batch sink. Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "clientserver.py", line 644, in _call_proxy
    return_value = getattr(self.pool[obj_id], method)(*params)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
"""
IN_A_SINK = f"""{BY_PROXY}semel.spark.claims.BatchRefused: sink 'sqlite:rows' refused batch 3: a gap
 SQLSTATE: 39000 SQLSTATE: XXKST{QUERY}"""
IN_A_SINK_THAT_EXPLAINS = f"""{BY_PROXY}sqlite3.OperationalError: ON CONFLICT clause does not match

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "sqlite.py", line 138, in move
    raise ValueError(
ValueError: table rows needs a primary key
 SQLSTATE: 39000 SQLSTATE: XXKST{QUERY}"""
IN_A_TASK = f"""{BY_PROXY}pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the Python \
worker:
Traceback (most recent call last):
  File "worker.py", line 32, in <genexpr>
    raise ValueError(

ValueError: deep in a task
 SQLSTATE: 39000 SQLSTATE: XXKST{QUERY}"""
IN_A_SOURCE = f"""{FAILED}[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source \
perform prepareForTriggerAvailableNow: semel.client.errors.Unreachable: cannot connect to 127.0.0.1:1
 SQLSTATE: 38000 SQLSTATE: XXKST{QUERY}"""
OF_SPARK = f"""{FAILED}[UNRESOLVED_COLUMN] A column with name `amuont` is unknown. SQLSTATE: 42703; line 1 pos 0;
'Filter ('amuont = 1)
{QUERY}"""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (IN_A_SINK, "sink 'sqlite:rows' refused batch 3: a gap"),
        (IN_A_SINK_THAT_EXPLAINS, "table rows needs a primary key"),
        (IN_A_TASK, "deep in a task"),
        (IN_A_SOURCE, "cannot connect to 127.0.0.1:1"),
        (
            OF_SPARK,
            "[UNRESOLVED_COLUMN] A column with name `amuont` is unknown. SQLSTATE: 42703; line 1 pos 0;",
        ),
        ("a sentence of its own", "a sentence of its own"),
        ("", ""),
    ],
)
def test_an_error_is_said_in_the_sentence_of_the_one_who_raised_it(text: str, sentence: str) -> None:
    assert error_of(RuntimeError(text)) == sentence


def test_a_program_that_ends_by_an_error_of_spark_ends_with_the_sentence() -> None:
    program = (
        "from pyspark.errors import PySparkException\nfrom semel.spark.errors import end_with_the_sentence\n"
        "for _ in range(2): end_with_the_sentence()\n"
        f"raise PySparkException({IN_A_SINK!r})"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    lines = ran.stderr.splitlines()
    assert lines[-1] == "semel: sink 'sqlite:rows' refused batch 3: a gap"
    assert lines.count(lines[-1]) == 1
    assert "Current Committed Offsets: {}" in lines
    own = subprocess.run(
        [sys.executable, "-c", program.replace("PySparkException(", "ValueError(")], capture_output=True
    )
    assert b"semel: " not in own.stderr.splitlines()[-1]
