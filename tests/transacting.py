"""A transactional producer that sends exactly what a test tells it to, and what is read of what it committed."""

from typing import Any

from asking import READ_COMMITTED, Asker
from read_committed import shown
from semel.wire.records import Record, encode_batch
from semel.wire.versions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)

Identity = tuple[int, int]


class TransactionalProducer:
    """One that knows what it was told last; what it asks can go over another connection, or with other numbers."""

    def __init__(self, ask: Asker, name: str = "payments") -> None:
        self.ask = ask
        self.name = name
        self.identity: Identity = (-1, -1)
        self._sequences: dict[tuple[str, int], int] = {}

    def claim(self, *, supplied: Identity = (-1, -1), timeout_ms: int = 60_000, version: int = 5) -> int:
        """Become the owner of the transactional id; answers the error code."""
        answer = self.ask(
            INIT_PRODUCER_ID,
            version,
            transactional_id=self.name,
            transaction_timeout_ms=timeout_ms,
            producer_id=supplied[0],
            producer_epoch=supplied[1],
        )
        if answer.error_code == 0:
            self._becomes((answer.producer_id, answer.producer_epoch))
        return int(answer.error_code)

    def _becomes(self, identity: Identity) -> None:
        if identity != self.identity:
            self.identity = identity
            self._sequences.clear()

    def owner(self, identity: Identity | None = None) -> dict[str, object]:
        producer_id, epoch = identity or self.identity
        return {"transactional_id": self.name, "producer_id": producer_id, "producer_epoch": epoch}

    def add(self, *topics: str, partition: int = 0, version: int = 3, identity: Identity | None = None) -> list[int]:
        """Announce a partition of each topic; answers the error codes."""
        asked = {**self.owner(identity), "topics": [{"name": topic, "partitions": [partition]} for topic in topics]}
        fields = {f"v3_and_below_{name}": value for name, value in asked.items()}
        answer = self.ask(ADD_PARTITIONS_TO_TXN, version, **fields)
        return [
            int(result.partition_error_code)
            for topic in answer.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        ]

    def send(
        self, topic: str, value: str, *, partition: int = 0, version: int = 11, identity: Identity | None = None
    ) -> int:
        """Send a batch of one record; answers the error code. From version 12 on it announces itself."""
        producer_id, epoch = identity or self.identity
        sequence = self._sequences.get((topic, partition), 0)
        batch = encode_batch(
            [Record(value.encode())],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = [{"name": topic, "partition_data": [{"index": partition, "records": bytes(batch)}]}]
        answer = self.ask(PRODUCE, version, transactional_id=self.name, acks=-1, timeout_ms=1000, topic_data=data)
        (appended,) = answer.responses[0].partition_responses
        if appended.error_code == 0:
            self._sequences[topic, partition] = sequence + 1
        return int(appended.error_code)

    def add_group(self, group: str, *, version: int = 4, identity: Identity | None = None) -> int:
        return int(self.ask(ADD_OFFSETS_TO_TXN, version, **self.owner(identity), group_id=group).error_code)

    def commit_offset(
        self, group: str, topic: str, offset: int, *, version: int = 4, identity: Identity | None = None
    ) -> int:
        """Have an offset take part; from version 5 on it announces its group by itself."""
        place = {"partition_index": 0, "committed_offset": offset, "committed_metadata": None}
        answer = self.ask(
            TXN_OFFSET_COMMIT,
            version,
            **self.owner(identity),
            group_id=group,
            topics=[{"name": topic, "partitions": [place]}],
        )
        (result,) = answer.topics[0].partitions
        return int(result.error_code)

    def end(self, *, committed: bool = True, version: int = 4, identity: Identity | None = None) -> int:
        """End the transaction; from version 5 on the producer goes on with what it is told."""
        answer = self.ask(END_TXN, version, **self.owner(identity), committed=committed)
        if answer.error_code == 0 and version >= 5:
            self._becomes((answer.producer_id, answer.producer_epoch))
        return int(answer.error_code)


def committed(ask: Asker, topic: str, *, partition: int = 0) -> list[str]:
    """The values that a consumer of committed records is shown, found as clients find them."""
    answer = ask.fetch(topic, partition=partition, isolation_level=READ_COMMITTED)
    aborted = [(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()]
    batches = shown(answer.records or b"", aborted)
    return [(record.value or b"").decode() for batch in batches for record in batch.records]


def described(ask: Asker, name: str = "payments") -> Any:
    """What the broker says of a transactional id."""
    (state,) = ask(DESCRIBE_TRANSACTIONS, transactional_ids=[name]).transaction_states
    return state
