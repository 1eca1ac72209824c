"""Metadata (3), versions 0 to 13, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import NO_ID, Request, Response, Struct, array, field


class MetadataResponseBroker(Struct):
    node_id: int = field("int32")
    host: str = field("string")
    port: int = field("int32")
    rack: str | None = field("string", since=1, null_since=1, default=None)


class MetadataResponsePartition(Struct):
    error_code: int = field("int16", default=0)
    partition_index: int = field("int32")
    leader_id: int = field("int32")
    leader_epoch: int = field("int32", since=7, default=-1)
    replica_nodes: Sequence[int] = array("int32")
    isr_nodes: Sequence[int] = array("int32")
    offline_replicas: Sequence[int] = array("int32", since=5, default=())


class MetadataResponseTopic(Struct):
    error_code: int = field("int16", default=0)
    name: str | None = field("string", null_since=12)
    topic_id: bytes = field("uuid", since=10, default=NO_ID)
    is_internal: bool = field("bool", since=1, default=False)
    partitions: Sequence[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = field("int32", since=8, default=-2147483648)


class MetadataResponse(Response):
    KEY = 3
    throttle_time_ms: int = field("int32", since=3, default=0)
    brokers: Sequence[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = field("string", since=2, null_since=2, default=None)
    controller_id: int = field("int32", since=1, default=-1)
    topics: Sequence[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = field("int32", since=8, until=11, default=-2147483648)
    error_code: int = field("int16", since=13, default=0)


class MetadataRequestTopic(Struct):
    topic_id: bytes = field("uuid", since=10, default=NO_ID)
    name: str | None = field("string", null_since=10)


class MetadataRequest(Request[MetadataResponse]):
    KEY = 3
    topics: Sequence[MetadataRequestTopic] | None = array(MetadataRequestTopic, null_since=1)
    allow_auto_topic_creation: bool = field("bool", since=4, default=True)
    include_cluster_authorized_operations: bool = field("bool", since=8, until=11, default=False)
    include_topic_authorized_operations: bool = field("bool", since=8, default=False)
