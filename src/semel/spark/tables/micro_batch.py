"""Finds the batch that `foreachBatch` was called for: its query's id, a digest of its plan, its output mode, and which
of its operators keep state. Also frees what batches leave in memory.

Spark writes the plan of a batch, which is its offsets and the time at which it was made, into the checkpoint before it
runs the batch; a replay reads it from there. So the digest of that entry is the same in every replay, and another one
if a batch of the same number was planned again, from an older checkpoint for example. This module reads only that
entry; it must never look at the rows.

In a classic session, this module asks the session. Spark Connect calls `foreachBatch` in a process that knows neither
the query nor its plans; there it reads the checkpoint's files through Spark, and the program has to say where they are.
"""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import re
from typing import TYPE_CHECKING, Any, Final

from semel.spark.claims import Batch
from semel.spark.counts import PREFIX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Spark's own name for it, the same from 4.1 to 4.3 but not documented: a test checks it.
QUERY_ID_PROPERTY = "sql.streaming.queryId"
# How an operator of a plan shows its state, and its name at the beginning of its line.
STATE_INFO: Final = "state info ["
OPERATOR: Final = re.compile(r"([A-Za-z]\w+)")
# The name in the file that Spark writes for each operator that keeps state.
OPERATOR_NAME: Final = re.compile(r'"operatorName"\s*:\s*"([^"]+)"')
# The name of the directory that Spark makes for the checkpoint of a query without a location.
TEMPORARY: Final = re.compile(r"temporary-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LOG: Final = logging.getLogger(__name__)
# A garbage collection takes about 40 ms with 100,000 objects, so it does not run after every batch.
BATCHES_LEFT_MAX: Final = 16


def batch_of(rows: DataFrame, batch_id: int, checkpoint: str | None = None) -> Batch:
    """The batch that the calling thread runs."""
    from pyspark.sql import is_remote

    if is_remote():
        return batch_in(rows, batch_id, checkpoint)
    query_id = rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID_PROPERTY)
    if query_id is None:
        raise RuntimeError(
            f"Spark names no streaming query here (no local property {QUERY_ID_PROPERTY}): call the sink through "
            "foreachBatch, or give its write() a Batch of your own"
        )
    query = running(rows, query_id)
    if batch_id == 0 and is_temporary(str(query.resolvedCheckpointRoot())):
        _LOG.warning(
            "query %s has no checkpointLocation, so Spark deletes its checkpoint when it ends: the next start is "
            "another query, which begins at startingOffsets, and its sinks refuse it; set "
            '.option("checkpointLocation", ...)',
            query_id,
        )
    digest = digest_of(planned(rows, query, batch_id))
    return Batch(query_id, batch_id, digest, str(query.outputMode()).lower(), stateful(query))


def batch_in(rows: DataFrame, batch_id: int, checkpoint: str | None) -> Batch:
    """The batch, read from the files of its checkpoint."""
    if checkpoint is None:
        raise RuntimeError(
            "Spark Connect calls foreachBatch in a process that is not told which query it serves, so the sink cannot "
            "claim the batch: use semel.spark.fan_out(df, [sink], checkpoint=...) and it finds out"
        )

    def text_of(name: str) -> str:
        [file] = rows.sparkSession.read.text(f"{checkpoint}/{name}", wholetext=True).collect()
        return str(file[0])

    digest = digest_of(text_of(f"offsets/{batch_id}"))
    return Batch(json.loads(text_of("metadata"))["id"], batch_id, digest, state=stateful_in(rows, checkpoint))


def is_temporary(checkpoint: str) -> bool:
    """Whether Spark deletes this checkpoint when its query ends."""
    return TEMPORARY.fullmatch(checkpoint.rstrip("/").rpartition("/")[2]) is not None


def running(rows: DataFrame, query_id: str) -> Any:
    """Java's object of the query."""
    jvm: Any = rows.sparkSession.sparkContext._jvm
    # The batch has a clone of the query's session, and the clone lists no queries; all sessions share this state, which
    # does.
    queries = rows.sparkSession._jsparkSession.sharedState().activeStreamingQueries()
    return queries.get(jvm.java.util.UUID.fromString(query_id))


def stateful(query: Any) -> tuple[str, ...]:
    """The operators of the batch's plan that keep state: each shows where."""
    plan = str(query.lastExecution().executedPlan().treeString())
    return tuple(found[1] for line in plan.splitlines() if STATE_INFO in line and (found := OPERATOR.search(line)))


def stateful_in(rows: DataFrame, checkpoint: str) -> tuple[str, ...]:
    """The same from the files that Spark writes into the checkpoint before a query's first batch."""
    from pyspark.errors import AnalysisException

    try:
        found = rows.sparkSession.read.text(f"{checkpoint}/state/*/_metadata/metadata", wholetext=True).collect()
    except AnalysisException:
        # There is no such file.
        return ()
    return tuple(name for file in found for name in OPERATOR_NAME.findall(str(file[0])))


def planned(rows: DataFrame, query: Any, batch_id: int) -> str:
    """The batch's entry in the offset log of its query, as it stands in the checkpoint."""
    jvm: Any = rows.sparkSession.sparkContext._jvm
    log = query.offsetLog()
    written = jvm.java.io.ByteArrayOutputStream()
    log.serialize(log.get(batch_id).get(), written)
    return str(written.toString("UTF-8"))


def digest_of(entry: str) -> str:
    """The digest of the offsets, and of the time at which they were chosen: some sources only count, so two different
    batches could have the same offsets. It leaves out the settings in the entry: Spark does not keep their order.
    """
    _version, metadata, *offsets = entry.splitlines()
    chosen_at_ms = json.loads(metadata)["batchTimestampMs"]
    return hashlib.sha256("\n".join([str(chosen_at_ms), *offsets]).encode()).hexdigest()


def counts_in(rows: DataFrame) -> dict[str, dict[str, int]]:
    """What Spark has counted while it computed this batch (`semel.spark.counts`), by the name of each metric without
    its prefix. Nothing where no query runs, and with Spark Connect, which shows it in the query's progress only."""
    from pyspark.sql import is_remote

    if is_remote() or (query_id := rows.sparkSession.sparkContext.getLocalProperty(QUERY_ID_PROPERTY)) is None:
        return {}
    jvm: Any = rows.sparkSession.sparkContext._jvm
    found = jvm.scala.jdk.javaapi.CollectionConverters.asJava(running(rows, query_id).lastExecution().observedMetrics())
    names = sorted(name for name in found if name.startswith(PREFIX))
    return {name.removeprefix(PREFIX): json.loads(found[name].json()) for name in names}


def collect_leftovers(batch_id: int) -> None:
    """Runs after each batch: once in BATCHES_LEFT_MAX batches, it frees what they have left in the driver.

    Every Java object whose method Python has called refers to itself (py4j keeps the methods with the object), so
    Python frees it only when it looks for cycles among its old objects: in a large program, after hundreds of batches.
    Until then Java keeps the plan, the session and the shuffle files of each batch.
    """
    if batch_id % BATCHES_LEFT_MAX == BATCHES_LEFT_MAX - 1:
        gc.collect()
