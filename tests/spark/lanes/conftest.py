"""What cannot even be imported where Spark streams into no sink of Python."""

from semel.spark.versions import STREAMS_INTO_PYTHON

# They stream into `format("semel")`, which Spark 4.0 cannot; it refuses that by name.
collect_ignore = (
    []
    if STREAMS_INTO_PYTHON
    else [f"test_lane_{name}.py" for name in ("batch_writes", "failures", "markers", "rows", "takeover")]
)
