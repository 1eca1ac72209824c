"""The idempotent consumer: an event that is delivered several times has its effect once.

    with engine.begin() as connection:
        with inbox.once(connection, consumer="billing", message_id=event.id) as first:
            if first:
                book(connection, event)

The claim is a row of (consumer, event id) in the transaction of the effect. This room must never begin, commit or roll
back the caller's transaction.
"""

import importlib.util

if importlib.util.find_spec("sqlalchemy") is None or importlib.util.find_spec("confluent_kafka") is None:
    raise ImportError("semel.inbox needs SQLAlchemy and confluent-kafka, and one is missing: pip install 'semel[app]'")

from semel.inbox.aiokafka import AsyncInbox
from semel.inbox.brokers import LoopFailed
from semel.inbox.claims import claim_many, claim_many_async, once, once_async
from semel.inbox.confluent import Inbox
from semel.inbox.events import BrokerCoordinates, Message, Outcome, UnusableId, Version, derived_key
from semel.inbox.loop import Counts
from semel.inbox.reaper import RetentionTooShort, reap, reap_async
from semel.inbox.retries import is_passing
from semel.inbox.tables import metadata
from semel.inbox.versions import next_version, next_version_async
from semel.retries import Retries

__all__ = [
    "AsyncInbox",
    "BrokerCoordinates",
    "Counts",
    "Inbox",
    "LoopFailed",
    "Message",
    "Outcome",
    "RetentionTooShort",
    "Retries",
    "UnusableId",
    "Version",
    "claim_many",
    "claim_many_async",
    "derived_key",
    "is_passing",
    "metadata",
    "next_version",
    "next_version_async",
    "once",
    "once_async",
    "reap",
    "reap_async",
]
