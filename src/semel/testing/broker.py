"""A broker for tests, with the faults of real life: lost answers, pauses, a crash and a restart.

    with FaultyBroker() as broker:
        broker.drop_acks(1)                      # the next answer to a Produce request is lost on its way
        my_code_that_books_a_payment(broker.bootstrap)
        assert len(broker.log("payments")) == 1  # the retry was recognised

`create_topic` and `seed` prepare the data for a test; `fail` refuses the requests of any API. Faults have the effects
that a client sees: after a lost answer the batch is appended and durable, but the connection breaks before the client
gets the answer. `fired` counts the faults that have happened: a fault that never happened proves nothing.
"""

import asyncio
import difflib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

from semel.log.brokers import Broker
from semel.log.doubles import (
    APIS,
    Buffer,
    Exchange,
    GroupConfigsChanged,
    GroupDeleted,
    NotHere,
    PartitionLog,
    QuotasChanged,
    Stretch,
    check_sent,
    create,
    refusal,
)
from semel.log.embedded import EmbeddedBroker
from semel.log.throwaway_login import add_user
from semel.testing.ports import free_port
from semel.wire import kafka, messages
from semel.wire.batch import BatchHeader
from semel.wire.errors import ErrorCode
from semel.wire.records import Record, decode_batches, encode_batch
from semel.wire.scram import Mechanism

# The APIs by the protocol's names.
_APIS: Final = {api.name: key for key, api in APIS.items()}
_LOOK_SECONDS: Final = 0.001


class StoredRecord(NamedTuple):
    """A record as the log holds it, with the numbers for deduplication (-1 if it has none)."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    producer_id: int
    producer_epoch: int
    sequence: int


class _Fault(NamedTuple):
    """What the next request of an API meets: another exchange, or a refusal."""

    kind: str
    api: str
    act: "Callable[[Exchange], Exchange] | ErrorCode"


class _Faults:
    """The faults that wait for a request, by the key of its API, and how many have happened, by kind."""

    def __init__(self) -> None:
        self.waiting: defaultdict[int, deque[_Fault]] = defaultdict(deque)
        self.fired: Counter[str] = Counter()

    def next(self, api_key: int) -> _Fault | None:
        if not self.waiting[api_key]:
            return None
        fault = self.waiting[api_key].popleft()
        self.fired[fault.kind] += 1
        return fault

    def clear(self) -> None:
        self.waiting.clear()
        self.fired.clear()


class FaultyBroker(EmbeddedBroker):
    """An embedded broker with faults of the network and of the process, on demand."""

    _broker: "_Misbehaving"

    @cached_property
    def _faults(self) -> _Faults:
        """They outlive a kill and a restart."""
        return _Faults()

    def _broker_settings(self) -> dict[str, Any]:
        """The port is one that no other program gets while the broker is killed."""
        settings = super()._broker_settings()
        return settings if settings.keys() & {"port", "listeners"} else {**settings, "port": free_port()}

    def drop_acks(self, count: int = 1, *, api: str = "Produce") -> None:
        """Lose the next `count` answers to requests of this API: the broker does what they ask, then breaks the
        connection.
        """
        self._add_faults("drop_acks", api, _LostAnswer, count)

    def hang(self, seconds: float, *, api: str = "Produce") -> None:
        """Delay the next answer to a request of this API by this time."""
        self._add_faults("hang", api, partial(_LateAnswer, seconds=seconds))

    def fail(self, api: str, error: ErrorCode | str, count: int = 1) -> None:
        """Refuse the next `count` requests of this API with this error, without carrying them out.

        API and error have the protocol's names: `fail("OffsetCommit", "REBALANCE_IN_PROGRESS")`.
        """
        if isinstance(error, str):
            error = ErrorCode[_known(error, ErrorCode.__members__, "error code")]
        self._add_faults("fail", api, error, count)

    @property
    def fired(self) -> Counter[str]:
        """How many faults have happened, by the name of the method that ordered them: `fired["drop_acks"]`."""
        return Counter(self._faults.fired)

    @property
    def unfired(self) -> Counter[str]:
        """How many faults still wait for a request, by method and API: `unfired["drop_acks of EndTxn"]`."""
        return Counter(f"{fault.kind} of {fault.api}" for each in self._faults.waiting.values() for fault in each)

    def _add_faults(
        self, kind: str, api: str, act: "Callable[[Exchange], Exchange] | ErrorCode", count: int = 1
    ) -> None:
        key = _APIS[_known(api, _APIS, "API")]

        async def add() -> None:
            self._faults.waiting[key].extend([_Fault(kind, api, act)] * count)

        self._call(add())

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Make a topic. `configs` are those of Kafka, such as {"cleanup.policy": "compact"}."""

        async def make() -> None:
            create(self._broker, name, partitions, configs or {})
            await self._broker.wait_until_durable()

        self._call(make())

    def seed(self, topic: str, *records: bytes | str | Record, partition: int = 0) -> None:
        """Put records into a topic, as one batch of a producer that is not idempotent. Text or bytes are the value of a
        record; `semel.wire.records.Record` can also have a key, headers and a time. A missing topic is created.
        """
        whole = [
            record if isinstance(record, Record) else Record(record.encode() if isinstance(record, str) else record)
            for record in records
        ]

        async def append() -> None:
            await self._broker.seed(topic, partition, whole)

        self._call(append())

    def add_user(self, user: str, password: str, *mechanisms: Mechanism) -> None:
        """Add a user who can log in with these SCRAM mechanisms, or with all. Access rules say what the user may do."""

        async def add() -> None:
            add_user(self._broker, user, password, *mechanisms)
            await self._broker.wait_until_durable()

        self._call(add())

    def users(self) -> list[str]:
        """The names of all users who can log in, sorted."""

        async def names() -> list[str]:
            return sorted(self._broker.log.state.users)

        return self._call(names())

    def skip(self, seconds: float) -> None:
        """Move the broker's clock by this time: silent members leave their groups, and transactions that are open for
        too long are aborted. Returns when that has happened.
        """

        async def jump() -> None:
            self._broker.skip(seconds)

        self._call(jump())

    def compact(self) -> None:
        """Compact all compacted topics that are due, without up to 15 s of waiting; returns when that is done."""
        self._call(self._broker.compactor.compact())

    def kill(self) -> None:
        """End like after `kill -9`: connections break, answers under way are lost, and no checkpoint is written."""
        self._end(lambda: self._broker.kill())

    def restart(self) -> None:
        """Start again at the same address, with all data. Stops the broker first if it runs."""
        self.stop()
        self.start()

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    def log(self, topic: str, *, committed_only: bool = False) -> list[StoredRecord]:
        """Every record of a topic that consumers may read, partition by partition; with `committed_only`, those that
        consumers with read_committed may read.
        """

        async def read() -> list[StoredRecord]:
            while True:
                try:
                    return self._broker.stored(topic, committed_only)
                except NotHere as absent:
                    await self._broker.fetched(absent)

        return self._call(read())

    def topics(self) -> list[str]:
        """The names of all topics."""

        async def names() -> list[str]:
            return [topic.name for topic in self._broker.log.state.catalog]

        return self._call(names())

    def clear(self) -> None:
        """Delete all topics, groups with their configurations, access rules, quotas and users, except the user of
        `login`, who gets the original password; forget all transactions and faults. For use between two tests.
        """

        async def delete() -> None:
            self._broker.clear()
            await self._security.begin(self._broker)

        self._call(delete())

    def _make_broker(self) -> Broker:
        made = _Misbehaving(files=self._files, **self._broker_settings())
        made.faults = self._faults
        return made


def _known(name: str, names: Iterable[str], what: str) -> str:
    """The name, if it is one of these; otherwise ValueError with the nearest one."""
    spelled = {known.lower(): known for known in names}
    if name in spelled.values():
        return name
    close = difflib.get_close_matches(name.lower(), spelled, n=1)
    hint = f"; do you mean {spelled[close[0]]!r}?" if close else ""
    raise ValueError(f"the protocol has no {what} {name!r}{hint}")


class _Altered(Exchange):
    """Replaces the exchange of a handler, to lose or delay the answer."""

    __slots__ = ("_original",)

    def __init__(self, original: Exchange) -> None:
        for name in Exchange.__slots__:
            setattr(self, name, getattr(original, name))
        self._original = original


class _LostAnswer(_Altered):
    """The connection breaks when the answer would have been sent."""

    __slots__ = ()

    def reply(self, answer: Sequence[Buffer], after: int = 0, *, is_to_be_proved: bool = False) -> None:
        self._original.reply_by_hanging_up(after)


class _LateAnswer(_Altered):
    """The answer is sent later."""

    __slots__ = ("_seconds",)

    def __init__(self, original: Exchange, seconds: float) -> None:
        super().__init__(original)
        self._seconds = seconds

    def reply(self, answer: Sequence[Buffer], after: int = 0, *, is_to_be_proved: bool = False) -> None:
        late = partial(self._original.reply, answer, after, is_to_be_proved=is_to_be_proved)
        asyncio.get_running_loop().call_later(self._seconds, late)


class _Misbehaving(Broker):
    faults: _Faults

    def serve(self, exchange: Exchange, body: memoryview, done: Callable[[], None]) -> None:
        fault = self.faults.next(exchange.api_key)
        if fault is not None:
            if isinstance(fault.act, ErrorCode):
                _refuse(exchange, body, fault.act)
                done()
                return
            exchange = fault.act(exchange)
        super().serve(exchange, body, done)

    async def wait_until_durable(self) -> None:
        """Wait until everything is durable, or the broker has failed, which its clients will see."""
        self.pump.sync_soon()
        end = self.log.end
        # Polled, because only connections are notified.
        while self.pump.settled < end and not self.failed.done():  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)

    async def seed(self, name: str, index: int, records: Sequence[Record]) -> None:
        topic = self.log.state.catalog.named(name)
        if topic is None:
            create(self, name, max(self.partitions_default, index + 1), {})
            topic = self.log.state.catalog.named(name)
            assert topic is not None
        partitions = self.log.state.partitions.of(topic)
        if index >= len(partitions):
            raise ValueError(f"topic {name!r} has {len(partitions)} partitions, and so no partition {index}")
        batch = encode_batch(records)
        header = check_sent(batch, topic.parsed.max_message_bytes)
        self.log.append(topic, partitions[index], header, batch, self.clock.now_ms())
        await self.wait_until_durable()

    def skip(self, seconds: float) -> None:
        self.clock.skip(seconds)
        self.runtime.alarm.catch_up()

    async def fetched(self, absent: NotHere) -> None:
        """Fetch a part of a file that is only in the store; raises an error if that fails."""
        assert self.role.cache is not None
        stretch = Stretch(absent.path, absent.position, absent.size)
        for failure in (await self.role.cache.bring([stretch])).values():
            raise failure

    def stored(self, name: str, committed_only: bool) -> list[StoredRecord]:
        topic = self.log.state.catalog.named(name)
        if topic is None:
            return []
        records: list[StoredRecord] = []
        for partition in self.log.state.partitions.of(topic):
            until = partition.stable if committed_only else partition.readable
            for header, data in partition.batches(partition.state.log_start, until):
                if header.is_control or (committed_only and _was_aborted(partition, header)):
                    continue
                for batch in decode_batches(data):
                    for record in batch.records:
                        numbered = batch.producer_id >= 0
                        records.append(
                            StoredRecord(
                                partition.index,
                                record.offset,
                                record.timestamp_ms,
                                record.key,
                                record.value,
                                record.headers,
                                batch.producer_id,
                                batch.producer_epoch,
                                (batch.base_sequence + record.offset - batch.base_offset) % 2**31 if numbered else -1,
                            )
                        )
        return records

    def clear(self) -> None:
        self.faults.clear()
        for name in [described.owner.transactional_id for described in self.log.state.transactions.all_described()]:
            self.transactions.claim(name, self.limits.transaction_timeout_ms_max, None)
        for forgotten in self.log.state.transaction_rules.silent(self.clock.now_ms(), 0):
            self.runtime.commit(forgotten)
        for topic in list(self.log.state.catalog):
            self.runtime.commit(
                self.log.state.catalog.decide_delete(
                    topic.name, self.log.state.producer_ids.block_count, self.clock.now_ms()
                )
            )
        self.groups.stop()
        for group in list(self.log.state.groups):
            self.runtime.commit(GroupDeleted(group.name))
        for name in self.log.state.groups.configured:
            self.runtime.commit(GroupConfigsChanged(name, {}))
        removed = self.log.state.access.decide_remove(self.log.state.access)
        if removed is not None:
            self.runtime.commit(removed)
        quotas = self.log.state.quotas
        for entity in list(quotas):
            self.runtime.commit(QuotasChanged(entity, {}))
        users = self.log.state.users
        for user in list(users):
            for mechanism in list(users.credentials(user)):
                self.runtime.commit(users.decide_remove(user, mechanism))


def _refuse(exchange: Exchange, body: memoryview, error: ErrorCode) -> None:
    request = messages.decode_request(messages.request_type(exchange.api_key), exchange.version, body)
    if isinstance(request, kafka.produce.ProduceRequest) and request.acks == 0:
        exchange.reply_nothing()
        return
    answer = refusal(exchange.version, request, error)
    exchange.reply((messages.encode_response(answer, exchange.version, exchange.correlation_id),))


def _was_aborted(partition: PartitionLog, header: BatchHeader) -> bool:
    return header.is_transactional and any(
        producer_id == header.producer_id
        for producer_id, _ in partition.aborted.between(header.base_offset, header.next_offset)
    )
