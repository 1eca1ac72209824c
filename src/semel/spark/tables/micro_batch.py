"""Finds the batch that `foreachBatch` was called for: its query's id and a digest of its plan. Also frees what batches
leave in memory.

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
from typing import TYPE_CHECKING, Any, Final

from semel.spark.claims import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Spark's own name for it, the same from 4.1 to 4.3 but not documented: a test checks it.
QUERY_ID_PROPERTY = "sql.streaming.queryId"
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
    return Batch(query_id, batch_id, digest_of(planned(rows, query_id, batch_id)))


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

    return Batch(json.loads(text_of("metadata"))["id"], batch_id, digest_of(text_of(f"offsets/{batch_id}")))


def planned(rows: DataFrame, query_id: str, batch_id: int) -> str:
    """The batch's entry in the offset log of its query, as it stands in the checkpoint."""
    jvm: Any = rows.sparkSession.sparkContext._jvm
    # The batch has a clone of the query's session, and the clone lists no queries; all sessions share this state, which
    # does.
    queries = rows.sparkSession._jsparkSession.sharedState().activeStreamingQueries()
    log = queries.get(jvm.java.util.UUID.fromString(query_id)).offsetLog()
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


def collect_leftovers(batch_id: int) -> None:
    """Runs after each batch: once in BATCHES_LEFT_MAX batches, it frees what they have left in the driver.

    Every Java object whose method Python has called refers to itself (py4j keeps the methods with the object), so
    Python frees it only when it looks for cycles among its old objects: in a large program, after hundreds of batches.
    Until then Java keeps the plan, the session and the shuffle files of each batch.
    """
    if batch_id % BATCHES_LEFT_MAX == BATCHES_LEFT_MAX - 1:
        gc.collect()
