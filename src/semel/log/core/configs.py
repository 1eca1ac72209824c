"""The configurations of a topic, as data: their names, the values they may have, and their defaults.

A configuration is here for one of two reasons: the log acts upon it, or semel keeps its promise whatever the value is.
(Clients set such configurations out of habit; refusing them would stop programs for nothing.) The broker refuses every
other configuration by name, because accepting a setting and ignoring it breaks a promise in silence. A topic keeps the
text that was set; produce and fetch read `TopicConfigs`, which has plain integers. Nothing here may depend on which
topic it is.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from semel.log.core.values import value
from semel.wire.refusals import INVALID_CONFIG, INVALID_REQUEST, Refused

Kind = Literal["boolean", "int", "long", "double", "string", "list"]

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

# Kafka's minimum has been 1 MiB since 4.0, and was 14 bytes before. People set a thousand bytes or ten thousand to see
# a log roll; below a thousand there would be a file for every batch.
SEGMENT_BYTES_MIN: Final = 1024

# Kafka's default is 1 GiB. Retention drops whole segments, so a topic may exceed its retention by one segment, on disk
# or (in a broker without a directory) in memory. A quarter of Kafka's size suits a laptop better and is no slower.
SEGMENT_BYTES_DEFAULT: Final = 256 * 1024 * 1024

DAY_MS: Final = 24 * 60 * 60 * 1000

# Durations as Java writes them, without fractions of a second.
_DURATION = re.compile(
    r"by_duration:P(?:([0-9]{1,9})D)?(?:T(?=[0-9])(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9})S)?)?"
)
_UNITS_MS: Final = (DAY_MS, 3_600_000, 60_000, 1_000)

# A number with more digits cannot fit, so it is not even converted.
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
# Java writes small numbers with an exponent.
_SHARE = re.compile(r"(?:[0-9]{1,19}\.?[0-9]{0,19}|\.[0-9]{1,19})(?:[eE][+-]?[0-9]{1,2})?")


class InvalidConfig(Refused):
    """A configuration that cannot be set; the message names it and says which values are valid."""

    def __init__(self, message: str, error: int = INVALID_CONFIG) -> None:
        super().__init__(error, message)


@value
class Number:
    """A configuration that is a whole number within bounds."""

    name: str
    kind: Literal["int", "long"]
    default: str
    minimum: int
    maximum: int
    documentation: str

    def canonical(self, text: str) -> str:
        """The one way to write this value, or InvalidConfig."""
        stripped = text.strip()
        if _NUMBER.fullmatch(stripped):
            value = int(stripped)
            if self.minimum <= value <= self.maximum:
                return str(value)
        raise InvalidConfig(
            f"{self.name} must be a whole number from {self.minimum} to {self.maximum}, not {_shown(text)}"
        )


@value
class Share:
    """A configuration that is a ratio from 0 to 1."""

    name: str
    default: str
    documentation: str
    kind: Literal["double"] = "double"

    def canonical(self, text: str) -> str:
        """The one way to write this value, or InvalidConfig."""
        stripped = text.strip()
        if _SHARE.fullmatch(stripped) and float(stripped) <= 1:
            return str(float(stripped))
        raise InvalidConfig(f"{self.name} must be a number from 0 to 1, not {_shown(text)}")


@value
class Choice:
    """A configuration that is one of a few words, a boolean, or a list of words."""

    name: str
    kind: Literal["boolean", "string", "list"]
    default: str
    allowed: tuple[str, ...]
    documentation: str

    def canonical(self, text: str) -> str:
        """The one way to write this value, or InvalidConfig."""
        spelt = text.lower() if self.kind == "boolean" else text
        words = listed(spelt) if self.kind == "list" else [spelt.strip()]
        if words and all(word in self.allowed for word in words):
            return ",".join(words)
        raise InvalidConfig(f"{self.name} must be {' or '.join(self.allowed)}, not {_shown(text)}")


@value
class Reset:
    """A configuration that says where readers begin who have read nothing: at an end of the log, or so long ago."""

    name: str
    default: str
    documentation: str
    kind: Literal["string"] = "string"

    def canonical(self, text: str) -> str:
        """The one way to write this value, or InvalidConfig."""
        stripped = text.strip()
        if stripped.lower() in ("earliest", "latest"):
            return stripped.lower()
        if duration_ms_of(stripped) is not None:
            return stripped
        raise InvalidConfig(f"{self.name} must be earliest, latest or by_duration:PnDTnHnMnS, not {_shown(text)}")


def duration_ms_of(reset: str) -> int | None:
    """How long ago `by_duration:...` is; None for other texts."""
    match = _DURATION.fullmatch(reset)
    if match is None or not any(match.groups()):
        return None
    return sum(int(number or 0) * unit_ms for number, unit_ms in zip(match.groups(), _UNITS_MS, strict=True))


Definition = Number | Share | Choice | Reset

DEFINITIONS: Final[Mapping[str, Definition]] = {
    definition.name: definition
    for definition in (
        Choice(
            "cleanup.policy",
            "list",
            "delete",
            ("delete", "compact"),
            "How the broker removes old records: `delete` drops whole segments by age and by size, `compact` keeps the "
            "last record of every key.",
        ),
        Choice(
            "compression.type",
            "string",
            "producer",
            ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
            "Stored and shown, but without effect: records stay as their producer compressed them.",
        ),
        Number(
            "delete.retention.ms",
            "long",
            str(DAY_MS),
            0,
            LONG_MAX,
            "How long a tombstone stays in a compacted topic, so that consumers have time to read it.",
        ),
        Number(
            "file.delete.delay.ms",
            "long",
            "60000",
            0,
            LONG_MAX,
            "How long a deleted segment's file stays on disk. No client can read it then, so any value is accepted.",
        ),
        Number(
            "flush.messages",
            "long",
            str(LONG_MAX),
            1,
            LONG_MAX,
            "Sync after this many records. The broker's `--durability` decides when to sync, so any value is accepted.",
        ),
        Number(
            "flush.ms",
            "long",
            str(LONG_MAX),
            0,
            LONG_MAX,
            "Sync after this time. The broker's `--durability` decides when to sync, so any value is accepted.",
        ),
        Number(
            "index.interval.bytes",
            "int",
            "4096",
            0,
            INT_MAX,
            "How dense an index is. Look-ups have the same result for any value, so any value is accepted.",
        ),
        Number(
            "max.compaction.lag.ms",
            "long",
            str(LONG_MAX),
            1,
            LONG_MAX,
            "How long a record in a compacted topic may wait for compaction, even if that would free little space.",
        ),
        Number(
            "max.message.bytes",
            "int",
            "1048588",
            0,
            INT_MAX,
            "The largest record batch, as compressed by the producer, that the topic accepts.",
        ),
        Number(
            "message.timestamp.after.max.ms",
            "long",
            str(60 * 60 * 1000),
            0,
            LONG_MAX,
            "How far the newest timestamp of a batch may lie ahead of the broker's clock (CreateTime only).",
        ),
        Number(
            "message.timestamp.before.max.ms",
            "long",
            str(LONG_MAX),
            0,
            LONG_MAX,
            "How far the earliest timestamp of a batch (the first one if it is compressed) may lie behind the broker's "
            "clock (CreateTime only).",
        ),
        Choice(
            "message.timestamp.type",
            "string",
            "CreateTime",
            ("CreateTime", "LogAppendTime"),
            "Whose clock stamps the records: the producer's, or the broker's when it appends.",
        ),
        Share(
            "min.cleanable.dirty.ratio",
            "0.5",
            "How large a part of a compacted partition has to be new before it is compacted again.",
        ),
        Number(
            "min.compaction.lag.ms",
            "long",
            "0",
            0,
            LONG_MAX,
            "How long compaction leaves a record alone, so that consumers have time to read every version of a key.",
        ),
        Number(
            "min.insync.replicas",
            "int",
            "1",
            1,
            INT_MAX,
            "How many copies acks=all waits for; as in Apache Kafka, never for more copies than exist. semel has "
            "one copy, which is on disk before the answer.",
        ),
        Choice(
            "preallocate",
            "boolean",
            "false",
            ("true", "false"),
            "Reserve the disk space of a whole segment when it is created. Has no effect, so either value is accepted.",
        ),
        Number(
            "retention.bytes",
            "long",
            "-1",
            -1,
            LONG_MAX,
            "How large a partition may grow before its oldest segments are deleted; -1 for no limit.",
        ),
        Number(
            "retention.ms",
            "long",
            str(7 * DAY_MS),
            -1,
            LONG_MAX,
            "How old a record may grow before its segment is deleted; -1 for no limit.",
        ),
        Number(
            "segment.bytes",
            "int",
            str(SEGMENT_BYTES_DEFAULT),
            SEGMENT_BYTES_MIN,
            INT_MAX,
            "The size at which a partition starts its next segment file. Retention drops whole segments.",
        ),
        Number(
            "segment.index.bytes",
            "int",
            "10485760",
            4,
            INT_MAX,
            "How large an index may grow. An index lives as long as its segment, so any value is accepted.",
        ),
        Number(
            "segment.jitter.ms",
            "long",
            "0",
            0,
            LONG_MAX,
            "The random delay by which partitions spread the rolling of their segments. Rolling costs no sync here, so "
            "any value is accepted.",
        ),
        Number(
            "segment.ms",
            "long",
            str(7 * DAY_MS),
            1,
            LONG_MAX,
            "The age at which a partition starts its next segment file, so that retention reaches a slow topic too.",
        ),
        Choice(
            "unclean.leader.election.enable",
            "boolean",
            "false",
            ("true", "false"),
            "Whether a replica that lags may lead. There is one replica, so either value is accepted.",
        ),
    )
}


@value
class TopicConfigs:
    """The configurations that the log acts upon, read once and then looked at for every batch. -1 is no limit."""

    retention_ms: int
    retention_bytes: int
    segment_bytes: int
    segment_ms: int
    max_message_bytes: int
    log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    # Whether retention deletes old segments, and whether compaction removes superseded records. At least one is true.
    is_deleted: bool
    is_compacted: bool
    delete_retention_ms: int
    compaction_lag_min_ms: int
    compaction_lag_max_ms: int
    dirty_ratio_min: float


@value
class Alteration:
    """One step of an incremental change of configurations."""

    name: str
    operation: Literal["set", "delete", "append", "subtract"]
    value: str | None = None


def canonical(configs: Mapping[str, str | None], definitions: Mapping[str, Definition] = DEFINITIONS) -> dict[str, str]:
    """The same configurations in canonical form; InvalidConfig for the first that cannot be set.

    The broker stores the canonical form and not the client's text, which may be a megabyte of blanks around a digit.
    """
    return {name: _definition(name, definitions).canonical(_with_value(name, value)) for name, value in configs.items()}


def parse(configs: Mapping[str, str | None]) -> TopicConfigs:
    """The values that the log acts upon, with defaults for those that are not set; InvalidConfig for a bad one."""
    values = {name: definition.default for name, definition in DEFINITIONS.items()} | canonical(configs)
    policies = listed(values["cleanup.policy"])
    lag_min_ms, lag_max_ms = int(values["min.compaction.lag.ms"]), int(values["max.compaction.lag.ms"])
    if lag_min_ms > lag_max_ms:
        raise InvalidConfig(
            f"min.compaction.lag.ms ({lag_min_ms}) cannot be above max.compaction.lag.ms ({lag_max_ms})"
        )
    is_compacted = "compact" in policies
    # Compaction leaves the active segment alone, so no segment may stay active for longer than a record may wait.
    segment_ms = min(int(values["segment.ms"]), lag_max_ms) if is_compacted else int(values["segment.ms"])
    return TopicConfigs(
        retention_ms=int(values["retention.ms"]),
        retention_bytes=int(values["retention.bytes"]),
        segment_bytes=int(values["segment.bytes"]),
        segment_ms=segment_ms,
        max_message_bytes=int(values["max.message.bytes"]),
        log_append_time=values["message.timestamp.type"] == "LogAppendTime",
        timestamp_before_max_ms=int(values["message.timestamp.before.max.ms"]),
        timestamp_after_max_ms=int(values["message.timestamp.after.max.ms"]),
        is_deleted="delete" in policies,
        is_compacted=is_compacted,
        delete_retention_ms=int(values["delete.retention.ms"]),
        compaction_lag_min_ms=lag_min_ms,
        compaction_lag_max_ms=lag_max_ms,
        dirty_ratio_min=float(values["min.cleanable.dirty.ratio"]),
    )


def altered(
    configs: Mapping[str, str],
    alterations: Iterable[Alteration],
    definitions: Mapping[str, Definition] = DEFINITIONS,
) -> dict[str, str]:
    """All configurations after an incremental change; InvalidConfig if it is not valid. `configs` stays as it is."""
    result = dict(configs)
    names: set[str] = set()
    for alteration in alterations:
        if alteration.name in names:
            raise InvalidConfig(f"{_shown(alteration.name)} is changed twice in one request", INVALID_REQUEST)
        names.add(alteration.name)
        if alteration.operation == "delete":
            # As in Apache Kafka, this may name what is not set, or what does not even exist.
            result.pop(alteration.name, None)
            continue
        definition = _definition(alteration.name, definitions)
        value = _with_value(alteration.name, alteration.value)
        if alteration.operation == "set":
            result[alteration.name] = value
            continue
        if definition.kind != "list":
            raise InvalidConfig(f"{alteration.name} is not a list: it can be set or deleted, nothing else")
        words = listed(result.get(alteration.name, definition.default))
        change = listed(value)
        if alteration.operation == "append":
            words += change
        else:
            words = [word for word in words if word not in change]
        result[alteration.name] = ",".join(words)
    return canonical(result, definitions)


def listed(text: str) -> list[str]:
    """The words of a list-typed value, each once, in their order."""
    return list(dict.fromkeys(word for word in (part.strip() for part in text.split(",")) if word))


def _definition(name: str, definitions: Mapping[str, Definition]) -> Definition:
    definition = definitions.get(name)
    if definition is None:
        whose = "topic" if definitions is DEFINITIONS else "group"
        raise InvalidConfig(
            f"unknown {whose} configuration {_shown(name)}; the known ones are {', '.join(definitions)}"
        )
    return definition


def _with_value(name: str, value: str | None) -> str:
    if value is None:
        raise InvalidConfig(f"{name} has no value; to return to the default, delete it", INVALID_REQUEST)
    return value


def _shown(text: str) -> str:
    """A client's text for a message: quoted, and cut so that it cannot flood a log."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
