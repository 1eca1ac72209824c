"""CreateTopics (19), versions 2 to 7, as `make messages` writes it."""

from __future__ import annotations

from collections.abc import Sequence

from semel.wire.message import NO_ID, Request, Response, Struct, array, field


class CreatableTopicConfigs(Struct):
    name: str = field("string", since=5)
    value: str | None = field("string", since=5, null_since=5)
    read_only: bool = field("bool", since=5)
    config_source: int = field("int8", since=5, default=-1)
    is_sensitive: bool = field("bool", since=5)


class CreatableTopicResult(Struct):
    name: str = field("string")
    topic_id: bytes = field("uuid", since=7, default=NO_ID)
    error_code: int = field("int16", default=0)
    error_message: str | None = field("string", since=1, null_since=0, default=None)
    topic_config_error_code: int = field("int16", since=5, tag=0, default=0)
    num_partitions: int = field("int32", since=5, default=-1)
    replication_factor: int = field("int16", since=5, default=-1)
    configs: Sequence[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, since=5, null_since=5, default=())


class CreateTopicsResponse(Response):
    KEY = 19
    throttle_time_ms: int = field("int32", since=2, default=0)
    topics: Sequence[CreatableTopicResult] = array(CreatableTopicResult)


class CreatableReplicaAssignment(Struct):
    partition_index: int = field("int32")
    broker_ids: Sequence[int] = array("int32")


class CreatableTopicConfig(Struct):
    name: str = field("string")
    value: str | None = field("string", null_since=0)


class CreatableTopic(Struct):
    name: str = field("string")
    num_partitions: int = field("int32")
    replication_factor: int = field("int16")
    assignments: Sequence[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: Sequence[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Request[CreateTopicsResponse]):
    KEY = 19
    topics: Sequence[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = field("int32", default=60000)
    validate_only: bool = field("bool", since=1, default=False)
