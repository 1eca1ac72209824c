"""Named, numbered publishing: each number of a name is in the log at most once, and in order, across restarts.

    with Publisher("127.0.0.1:9092", name="orders") as publisher:
        publisher.publish(publisher.last() + 1, Record("orders", value=b"3 apples"))

The claim is (name, number). A cursor in a compacted topic holds it, and commits in the Kafka transaction of the
records; the fence is the epoch of the transactional id. This room works against any Kafka cluster, and must not depend
on semel's own broker.
"""

import importlib.util

if importlib.util.find_spec("confluent_kafka") is None:
    raise ImportError("semel.publish needs confluent-kafka, which is missing: pip install 'semel[app]'")

from semel.publish.publisher import AsyncPublisher, Publisher
from semel.publish.rules import (
    CursorRefused,
    Fenced,
    Gap,
    LoginRefused,
    PublishError,
    PublishFailed,
    PublishRefused,
    PublishUncertain,
    Receipt,
    Record,
    RecordRefused,
)

__all__ = [
    "AsyncPublisher",
    "CursorRefused",
    "Fenced",
    "Gap",
    "LoginRefused",
    "PublishError",
    "PublishFailed",
    "PublishRefused",
    "PublishUncertain",
    "Publisher",
    "Receipt",
    "Record",
    "RecordRefused",
]
