"""Finds duplicates that the log's guarantee does not cover: from files, from other message buses, from mirrored topics.
Each row gets an outcome and none is dropped. The rules are those of `wire.sequences`; Spark keeps the state, which is
small.
"""

from semel.spark.dedup.by_id import dedup_by_id
from semel.spark.dedup.by_sequence import dedup
from semel.spark.dedup.by_version import dedup_by_version
from semel.spark.dedup.outcomes import accepted, quarantined

__all__ = ["accepted", "dedup", "dedup_by_id", "dedup_by_version", "quarantined"]
