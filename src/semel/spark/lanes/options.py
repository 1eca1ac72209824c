"""The options of the sink into the log: their names and values, and which of them exclude each other. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from semel.client import settings
from semel.spark.claims import is_mark
from semel.spark.lanes.protocol import Order
from semel.spark.source.errors import OptionRefused
from semel.spark.source.options import Option, canonical

LANES_MAX: Final = 1_000
PROGRESS_PREFIX: Final = "semel-progress-"
# Five minutes: longer than a batch should take, and not much longer than consumers may wait for a transaction whose
# writer died and has no successor yet.
TRANSACTION_TIMEOUT_MS: Final = 300_000

OPTIONS: Final = (
    Option("topic", "", "The topic for all rows; it takes precedence over a column `topic`."),
    Option(
        "sinkId",
        "",
        "The name of this sink, by which it finds what it has written: letters, digits, `.`, `_` and `-`. It must be "
        "the same after every restart, and no other query may use it. Required.",
    ),
    Option(
        "lanes",
        "the number that `semel.spark.lanes` was given",
        "If the rows do not come through `semel.spark.lanes`: the greatest number of partitions that they have. Each "
        "partition is a lane.",
    ),
    Option(
        "progressTopic",
        "`semel-progress-` and the sinkId",
        "The compacted topic that holds the markers, with one partition for each lane. The sink creates it if it is "
        "missing.",
    ),
    Option(
        "transactionTimeout",
        "5m",
        "How long a lane may take to write its part of a batch; at most the broker's limit, which is 15 minutes by "
        "default. If a batch takes longer, it fails: read fewer rows at a time with `maxOffsetsPerTrigger`, or use "
        "more lanes.",
    ),
    Option(
        "acceptAfter",
        "",
        "Streams, and writes with `queryId`: a mark that a refusal has named. A lane whose last batch has exactly "
        "this mark accepts any next batch. `nothing-7` lets a lane without a batch begin with batch 7.",
    ),
    Option(
        "batchId",
        "",
        "Batch: the number of this write, higher than all before. A write that is repeated with its number is "
        "recognised as a duplicate; without numbers each write is a new one.",
    ),
    Option(
        "queryId",
        "",
        "Batch, with `batchId`: the query to which these batches belong; their numbers must then have no gaps.",
    ),
    Option("kafka.*", "", "Options of Kafka's clients, of which `kafka.bootstrap.servers` is needed."),
)

_NAMES: Final = {option.name.lower(): option.name for option in OPTIONS if not option.name.startswith("kafka.")}
# The options that Spark passes to every sink.
_SPARKS: Final = frozenset(("checkpointlocation", "path", "queryname"))
_BATCHES_ONLY: Final = ("batchId", "queryId")
_STREAMS_ONLY: Final = ("acceptAfter",)
_UNITS_MS: Final = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000}
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


@dataclass(frozen=True)
class SinkOptions:
    """The options of one sink, parsed and checked against each other."""

    client: settings.ClientSettings
    sink_id: str
    topic: str | None
    lanes: int | None
    progress_topic: str
    transaction_timeout_ms: int
    accept_after: str | None
    batch_id: int | None
    query_id: str | None
    names: frozenset[str]

    @property
    def order(self) -> Order:
        """How the numbers of batch writes follow each other."""
        if self.batch_id is None:
            return Order.SINGLE
        return Order.RISING if self.query_id is None else Order.CONSECUTIVE


def read_options(options: Mapping[str, str]) -> SinkOptions:
    """Reads a user's options; names are compared without regard to case, as Spark does it."""
    texts = {
        canonical(name, _NAMES): value.strip()
        for name, value in options.items()
        if not name.lower().startswith(settings.PREFIX) and name.lower() not in _SPARKS
    }
    sink_id = _sink_id(texts)
    client = settings.from_options(options)
    timeout_ms = _timeout_ms(texts, client)
    _check_delivery(client, timeout_ms)
    return SinkOptions(
        client=client,
        sink_id=sink_id,
        topic=texts.get("topic") or None,
        lanes=_number(texts, "lanes", 1, LANES_MAX),
        progress_topic=texts.get("progressTopic") or PROGRESS_PREFIX + sink_id,
        transaction_timeout_ms=timeout_ms,
        accept_after=_mark(texts),
        batch_id=_number(texts, "batchId", 0),
        query_id=texts.get("queryId") or None,
        names=frozenset(texts),
    )


def check_for_stream(options: SinkOptions) -> None:
    """Refuses options that have no meaning for a stream."""
    for name in _BATCHES_ONLY:
        if name in options.names:
            raise OptionRefused(f"option {name} is for batch writes: the batches of a stream have their own numbers")


def check_for_batch(options: SinkOptions) -> None:
    """Refuses options that have no meaning for a batch write."""
    if options.query_id is not None and options.batch_id is None:
        raise OptionRefused("option queryId needs option batchId")
    if options.order is not Order.CONSECUTIVE:
        for name in _STREAMS_ONLY:
            if name in options.names:
                raise OptionRefused(f"option {name} is for streams, or for batch writes with queryId and batchId")


def _sink_id(texts: Mapping[str, str]) -> str:
    sink_id = texts.get("sinkId", "")
    if not sink_id:
        raise OptionRefused("option sinkId is missing: a name for this sink that is the same after every restart")
    if not _NAME.fullmatch(sink_id):
        raise OptionRefused(f"option sinkId: {sink_id!r} may have letters, digits, '.', '_' and '-', 200 at most")
    return sink_id


def _mark(texts: Mapping[str, str]) -> str | None:
    mark = texts.get("acceptAfter")
    if mark is not None and not is_mark(mark):
        raise OptionRefused(f"option acceptAfter: {mark!r} is no mark, such as 41-9c1f02ab or nothing-7")
    return mark


def _timeout_ms(texts: Mapping[str, str], client: settings.ClientSettings) -> int:
    kafkas = client.transaction_timeout_ms
    if kafkas is not None and "transactionTimeout" in texts:
        raise OptionRefused("options transactionTimeout and kafka.transaction.timeout.ms say the same: give one")
    text = texts.get("transactionTimeout")
    if text is None:
        return kafkas or TRANSACTION_TIMEOUT_MS
    match = re.fullmatch(r"(\d{1,9})\s*([a-z]*)", text.lower())
    if match is None or match[2] not in _UNITS_MS or not 1_000 <= (ms := int(match[1]) * _UNITS_MS[match[2]]) < 1 << 31:
        raise OptionRefused(f"option transactionTimeout: {text!r} is not a time like 30s or 5m, of a second or more")
    return ms


def _check_delivery(client: settings.ClientSettings, timeout_ms: int) -> None:
    """Refuses a delivery timeout that is longer than the transaction's."""
    if client.delivery_timeout_ms is not None and client.delivery_timeout_ms > timeout_ms:
        raise OptionRefused(
            f"option kafka.delivery.timeout.ms={client.delivery_timeout_ms} is not a time up to the transaction's, "
            f"{timeout_ms} ms"
        )


def _number(texts: Mapping[str, str], name: str, lowest: int, highest: int = (1 << 63) - 1) -> int | None:
    if name not in texts:
        return None
    text = texts[name]
    if not re.fullmatch(r"\d{1,18}", text) or not lowest <= int(text) <= highest:
        until = f" to {highest}" if highest < 1 << 62 else ""
        raise OptionRefused(f"option {name}: {text!r} is not a whole number from {lowest}{until}")
    return int(text)
