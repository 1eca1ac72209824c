"""Sends batches to the leader of some partitions, with several requests under way.

Brokers remember the last five batches of a producer in each partition, and recognize only these as duplicates. So a
request has at most one batch of a partition, and at most five requests are under way. The sender forgets the batches
that the broker has acknowledged; the caller can take back the others, in their order, and give them to another sender.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Final

from semel.client import codes
from semel.client.connection import Connection, ConnectionLost
from semel.client.errors import LogError
from semel.client.patience import MENDABLE
from semel.client.places import TopicPartition
from semel.client.settings import ClientSettings
from semel.wire.errors import ErrorCode
from semel.wire.produce_client import PartitionBatch

REQUESTS_UNDER_WAY_MAX: Final = 5


class Sender:
    """One connection, used by one transaction only."""

    def __init__(self, connection: Connection, transactional_id: str, settings: ClientSettings) -> None:
        self.connection = connection
        self._id = transactional_id
        self._settings = settings
        # Where the newest acknowledged batch of each partition begins.
        self.last_offsets: dict[TopicPartition, int] = {}
        self._to_send: deque[list[PartitionBatch]] = deque()
        self._under_way: deque[list[PartitionBatch]] = deque()

    def take(self, batches: Iterable[PartitionBatch]) -> None:
        """Queue batches after all others."""
        self._to_send.extend(requests_of(batches, self._settings.request_bytes_max))

    def advance(self, *, wait_for_all: bool) -> None:
        """Send all queued batches, waiting only if too many requests are under way; `wait_for_all` waits for all
        answers.
        """
        while self._to_send or (wait_for_all and self._under_way):
            if not self._to_send or len(self._under_way) == REQUESTS_UNDER_WAY_MAX or self.connection.has_answer():
                self._receive()
            else:
                self._send()

    def unanswered(self) -> Iterator[PartitionBatch]:
        """The batches that no broker has acknowledged, in the order in which they were queued."""
        return chain.from_iterable((*self._under_way, *self._to_send))

    def _send(self) -> None:
        # The request counts as under way from here on: if the connection breaks, the broker may have any part of it.
        self._under_way.append(self._to_send.popleft())
        try:
            self.connection.send_produce(self._under_way[-1], self._id, self._settings.request_timeout_ms)
        except ConnectionLost:
            # Answers may have come before that. A broker that was restarted remembers only the last batch, and would
            # refuse batches that it has acknowledged and gets a second time.
            with suppress(*MENDABLE):
                while self._under_way:
                    self._receive()
            raise

    def _receive(self) -> None:
        """Take the answer to the oldest request under way."""
        answers = self.connection.receive_produce()
        left = {(batch.topic, batch.partition): batch for batch in self._under_way[0]}
        wrong: list[LogError] = []
        for answer in answers:
            if answer.error_code == ErrorCode.NONE:
                left.pop((answer.topic, answer.partition), None)
                self.last_offsets[TopicPartition(answer.topic, answer.partition)] = answer.base_offset
                continue
            try:
                where = TopicPartition(answer.topic, answer.partition)
                codes.check_partition(where, answer.error_code, answer.message, operation="Write")
            except LogError as error:
                wrong.append(error)
        self._under_way[0] = list(left.values())
        if left:
            # An error that no retry mends is raised first.
            silence = ConnectionLost("the leader did not answer for all partitions")
            raise min(wrong, key=lambda error: isinstance(error, MENDABLE), default=silence)
        self._under_way.popleft()


def requests_of(batches: Iterable[PartitionBatch], bytes_max: int) -> Iterator[list[PartitionBatch]]:
    """Requests of up to `bytes_max`, unless one batch has more; batches stay in the order of their partition."""
    request: list[PartitionBatch] = []
    there: set[tuple[str, int]] = set()
    size = 0
    for batch in batches:
        where = batch.topic, batch.partition
        if where in there or (request and size + len(batch.batch) > bytes_max):
            yield request
            request, there, size = [], set(), 0
        request.append(batch)
        there.add(where)
        size += len(batch.batch)
    if request:
        yield request
