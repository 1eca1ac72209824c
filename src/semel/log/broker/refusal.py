"""Builds the answer of any API that reports the same error for everything in a request.

It follows kio's schemas: each array of the answer mirrors the array of the request with the same things. The answer
must never say that anything was done.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Final, get_args, get_origin

from semel.wire.errors import ErrorCode
from semel.wire.versions import FETCH

# The names of arrays and fields in answers whose requests have other names. An array may lie within the elements of
# another one. A dot alone stands for the element itself.
_ARRAYS: Final[Mapping[str, tuple[str, ...]]] = {
    "responses": ("topics", "topic_data", "topic_names", "resources"),
    "partition_responses": ("partition_data",),
    "partitions": ("partitions", "partition_indexes"),
    "coordinators": ("coordinator_keys",),
    "results": ("topics", "resources", "creations", "groups_names", "deletions", "upsertions", "dirs.topics"),
    "replica_election_results": ("topic_partitions",),
    "partition_result": ("partitions",),
    "filter_results": ("filters",),
    "groups": ("groups", "group_ids"),
    "transaction_states": ("transactional_ids",),
    "results_by_topic_v3_and_below": ("v3_and_below_topics",),
    "results_by_transaction": ("transactions",),
    "topic_results": ("topics",),
    "results_by_partition": ("partitions",),
}
_VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "partition_index": ("partition_index", "partition", "."),
    "partition_id": (".",),
    "index": ("index",),
    "key": ("key", "."),
    "name": ("name", "."),
    "topic_name": ("topic_name", "name"),
    "group_id": ("group_id", "."),
    "transactional_id": ("transactional_id", "."),
    "user": ("user", "name"),
}
# The values of fields that have no meaning in an error.
_NOTHING: Final[Mapping[str, object]] = {
    "string": "",
    "bytes": b"",
    "int32": -1,
    "int64": -1,
    "timedelta_i32": 0,
    "timedelta_i64": 0,
}


def refusal(api_key: int, version: int, request: Any, error: ErrorCode) -> dict[str, Any]:
    """The fields of the answer to this request."""
    from kio.index import load_response_schema

    answer = _mirrored(load_response_schema(api_key, version), request, error)
    if api_key == FETCH and answer.get("responses"):
        # The top-level error of a Fetch answer is about the session.
        answer["error_code"] = ErrorCode.NONE
    return answer


def _mirrored(answer_type: Any, request: Any, error: ErrorCode) -> dict[str, Any]:
    return {
        field.name: error if field.name.endswith("error_code") else _value(field, request, error)
        for field in fields(answer_type)
        if "tag" not in field.metadata
    }


def _value(field: Any, request: Any, error: ErrorCode) -> Any:
    kafka_type = field.metadata.get("kafka_type")
    parts = [field.type, *get_args(field.type)]
    is_array = any(get_origin(part) is tuple for part in parts)
    if kafka_type is None and is_array:
        [element_type] = {one for part in parts for one in (part, *get_args(part)) if is_dataclass(one)}
        names = _ARRAYS.get(field.name, (field.name,))
        return [_mirrored(element_type, element, error) for name in names for element in _elements(request, name)]
    for name in _VALUES.get(field.name, (field.name,)):
        value: Any = request if name == "." and isinstance(request, int | str) else getattr(request, name, None)
        if value is not None:
            return value.bytes if kafka_type == "uuid" else value
    if kafka_type == "uuid":
        return bytes(16)
    if kafka_type == "datetime_i64":
        # On the wire a time is -1 if nothing was appended, even if kio's default is None.
        return -1
    if kafka_type == "records":
        # If they are null, librdkafka cannot read the answer, and sends the same request again for ever.
        return b""
    if type(None) in parts:
        return None
    if is_array:
        return []
    if kafka_type in _NOTHING:
        return _NOTHING[kafka_type]
    return 0 if field.default is MISSING else field.default


def _elements(request: Any, name: str) -> Sequence[Any]:
    elements = [request]
    for part in name.split("."):
        arrays = [getattr(element, part, None) for element in elements]
        elements = [element for array in arrays if isinstance(array, tuple) for element in array]
    return elements
