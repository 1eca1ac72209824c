"""Which right is missing: an inbox that a cluster with ACLs refuses says what to ask the cluster's owners for."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import create_async_engine

from committed_records import make_topic
from relayed_cluster import RelayedCluster
from semel.database import begin_immediately
from semel.inbox import AsyncInbox, Inbox, LoopFailed
from semel.testing.broker import FaultyBroker
from semel.wire.errors import ErrorCode


def identity(message: Any) -> str:
    return str(json.loads(message.value or b"")["id"])


def run(engine: Engine, bootstrap: str, topic: str) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": "shop", "log_level": 0}
    Inbox(engine, consumer="billing", identity=identity).run(lambda *_: None, settings, [topic])


def run_async(engine: Engine, bootstrap: str, topic: str) -> None:
    async def handle(*_: object) -> None:
        """Nothing comes."""

    asynchronous = create_async_engine(str(engine.url).replace("sqlite:", "sqlite+aiosqlite:"))
    begin_immediately(asynchronous.sync_engine)
    inbox = AsyncInbox(asynchronous, consumer="billing", identity=identity)
    settings = {"bootstrap_servers": bootstrap, "group_id": "shop", "auto_offset_reset": "earliest"}
    asyncio.run(inbox.run(handle, settings, [topic]))


@pytest.mark.parametrize("loop", [run, run_async])
def test_a_group_that_may_not_be_used_is_named_with_the_right(
    engine: Engine, faulty: FaultyBroker, topic: str, loop: Any
) -> None:
    make_topic(faulty.bootstrap, topic)
    with RelayedCluster(faulty.bootstrap) as cluster:
        cluster.find_error = ErrorCode.GROUP_AUTHORIZATION_FAILED
        with pytest.raises(LoopFailed, match="needs the right Read on group 'shop'"):
            loop(engine, cluster.bootstrap, topic)


@pytest.mark.parametrize("loop", [run, run_async])
def test_a_topic_that_may_not_be_read_is_named_with_the_right(
    engine: Engine, faulty: FaultyBroker, topic: str, loop: Any
) -> None:
    make_topic(faulty.bootstrap, topic)
    with RelayedCluster(faulty.bootstrap) as cluster:
        cluster.fetch_errors = [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 9
        with pytest.raises(LoopFailed, match=f"needs the right Read on topic '{topic}'"):
            loop(engine, cluster.bootstrap, topic)
