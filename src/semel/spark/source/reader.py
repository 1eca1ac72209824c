"""How a task reads its slice: with its own client, in Arrow batches, and only from the topic with the id that was
planned.

It uses only the slice and the options, because it runs in another process, maybe on another machine. It must never skip
a record without failing or logging it.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from semel.client.arrow import read_slice
from semel.client.bad_batches import BadBatch, OnBadBatch, UnreadableBatch
from semel.client.client import LogClient
from semel.client.errors import OffsetOutOfRange, TopicRecreated, UnknownTopic
from semel.client.places import Slice, TopicPartition
from semel.spark.source.errors import DataLoss
from semel.spark.source.losses import ADVICE, truncation
from semel.spark.source.options import SourceOptions
from semel.spark.worker import settle

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_LOG: Final = logging.getLogger(__name__)


class SlicePartition(InputPartition):
    """What one task reads."""

    def __init__(self, piece: Slice) -> None:
        super().__init__(piece)
        self.piece = piece


def report(losses: Iterable[str], options: SourceOptions) -> None:
    """Fails with the first loss, or logs all, as the option `failOnDataLoss` says."""
    for loss in losses:
        if options.fails_on_data_loss:
            raise DataLoss(f"{loss}. {ADVICE}")
        _LOG.warning("%s. The query goes on, because of failOnDataLoss=false", loss)


def report_bad_batch(options: SourceOptions, where: TopicPartition, bad: BadBatch) -> None:
    """Fails at a batch that cannot be read, or logs it, as the option `onBadBatch` says."""
    if options.on_bad_batch is OnBadBatch.FAIL:
        raise UnreadableBatch(bad, "Set onBadBatch=quarantine to go on after it")
    _LOG.warning("partition %s: %s. The query goes on after it, because of onBadBatch=quarantine", where, bad)


def read(piece: Slice, columns: Sequence[str], options: SourceOptions) -> Iterator["RecordBatch"]:
    """The rows of a slice."""
    with LogClient(options.client) as client:
        left: Slice | None = piece
        looks = 0
        while left is not None:
            try:
                report_bad = partial(report_bad_batch, options, piece.topic_partition)
                yield from read_slice(client, left, columns, options.isolation, report=report_bad)
                settle()
                return
            except OffsetOutOfRange as error:
                if error.offset > error.log_end and looks < options.looks_again:
                    # A broker that has just become the leader may not know the true end yet.
                    looks += 1
                    left = replace(left, start=error.offset)
                    time.sleep(options.look_interval_ms / 1000)
                else:
                    left = _resumed(left, error, options)
            except (UnknownTopic, TopicRecreated) as error:
                report(
                    [f"{error}, and offsets {piece.start} to {piece.end} of {piece.partition} were to be read"], options
                )
                return


def _resumed(piece: Slice, error: OffsetOutOfRange, options: SourceOptions) -> Slice | None:
    """What is left of a slice whose next offset was `error.offset`; None if nothing is left. It never begins before
    that offset: the records before were read, or are another task's."""
    place = piece.topic_partition
    if error.offset > error.log_end:
        report([f"{place} ends at offset {error.log_end}, and {error.offset} to {piece.end} were to be read"], options)
        return None
    report([truncation(place, error.offset, error.log_start)], options)
    return replace(piece, start=error.log_start) if error.log_start < piece.end else None
