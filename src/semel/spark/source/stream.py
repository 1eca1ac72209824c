"""The source as a stream: the offsets at which a micro-batch ends, and the slices that it consists of.

Spark keeps one reader in a process of its own for as long as a query runs, and hands another one to the tasks; so the
reader keeps nothing that a task needs, and opens its client when planning begins. Offsets come from Spark's checkpoint
and go back there. This file must never trust its own memory more than the checkpoint.

The readers here are for Spark 4.0 and 4.1, which ask for no limits; `limited_stream` has those for later versions.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from semel.client.client import LogClient
from semel.client.errors import LogError
from semel.client.places import Slice, Topic, TopicPartition
from semel.spark.source import losses, portions, reader
from semel.spark.source.bounds import AtOffsets
from semel.spark.source.errors import told_in_one_line
from semel.spark.source.group import GroupOffsets
from semel.spark.source.offsets import Offsets
from semel.spark.source.options import SourceOptions
from semel.spark.source.view import Observer, ids_of

if TYPE_CHECKING:
    from pyarrow import RecordBatch


@dataclass(frozen=True)
class _Plan:
    """A batch, and its beginnings, which were compared with the log when its end was planned."""

    start: dict[str, Any]
    end: dict[str, Any]
    begins: Mapping[TopicPartition, int]


class SemelStreamReader(DataSourceStreamReader):
    """Spark makes one to plan a query, and one for its tasks."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._client: LogClient | None = None
        self._group = GroupOffsets(options.client)
        self._initial: dict[str, Any] | None = None
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._reached: Offsets | None = None
        self._plan: _Plan | None = None
        self._batch_planned_ms: float | None = None
        # The end that Spark knows, if it does not name it when it asks for the next one.
        self._known: dict[str, Any] | None = None
        # The losses that were reported, each by its sentence or its partition.
        self._reported: set[object] = set()

    def initialOffset(self) -> dict[str, Any]:
        """Where the query begins. Spark asks twice for the first batch, and has to get the same answer."""
        with told_in_one_line():
            if self._initial is None:
                topics = self._observer.topics_that_exist()
                bound = self._options.begins(streaming=True)
                begins = Offsets(ids_of(topics), self._observer.starting(topics, bound))
                # If the user named offsets, the query never begins before them.
                self._initial = (begins if isinstance(bound, AtOffsets) else self._up_to_target(begins)).to_json()
            return self._initial

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """Spark names the last end only to a reader that it has just made, and only as a batch without rows. To a new
        query it names none."""
        self._known = self._next_end(self._known or self.initialOffset(), is_limited=False)
        return self._known

    def _next_end(self, start: dict[str, Any], *, is_limited: bool) -> dict[str, Any]:
        """The end of the next batch; `start` itself if no batch can be made yet."""
        with told_in_one_line():
            known = Offsets.from_json(start)
            self._group.show(known.at)
            self._latest = now = self._look(known)
            self._reached = known
            if (now.ids, now.at, now.gone) == (known.ids, known.at, known.gone):
                return start
            expected = losses.expected_begins(known, now)
            log_starts = self._observer.begins(expected)
            begins = {place: max(offset, log_starts[place]) for place, offset in expected.items()}
            available = {place: max(end, begins[place]) for place, end in now.at.items()}
            ends = self._limited(begins, available) if is_limited else available
            if ends is None:
                return start
            reader.report(losses.truncated(expected, log_starts), self._options)
            self._reached = Offsets(now.ids, ends, known.at if start == self._initial else {}, now.gone)
            self._plan = _Plan(start, self._reached.to_json(), begins)
            return self._plan.end

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For the progress of the query: where the log ended when the last batch was planned, and by how much the query
        lags."""
        if self._latest is None or self._reached is None:
            return None
        document = self._latest.to_json()
        for place, end in self._latest.at.items():
            entries = document[place.topic]
            entries["behind"] = entries.get("behind", 0) + max(end - self._reached.at.get(place, 0), 0)
        return document

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The slices of a batch, each for one task. The same offsets give the same slices, also in a replay."""
        with told_in_one_line():
            self._known = self._known or end
            plan, until = self._plan, Offsets.from_json(end)
            is_planned = plan is not None and (plan.start, plan.end) == (start, end)
            begins = plan.begins if plan is not None and is_planned else self._begins_again(start, until)
            pieces = [Slice(_topic(until, place), place.partition, begins[place], until.at[place]) for place in begins]
            cut = portions.split(pieces, self._options.partitions_min, self._options.records_max)
            return [reader.SlicePartition(piece) for piece in cut]

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        assert isinstance(partition, reader.SlicePartition)
        with told_in_one_line():
            yield from reader.read(partition.piece, self._columns, self._options)

    def stop(self) -> None:
        self._group.close()
        if self._client is not None:
            self._client.close()

    @property
    def _observer(self) -> Observer:
        if self._client is None:
            self._client = LogClient(self._options.client, address_is_new=True)
        return Observer(self._client, self._options)

    def _up_to_target(self, offsets: Offsets) -> Offsets:
        """The offsets, but no further than the target of this run of the query, if it has one."""
        if (target := self._target) is None:
            return offsets
        at = {place: min(offset, target.at[place]) for place, offset in offsets.at.items() if place in target.at}
        return Offsets(target.ids, at)

    def _look(self, known: Offsets) -> Offsets:
        """The end of the records that may be read now. A loss is checked again, because a broker that has just become a
        leader may not know the true end yet. Each loss is logged once, however often Spark asks."""
        looks = 0
        while True:
            now = self._target or self._observer.look()
            ahead = losses.ahead(known, now)
            log_ends = self._observer.log_ends(ahead) if ahead else {}
            lost: dict[object, str] = {loss: loss for loss in losses.gone(known, now)}
            lost.update(losses.behind_the_end(known, log_ends).items())
            news = [loss for about, loss in lost.items() if about not in self._reported]
            if not news or self._target is not None or looks == self._options.looks_again:
                reader.report(news, self._options)
                self._reported.update(lost)
                return losses.going_on(known, now)
            looks += 1
            time.sleep(self._options.look_interval_ms / 1000)

    def _limited(
        self, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int] | None:
        """The ends that the options allow, or None if the batch has to wait for more."""
        options = self._options
        if options.offsets_min is not None and self._target is None:
            now_ms = time.monotonic() * 1000
            waited_ms = inf if self._batch_planned_ms is None else now_ms - self._batch_planned_ms
            ready = sum(max(end - begins[place], 0) for place, end in ends.items())
            if portions.must_wait(ready, options.offsets_min, waited_ms, options.delay_ms_max):
                return None
            self._batch_planned_ms = now_ms
        return ends if options.offsets_max is None else portions.limited(begins, ends, options.offsets_max)

    def _begins_again(self, start: dict[str, Any], until: Offsets) -> Mapping[TopicPartition, int]:
        """The beginnings of a batch that was planned before this process started."""
        known = Offsets(until.ids, until.began) if until.began else Offsets.from_json(start)
        now = self._observer.glance()
        reader.report(losses.gone(until, now), self._options)
        expected = {
            place: offset
            for place, offset in losses.expected_begins(known, until).items()
            if place in now.at and losses.is_same_topic(until, now, place.topic)
        }
        log_starts = self._observer.begins(expected)
        reader.report(losses.truncated(expected, log_starts), self._options)
        return {place: max(offset, log_starts[place]) for place, offset in expected.items()}


class RefusedStreamReader(DataSourceStreamReader):
    """Takes the place of a reader that cannot be made: PySpark loses the reason if no reader is made at all."""

    def __init__(self, reason: LogError) -> None:
        self._reason = reason

    def initialOffset(self) -> dict[str, Any]:
        return self._refuse()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        return self._refuse()

    def read(self, partition: InputPartition) -> Iterator["RecordBatch"]:
        return self._refuse()

    def _refuse(self) -> NoReturn:
        with told_in_one_line():
            raise self._reason


def _topic(until: Offsets, place: TopicPartition) -> Topic:
    """The topic that a batch was planned for, with just enough partitions to include the task's own."""
    return Topic(place.topic, until.ids[place.topic], place.partition + 1)
