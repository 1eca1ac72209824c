"""Which batch `foreachBatch` was called for, by its query's id and a digest of its plan; and what it leaves behind.

Spark writes the plan of a batch, its offsets and the time it was made, into the checkpoint before it runs the batch;
a replay reads it from there. So the digest of that entry is the same in every replay, and differs as soon as a batch of
the same number was planned again, from an older checkpoint for example. This module reads that and nothing else; it
must never look at the rows.

A classic session is asked itself. Spark Connect calls `foreachBatch` in a process that knows neither the query nor its
plans; there the checkpoint's files are read, through Spark, and the program has to say where they are.
"""

from __future__ import annotations

import gc
import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from semel.spark.claims import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Spark's own name for it, seen in 4.1 to 4.3 and nowhere documented: a test holds it.
QUERY_ID_PROPERTY = "sql.streaming.queryId"
# To look for garbage takes about 40 ms where there are 100,000 objects, so not after each batch.
BATCHES_LEFT_MAX: Final = 16


def batch_of(rows: DataFrame, batch_id: int, checkpoint: str | None = None) -> Batch:
    """The batch that the thread we are called on runs."""
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
    """The batch as the files of its checkpoint have it."""
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
    # The batch has a clone of the query's session, which lists no queries; the state below is shared by all sessions.
    queries = rows.sparkSession._jsparkSession.sharedState().activeStreamingQueries()
    log = queries.get(jvm.java.util.UUID.fromString(query_id)).offsetLog()
    written = jvm.java.io.ByteArrayOutputStream()
    log.serialize(log.get(batch_id).get(), written)
    return str(written.toString("UTF-8"))


def digest_of(entry: str) -> str:
    """The digest of the offsets, and of the time at which they were chosen: some sources count, and would give the
    offsets of another batch the same text. The settings beside them are left out: Spark does not keep their order.
    """
    _version, metadata, *offsets = entry.splitlines()
    chosen_at_ms = json.loads(metadata)["batchTimestampMs"]
    return hashlib.sha256("\n".join([str(chosen_at_ms), *offsets]).encode()).hexdigest()


def collect_leftovers(batch_id: int) -> None:
    """After a batch: frees what it and those before it have left in the driver, once in BATCHES_LEFT_MAX batches.

    Every object of Java whose method Python has called refers to itself (py4j keeps the methods with the object), so it
    is freed when Python looks for cycles among its old objects: in a large program that is after hundreds of batches.
    Until then Java keeps the plan and the session of each of them, and the files of its shuffles.
    """
    if batch_id % BATCHES_LEFT_MAX == BATCHES_LEFT_MAX - 1:
        gc.collect()
