"""Builds the answer of any API that reports the same error for everything in a request.

It follows the tables of the messages: each array of the answer mirrors the array of the request with the same things.
The answer must never say that anything was done.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from semel.wire.errors import ErrorCode
from semel.wire.message import NO_ID, REQUIRED, Field, Request, Response, Struct
from semel.wire.messages import response_type
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
    # If they are null, librdkafka cannot read the answer, and sends the same request again for ever.
    "records": b"",
    "string": "",
    "bytes": b"",
    "int32": -1,
    "int64": -1,
    "uuid": NO_ID,
}
# Zero means none for these, and not -1.
_DURATIONS: Final = ("throttle_time_ms", "heartbeat_interval_ms", "session_lifetime_ms", "transaction_timeout_ms")


def refusal(version: int, request: Request[Any], error: ErrorCode) -> Response:
    """The answer to this request."""
    answer: Any = _mirrored(response_type(request.KEY), version, request, error)
    if request.KEY == FETCH and answer.responses:
        # The top-level error of a Fetch answer is about the session.
        answer.error_code = ErrorCode.NONE
    return answer  # type: ignore[no-any-return]


def _mirrored(answer_type: type[Struct], version: int, request: Any, error: ErrorCode) -> Any:
    return answer_type(
        **{
            name: error if name.endswith("error_code") else _value(name, field, version, request, error)
            for name, field in answer_type.FIELDS.items()
            if field.tag is None and (field.since <= version < field.until or field.default is REQUIRED)
        }
    )


def _value(name: str, field: Field, version: int, request: Any, error: ErrorCode) -> Any:
    if field.is_array and not isinstance(field.kind, str):
        return [
            _mirrored(field.kind, version, element, error)
            for source in _ARRAYS.get(name, (name,))
            for element in _elements(request, source)
        ]
    for source in _VALUES.get(name, (name,)):
        value: Any = request if source == "." and isinstance(request, int | str) else getattr(request, source, None)
        if value is not None:
            return value
    if field.kind == "records":
        return _NOTHING[field.kind]
    if not field.is_array and not isinstance(field.kind, str) and field.default is REQUIRED:
        return _mirrored(field.kind, version, request, error)
    if field.null_since <= version < field.null_until:
        return None
    if field.is_array:
        return ()
    if name in _DURATIONS:
        return 0
    return _NOTHING.get(field.kind, 0 if field.default is REQUIRED else field.default)


def _elements(request: Any, name: str) -> Sequence[Any]:
    elements = [request]
    for part in name.split("."):
        arrays = [getattr(element, part, None) for element in elements]
        elements = [element for array in arrays if isinstance(array, tuple) for element in array]
    return elements
