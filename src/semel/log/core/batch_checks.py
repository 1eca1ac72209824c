"""Every check of a batch before it becomes part of the log, in order.

    check_sent     the batch by itself and in its request: format, size, checksum, fields, codec, transaction or not
    check_records  its records, if they are not compressed: this takes some steps
    (the caller)   in a compacted topic, that each record has a key: this opens the records, which may take long
    judge_batch    the batch against what is known: whether its producer id is the sender's own; repetition and epoch;
                   the transaction; a gap; whether its address may put one more producer on record; and the clock of
                   its sender

The order decides which error a batch with several faults gets, and it is Kafka's order. A duplicate and a fenced batch
get their own verdicts, whatever else is wrong with the batch; but a batch with the producer id of somebody else gets
none, because anybody can count. Nothing here changes any state, and the caller must append a batch that `judge_batch`
accepts before it appends anything else.
"""

from typing import Final, NamedTuple

from semel.log.core.configs import TopicConfigs
from semel.log.core.partition import PRODUCER_EXPIRATION_MS, Partition
from semel.log.core.producer_ids import ProducerIds
from semel.log.core.record_walk import walk_records
from semel.log.core.state import H, State
from semel.wire.batch import (
    APPEND_TIME_BIT,
    CHECKED_FROM,
    CODEC_LAST,
    CODEC_MASK,
    CODEC_SIGNATURES,
    CONTROL_BIT,
    HEADER_BYTES,
    HORIZON_BIT,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    MAGIC_POSITION,
    NO_PRODUCER,
    NO_TIMESTAMP,
    RECORD_BYTES_MIN,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    correct,
    read_header,
)
from semel.wire.checksum import crc32c
from semel.wire.refusals import (
    CORRUPT_MESSAGE,
    INVALID_PRODUCER_EPOCH,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    INVALID_TXN_STATE,
    MESSAGE_TOO_LARGE,
    NONE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    TRANSACTION_ABORTABLE,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNSUPPORTED_COMPRESSION_TYPE,
    Refused,
)
from semel.wire.sequences import ACCEPTED, DUPLICATE, FENCED, GAP, Judgement, Outcome, epoch_of, is_bare, judge
from semel.wire.steps import Steps


class Who(NamedTuple):
    """Whose producer ids a sender may use."""

    # The transactional id that its request names, if it may write with that.
    transactional_id: str | None
    # Its principal; None while no access rules are in force.
    principal: str | None = None


class Sender(NamedTuple):
    """What the checks need to know about the sender of a batch."""

    # The address that its producer is charged to; None for the broker's own.
    address: str | None = None
    # Whether sending a batch adds its partition to the open transaction, or opens one (transactions version 2).
    joins: bool = False
    # Whether the client knows TRANSACTION_ABORTABLE: it then aborts its transaction and goes on with the next one.
    knows_abortable: bool = False
    knows_zstd: bool = True
    # None for the broker's own, which may use every producer id.
    who: Who | None = None


LOCAL: Final = Sender()


class ForeignProducer(Refused):
    """The producer id of a batch belongs to somebody else than its sender."""

    def __init__(self, producer_id: int) -> None:
        super().__init__(INVALID_PRODUCER_ID_MAPPING, f"producer id {producer_id} does not belong to this client")
        self.producer_id = producer_id


class Verdict(NamedTuple):
    """The verdict on a batch, and what its sender is told. For a duplicate that is the original's offset and time."""

    outcome: Outcome
    base_offset: int = -1
    timestamp_ms: int = NO_TIMESTAMP
    error: int = NONE
    message: str | None = None
    # The number that would have been accepted: the sequence number after a gap, the epoch for a fenced producer.
    expected: int = 0


_ACCEPTED: Final = Verdict(ACCEPTED)


def check_sent(batch: Buffer, batch_bytes_max: int, sender: Sender = LOCAL) -> BatchHeader:
    """The header of a batch that a client sent; `Refused` if the batch contradicts itself or its request."""
    size = len(batch)
    # The format is checked first: a message of an older format may be whole and still shorter than this format's
    # header. If it were called corrupt, its sender would send it again.
    if size > MAGIC_POSITION and batch[MAGIC_POSITION] != MAGIC:
        is_old = f"message format {batch[MAGIC_POSITION]} is not supported, only format {MAGIC}"
        raise Refused(INVALID_RECORD, f"{is_old}, which clients have sent since Kafka 0.11: update the client")
    if size < HEADER_BYTES:
        raise Refused(CORRUPT_MESSAGE, f"a record batch has at least {HEADER_BYTES} bytes, this one has {size}")
    header = read_header(batch)
    if header.length + LENGTH_PREFIX_BYTES != size:
        if HEADER_BYTES <= header.length + LENGTH_PREFIX_BYTES < size:
            raise Refused(INVALID_RECORD, "more than one record batch for a partition in one request")
        raise Refused(CORRUPT_MESSAGE, f"the batch says it has {header.length} bytes more, but {size - 12} came")
    if size > batch_bytes_max:
        raise Refused(MESSAGE_TOO_LARGE, f"the batch has {size} bytes, max.message.bytes is {batch_bytes_max}")
    if crc32c(memoryview(batch)[CHECKED_FROM:]) != header.checksum:
        raise Refused(CORRUPT_MESSAGE, "the checksum of the batch does not match its bytes")
    _check_fields(header, batch)
    if header.attributes & CODEC_MASK == CODEC_LAST and not sender.knows_zstd:
        raise Refused(
            UNSUPPORTED_COMPRESSION_TYPE,
            "zstd needs Produce version 7 or later: update the client, or choose another compression",
        )
    who = sender.who
    if header.attributes & TRANSACTIONAL_BIT and who is not None and who.transactional_id is None:
        raise Refused(TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transactional batch in a request without a transaction")
    return header


def check_records(header: BatchHeader, batch: bytearray | memoryview) -> Steps[tuple[BatchHeader, int | None]]:
    """The header of a batch that passed `check_sent`, and the time of its earliest record, or None if the batch is
    compressed, because it stays closed. If a client got the time of the latest record wrong, it is corrected in the
    batch, as in Apache Kafka: retention and look-ups by time trust it.
    """
    if header.attributes & CODEC_MASK:
        return header, None
    times = yield from walk_records(memoryview(batch)[HEADER_BYTES:], header)
    latest_ms = max(times.latest_ms, NO_TIMESTAMP)
    if header.max_timestamp != latest_ms:
        header = correct(batch, header, latest_ms)
    return header, times.earliest_ms


def _check_fields(header: BatchHeader, batch: Buffer) -> None:
    attributes = header.attributes
    if attributes & CONTROL_BIT:
        raise Refused(INVALID_RECORD, "control batches are written by the broker, never by a client")
    count = header.record_count
    if count <= 0 or header.last_offset_delta != count - 1:
        raise Refused(
            INVALID_RECORD, f"the batch counts {count} records but its last offset delta is {header.last_offset_delta}"
        )
    if header.producer_id != NO_PRODUCER and min(header.producer_id, header.producer_epoch, header.base_sequence) < 0:
        raise Refused(INVALID_RECORD, "a producer's id, epoch and sequence number are 0 or more")
    if attributes & HORIZON_BIT:
        raise Refused(INVALID_RECORD, "only the broker may set the delete horizon of a batch")
    if attributes & APPEND_TIME_BIT:
        raise Refused(INVALID_TIMESTAMP, "only the broker may set the timestamp type to LogAppendTime")
    codec = attributes & CODEC_MASK
    if codec == 0:
        if count * RECORD_BYTES_MIN > len(batch) - HEADER_BYTES:
            raise Refused(INVALID_RECORD, f"{count} records cannot fit in {len(batch) - HEADER_BYTES} bytes")
        return
    if codec > CODEC_LAST:
        raise Refused(UNSUPPORTED_COMPRESSION_TYPE, f"there is no compression type {codec}")
    signature = CODEC_SIGNATURES.get(codec)
    if signature is not None and batch[HEADER_BYTES : HEADER_BYTES + len(signature)] != signature:
        raise Refused(CORRUPT_MESSAGE, f"the records are not what compression type {codec} says they are")


def judge_batch(
    state: State[H],
    holder: H,
    header: BatchHeader,
    configs: TopicConfigs,
    sender: Sender,
    now_ms: int,
    expiration_ms: int,
    earliest_ms: int | None = None,
) -> Verdict:
    """The verdict on the claim of a batch that passed `check_sent` and `check_records`; `Refused` if another rule
    forbids the batch.
    """
    if sender.who is not None and header.producer_id != NO_PRODUCER:
        _check_own(state, header, sender.who)
    partition = holder.state
    allowed_ms = state.silence.producer_allowed_ms(now_ms, expiration_ms)
    verdict = judge_claim(partition, header, state.producer_ids, now_ms, allowed_ms, joins=sender.joins)
    outcome = verdict.outcome
    if outcome is DUPLICATE or outcome is FENCED:
        return verdict
    producer_id = header.producer_id
    if header.attributes & TRANSACTIONAL_BIT:
        missing = TRANSACTION_ABORTABLE if sender.knows_abortable else INVALID_TXN_STATE
        epoch, rules = header.producer_epoch, state.transaction_rules
        rules.check_batch(producer_id, epoch, holder.name, joins=sender.joins, missing_error=missing)
    if outcome is GAP:
        return verdict
    if producer_id != NO_PRODUCER and partition.producers.get(producer_id) is None:
        state.check_producer_share(producer_id, holder.name, sender.address)
    if not configs.log_append_time:
        earliest_ms = header.base_timestamp if earliest_ms is None else earliest_ms
        before_max_ms, after_max_ms = configs.timestamp_before_max_ms, configs.timestamp_after_max_ms
        check_timestamps(earliest_ms, header.max_timestamp, now_ms, before_max_ms, after_max_ms)
    return verdict


def _check_own(state: State[H], header: BatchHeader, who: Who) -> None:
    """Refused unless the producer id of a batch is the sender's own: it belongs to the transactional id that the
    request names, whether the batch is transactional or not; or else to a range of the sender's principal.
    """
    producer_id = header.producer_id
    owner = state.transactions.owner(producer_id)
    if owner is not None:
        is_own = owner.transactional_id == who.transactional_id
    else:
        # A transactional id may have got another producer id since, or be forgotten; `check_batch` says so.
        is_transactional = header.attributes & TRANSACTIONAL_BIT != 0
        is_own = is_transactional or who.principal in (None, state.producer_ids.owner_of(producer_id))
    if not is_own:
        raise ForeignProducer(producer_id)


def judge_claim(
    partition: Partition,
    header: BatchHeader,
    ids: ProducerIds,
    now_ms: int,
    expiration_ms: int = PRODUCER_EXPIRATION_MS,
    *,
    joins: bool = False,
) -> Verdict:
    """The verdict on a batch's claim: its producer's id, epoch and sequence number. `Refused` if the claim would be
    accepted, but the producer has a transaction open in this partition and the batch is not part of it.
    """
    producer_id = header.producer_id
    if producer_id == NO_PRODUCER:
        # A batch without a producer id makes no claim, so it cannot be a repetition and leaves no gap.
        return _ACCEPTED
    judgement = _judge(partition, header, ids, now_ms, expiration_ms, joins)
    outcome = judgement.outcome
    if outcome is ACCEPTED:
        if producer_id in partition.open_transactions and not header.attributes & TRANSACTIONAL_BIT:
            raise Refused(
                INVALID_TXN_STATE,
                "a batch outside of the transaction that its producer has open here: end that one first",
            )
        return _ACCEPTED
    if judgement.original is not None:
        return Verdict(outcome, judgement.original.base_offset, judgement.original.timestamp_ms)
    if outcome is FENCED:
        why = f"fenced (epoch {header.producer_epoch}, current {judgement.expected})"
        return Verdict(outcome, error=INVALID_PRODUCER_EPOCH, message=why, expected=judgement.expected)
    why = f"sequence gap (expected {judgement.expected}, got {header.base_sequence})"
    return Verdict(outcome, error=OUT_OF_ORDER_SEQUENCE_NUMBER, message=why, expected=judgement.expected)


def _judge(
    partition: Partition, header: BatchHeader, ids: ProducerIds, now_ms: int, expiration_ms: int, joins: bool
) -> Judgement:
    producer_id = header.producer_id
    state = partition.producers.get(producer_id)
    # With transactions version 2 every transaction has an epoch of its own. So its sequence numbers begin at 0 in each
    # partition, even if the broker has forgotten the numbers of earlier transactions.
    is_unsure = state is None or is_bare(state)
    is_new = is_unsure and (
        (joins and header.attributes & TRANSACTIONAL_BIT != 0)
        or ids.is_young(producer_id, now_ms, expiration_ms, partition.lenient_blocks)
    )
    if state is not None and is_unsure and not is_new and epoch_of(state) == header.producer_epoch:
        # The broker may have forgotten the batches before the marker.
        state = None
    return judge(state, is_new, header.producer_epoch, header.base_sequence, header.record_count)


def check_timestamps(earliest_ms: int, latest_ms: int, now_ms: int, before_max_ms: int, after_max_ms: int) -> None:
    """Refuse a batch if its producer's clock is too far ahead of the broker's, or too far behind."""
    if latest_ms - now_ms > after_max_ms:
        ahead_ms = latest_ms - now_ms
        raise Refused(
            INVALID_TIMESTAMP, f"the batch is {ahead_ms} ms ahead, message.timestamp.after.max.ms is {after_max_ms}"
        )
    if now_ms - earliest_ms > before_max_ms and earliest_ms != NO_TIMESTAMP:
        late_ms = now_ms - earliest_ms
        raise Refused(
            INVALID_TIMESTAMP, f"the batch is {late_ms} ms late, message.timestamp.before.max.ms is {before_max_ms}"
        )
