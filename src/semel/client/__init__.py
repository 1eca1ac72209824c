"""The log as the pipeline sees it: a client of our own that plans and fetches, and records that become Arrow columns.

It works against semel and against Apache Kafka from 2.8 on; nothing in it knows which of them answers.
"""

from semel.client.client import LogClient
from semel.client.columns import TYPES, schema_of
from semel.client.errors import (
    AuthenticationFailed,
    CorruptRecords,
    LogError,
    OffsetOutOfRange,
    Refused,
    SettingsRefused,
    TopicMadeAnew,
    UnknownTopic,
    Unreachable,
)
from semel.client.places import (
    EARLIEST,
    LATEST,
    NO_ID,
    Edge,
    Isolation,
    Position,
    Slice,
    Topic,
    TopicPartition,
)
from semel.client.reading import read_slice
from semel.client.settings import ClientSettings, from_options

__all__ = [
    "EARLIEST",
    "LATEST",
    "NO_ID",
    "TYPES",
    "AuthenticationFailed",
    "ClientSettings",
    "CorruptRecords",
    "Edge",
    "Isolation",
    "LogClient",
    "LogError",
    "OffsetOutOfRange",
    "Position",
    "Refused",
    "SettingsRefused",
    "Slice",
    "Topic",
    "TopicMadeAnew",
    "TopicPartition",
    "UnknownTopic",
    "Unreachable",
    "from_options",
    "read_slice",
    "schema_of",
]
