"""The options of the source: their names, their values, and which of them exclude each other. Pure.

They are those of Spark's own Kafka source, with the same defaults and refusals, with three exceptions: read_committed
is the default, an unknown option is refused by its name, and `includeProducer` is new. An option must never be ignored
in silence.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from semel.client import settings
from semel.client.bad_batches import OnBadBatch
from semel.client.places import EARLIEST, LATEST, Edge, Isolation, TopicPartition
from semel.spark.source.bounds import (
    AtEdge,
    AtOffsets,
    AtTimestamps,
    Bound,
    read_offsets,
    read_partitions,
    read_timestamp,
    read_timestamps,
)
from semel.spark.source.errors import OptionRefused
from semel.spark.versions import ASKS_FOR_LIMITS, THIS_SPARK

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Option:
    """An option as the reference page shows it."""

    name: str
    default: str
    documentation: str


OPTIONS: Final = (
    Option(
        "subscribe", "", "Topics to read, separated by commas. Set one of `subscribe`, `subscribePattern`, `assign`."
    ),
    Option(
        "subscribePattern",
        "",
        "A regular expression: the query reads all topics whose names contain a match, also topics that are created "
        "later.",
    ),
    Option("assign", "", 'Partitions to read: `{"topicA": [0, 1], "topicB": [2]}`.'),
    Option(
        "startingOffsets",
        "`latest` for a stream, `earliest` for a batch",
        'Where a new query begins: `earliest`, `latest`, or `{"topicA": {"0": 23, "1": -1}, "topicB": {"0": -2}}` for '
        "all partitions, in which -2 is earliest and -1 is latest. A restarted query continues from its checkpoint, "
        "and reads new partitions from their beginning.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        "",
        'The first records of these times, in ms, or later: `{"topicA": {"0": 1700000000000}}`. Overrides '
        "`startingOffsets`.",
    ),
    Option(
        "startingTimestamp",
        "",
        "One time, in ms, for all partitions. Overrides the two above.",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "error",
        "What to do if a partition has no record of that time or later: `error`, or `latest` to begin at its end.",
    ),
    Option("endingOffsets", "latest", "Batch: where to end, in the format of `startingOffsets`."),
    Option(
        "endingOffsetsByTimestamp",
        "",
        "Batch: end before the first records of these times. Overrides the option above.",
    ),
    Option("endingTimestamp", "", "Batch: end before the first records of this time. Overrides the two above."),
    Option(
        "maxOffsetsPerTrigger",
        "",
        "Stream: the most offsets in a batch. Each partition gets a share in proportion to the offsets that it has "
        "left, but at least one.",
    ),
    Option("minOffsetsPerTrigger", "", "Stream: a batch waits for this many records, or for `maxTriggerDelay`."),
    Option("maxTriggerDelay", "15m", "Stream: how long a batch may wait because of `minOffsetsPerTrigger`."),
    Option("minPartitions", "", "About how many tasks a batch has at least; by default one for each partition."),
    Option("maxRecordsPerPartition", "", "The most offsets in one task; larger partitions are split."),
    Option(
        "failOnDataLoss",
        "true",
        "Whether to fail when unread records are gone: deleted, expired, or lost with their topic. If `false`, "
        "the query logs what is lost as a warning and goes on with the records that are left.",
    ),
    Option(
        "onBadBatch",
        "fail",
        "What to do at a batch that cannot be read, such as one whose compressed records are none: `fail`, or "
        "`quarantine`: the query logs topic, partition and offsets as a warning and goes on after it.",
    ),
    Option("fetchOffset.numRetries", "3", "How often the query checks a loss again before it reports it."),
    Option("fetchOffset.retryIntervalMs", "1000", "How long to wait before each of these checks."),
    Option("includeHeaders", "false", "Whether there is a column `headers`."),
    Option(
        "includeProducer",
        "false",
        "Whether there are columns `producer_id`, `producer_epoch` and `sequence`: the numbers by which brokers "
        "recognise duplicates, null for records without them.",
    ),
    Option(
        "groupIdPrefix",
        "",
        "The client id of the query, unless `kafka.client.id` is set. The source is in no consumer group.",
    ),
    Option(
        "kafka.isolation.level",
        "read_committed",
        "Or `read_uncommitted`, which also shows records of open and aborted transactions.",
    ),
    Option(
        "kafka.group.id",
        "",
        "Stream: a consumer group of this query alone. The query commits its offsets there, for tools that show lag; "
        "only Spark's checkpoint says where the query continues. The query does not touch a group that has members or "
        "other offsets.",
    ),
    Option("kafka.*", "", "Options of Kafka's clients, of which `kafka.bootstrap.servers` is needed."),
)

_NAMES: Final = {option.name.lower(): option.name for option in OPTIONS if not option.name.startswith("kafka.")}
_BATCHES_ONLY: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
_STREAMS_ONLY: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
# Options that Spark's own source takes and that would change nothing here.
_WITHOUT_MEANING: Final = {
    "path": "a topic has no path: name it in option subscribe, and call load() without arguments",
    "topic": "it names the topic of a sink; a source has option subscribe",
    "kafkaconsumer.polltimeoutms": "nothing is polled: set kafka.default.api.timeout.ms",
}
_UNITS_MS: Final = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class Subscription:
    """What a query reads: topics by name, topics by pattern, or partitions."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: frozenset[TopicPartition] = frozenset()

    def __str__(self) -> str:
        return f"topics that match {self.pattern!r}" if self.pattern is not None else ", ".join(self.topics)


@dataclass(frozen=True)
class SourceOptions:
    """The options of one source, parsed and checked against each other."""

    subscription: Subscription
    client: settings.ClientSettings
    isolation: Isolation
    starting: Bound | None
    ending: Bound
    without_time_at_latest: bool
    offsets_max: int | None
    offsets_min: int | None
    delay_ms_max: int
    partitions_min: int | None
    records_max: int | None
    fails_on_data_loss: bool
    on_bad_batch: OnBadBatch
    looks_again: int
    look_interval_ms: int
    includes_headers: bool
    includes_producer: bool
    names: frozenset[str]

    def begins(self, *, streaming: bool) -> Bound:
        return self.starting or AtEdge(LATEST if streaming else EARLIEST)


def read_options(options: Mapping[str, str]) -> SourceOptions:
    """Reads a user's options; names are compared without regard to case, as Spark does it."""
    ours = {name: value for name, value in options.items() if not _is_kafkas(name)}
    _refuse_without_meaning(ours)
    texts = {canonical(name, _NAMES): value for name, value in ours.items()}
    client = _named(settings.from_options(options), texts)
    offsets_max = _positive(texts, "maxOffsetsPerTrigger")
    offsets_min = _positive(texts, "minOffsetsPerTrigger")
    if offsets_min is not None and offsets_max is not None and offsets_min > offsets_max:
        raise OptionRefused(f"minOffsetsPerTrigger={offsets_min} is more than maxOffsetsPerTrigger={offsets_max}")
    return SourceOptions(
        subscription=_subscription(texts),
        client=client,
        isolation=_isolation(client),
        starting=_bound(texts, "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets"),
        ending=_bound(texts, "endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets") or AtEdge(LATEST),
        without_time_at_latest=_strategy(texts),
        offsets_max=offsets_max,
        offsets_min=offsets_min,
        delay_ms_max=_duration_ms("maxTriggerDelay", texts.get("maxTriggerDelay", "15m")),
        partitions_min=_positive(texts, "minPartitions"),
        records_max=_positive(texts, "maxRecordsPerPartition"),
        fails_on_data_loss=_truth(texts, "failOnDataLoss", default=True),
        on_bad_batch=_on_bad_batch(texts),
        looks_again=_number(texts, "fetchOffset.numRetries", default=3),
        look_interval_ms=_number(texts, "fetchOffset.retryIntervalMs", default=1_000),
        includes_headers=_truth(texts, "includeHeaders", default=False),
        includes_producer=_truth(texts, "includeProducer", default=False),
        names=frozenset(texts),
    )


def check_for_stream(options: SourceOptions, *, asks_for_limits: bool = ASKS_FOR_LIMITS) -> None:
    """Refuses options that have no meaning for a stream, or that this Spark does not obey."""
    for name in _BATCHES_ONLY:
        if name in options.names:
            raise OptionRefused(f"option {name} is for batches: a stream has no end")
    if not asks_for_limits:
        for name in _STREAMS_ONLY:
            if name in options.names:
                raise OptionRefused(
                    f"{THIS_SPARK} gives a batch of a source in Python no limits: leave out option {name}, or use "
                    "Spark 4.2 or newer"
                )


def check_for_batch(options: SourceOptions) -> list[str]:
    """Refuses options that have no meaning for a batch; returns the names of those that are allowed and change
    nothing."""
    _refuse_edge(options.begins(streaming=False), LATEST, "startingOffsets", "a batch that begins there is empty")
    _refuse_edge(options.ending, EARLIEST, "endingOffsets", "a batch that ends there is empty")
    _check_order(options.begins(streaming=False), options.ending)
    return [name for name in _STREAMS_ONLY if name in options.names]


def canonical(name: str, names: Mapping[str, str]) -> str:
    """An option's documented name, whatever case the user wrote it in; the keys of `names` are in lower case."""
    if name.lower() not in names:
        raise OptionRefused(settings.unknown_option(name, names.values()))
    return names[name.lower()]


def _refuse_without_meaning(names: Iterable[str]) -> None:
    for name in names:
        if name.lower() in _WITHOUT_MEANING:
            raise OptionRefused(f"option {name} cannot be set: {_WITHOUT_MEANING[name.lower()]}")


def _is_kafkas(name: str) -> bool:
    return name.lower().startswith(settings.PREFIX)


def _named(client: settings.ClientSettings, texts: Mapping[str, str]) -> settings.ClientSettings:
    prefix = texts.get("groupIdPrefix", "").strip()
    is_default = client.client_id == settings.ClientSettings.client_id
    return replace(client, client_id=prefix) if prefix and is_default else client


def _isolation(client: settings.ClientSettings) -> Isolation:
    return Isolation[(client.isolation_level or "read_committed").upper()]


def _subscription(texts: Mapping[str, str]) -> Subscription:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name in texts]
    if len(ways) != 1:
        problem = f"{' and '.join(ways)} are given" if ways else "none is"
        raise OptionRefused(f"exactly one of subscribe, subscribePattern and assign says what is read; {problem}")
    way, text = ways[0], texts[ways[0]]
    if not text.strip():
        raise OptionRefused(f"option {way} is empty")
    if way == "assign":
        partitions = read_partitions(way, text)
        return Subscription(tuple(sorted({place.topic for place in partitions})), None, partitions)
    if way == "subscribePattern":
        return Subscription(pattern=_pattern(way, text.strip()))
    topics = sorted({topic.strip() for topic in text.split(",") if topic.strip()})
    if not topics:
        raise OptionRefused(f"option subscribe: {text!r} names no topic")
    return Subscription(tuple(topics))


def _pattern(option: str, text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise OptionRefused(f"option {option}: {text!r} is not a regular expression: {error}") from None
    return text


def _bound(texts: Mapping[str, str], timestamp: str, timestamps: str, offsets: str) -> Bound | None:
    if timestamp in texts:
        return read_timestamp(timestamp, texts[timestamp])
    if timestamps in texts:
        return read_timestamps(timestamps, texts[timestamps])
    return read_offsets(offsets, texts[offsets]) if offsets in texts else None


def _strategy(texts: Mapping[str, str]) -> bool:
    name = "startingOffsetsByTimestampStrategy"
    word = texts.get(name, "error").lower()
    if word not in ("error", "latest"):
        raise OptionRefused(f"option {name}: {texts[name]!r} is neither error nor latest")
    return word == "latest"


def _refuse_edge(bound: Bound, edge: Edge, option: str, reason: str) -> None:
    if bound == AtEdge(edge):
        raise OptionRefused(f"option {option}={edge.name.lower()} is for streams: {reason}")
    if isinstance(bound, AtOffsets):
        for place, position in bound.positions.items():
            if position is edge:
                raise OptionRefused(f"option {option}: {edge.value} for {place} is for streams: {reason}")


def _check_order(starting: Bound, ending: Bound) -> None:
    begins, ends = _plain(starting), _plain(ending)
    if type(starting) is not type(ending) or begins is None or ends is None:
        return
    if begins.keys() != ends.keys():
        apart = ", ".join(str(place) for place in sorted(begins.keys() ^ ends.keys()))
        raise OptionRefused(f"the beginning and the end of the batch do not name the same partitions: {apart}")
    for place, begin in begins.items():
        if isinstance(begin, int) and isinstance(end := ends[place], int) and begin > end:
            raise OptionRefused(f"the batch would begin at {begin} and end at {end} in {place}: the end comes first")


def _plain(bound: Bound) -> Mapping[TopicPartition, Edge | int] | None:
    if isinstance(bound, AtOffsets):
        return bound.positions
    return dict(bound.timestamps_ms) if isinstance(bound, AtTimestamps) else None


def _truth(texts: Mapping[str, str], name: str, *, default: bool) -> bool:
    return _one(texts, name, {"true": True, "false": False}.get, "true or false", default)


def _on_bad_batch(texts: Mapping[str, str]) -> OnBadBatch:
    named = {choice.value: choice for choice in OnBadBatch}
    return _one(texts, "onBadBatch", named.get, "fail or quarantine", OnBadBatch.FAIL)


def _positive(texts: Mapping[str, str], name: str) -> int | None:
    return _one(texts, name, lambda word: _whole_number(word, 1), "a whole number from 1", None)


def _number(texts: Mapping[str, str], name: str, *, default: int) -> int:
    return _one(texts, name, lambda word: _whole_number(word, 0), "a whole number from 0", default)


def _duration_ms(name: str, text: str) -> int:
    match = re.fullmatch(r"(\d{1,12})\s*([a-z]*)", text.strip().lower())
    if match is None or match[2] not in _UNITS_MS:
        raise OptionRefused(f"option {name}: {text!r} is not a time like 500ms, 30s, 15m or 1h")
    return int(match[1]) * _UNITS_MS[match[2]]


def _whole_number(word: str, lowest: int) -> int | None:
    return int(word) if re.fullmatch(r"\d{1,18}", word) and int(word) >= lowest else None


def _one(
    texts: Mapping[str, str], name: str, read: Callable[[str], _Value | None], expected: str, default: _Value
) -> _Value:
    if name not in texts:
        return default
    value = read(texts[name].strip().lower())
    if value is None:
        raise OptionRefused(f"option {name}: {texts[name]!r} is not {expected}")
    return value
