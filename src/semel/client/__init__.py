"""The raw client of the protocol, for every part of semel that talks to a cluster: connections, topics, records,
transactions.

It works against semel and against Apache Kafka from 2.8 on; nothing in it depends on which of them answers. It must
never need Spark, and only `arrow/` needs numpy and pyarrow.
"""

from semel.client.client import LogClient
from semel.client.errors import (
    AuthenticationFailed,
    CorruptRecords,
    LogError,
    OffsetOutOfRange,
    RefusedByBroker,
    SettingsRefused,
    TopicRecreated,
    UnknownTopic,
    Unreachable,
)
from semel.client.places import (
    EARLIEST,
    LATEST,
    NO_ID,
    Isolation,
    Slice,
    Topic,
    TopicPartition,
)
from semel.client.settings import ClientSettings, from_options
