"""Entries of `semel.log.core.entries` as bytes, and back.

Most entries are batches, which are large: a fixed head, then the batch itself, which is never copied. The other entries
are few and small. They are JSON, so that a person with a hex viewer can read them. Only the members of a classic group
bring up to ten megabytes of their own bytes, which would take long in JSON. They follow it as they are, and the JSON
has the size of each.
"""

import json
import struct
from dataclasses import fields
from typing import Any, Final

from semel.log.core import entries
from semel.log.core.entries import BatchAppended, ClassicGroupChanged, Entry, StoredMember
from semel.log.storage.files import Buffer
from semel.wire.batch import HEADER_BYTES

BATCH_KIND: Final = 1
BATCH_HEAD: Final = struct.Struct("<IIq")
# The size of the JSON part of an entry that does not end with it.
_HEAD_BYTES: Final = struct.Struct("<I")

_KINDS: Final[dict[int, type[Any]]] = {
    2: entries.TopicCreated,
    3: entries.TopicDeleted,
    4: entries.PartitionsAdded,
    5: entries.ConfigsChanged,
    6: entries.ProducerIdsReserved,
    7: entries.LogStartMoved,
    8: entries.TransactionalIdClaimed,
    9: entries.TransactionGrew,
    10: entries.TransactionalOffsets,
    11: entries.TransactionEnded,
    12: entries.TransactionalIdsForgotten,
    13: entries.OffsetsCommitted,
    14: entries.OffsetsForgotten,
    15: entries.GroupDeleted,
    17: entries.ConsumerGroupChanged,
    18: entries.GroupConfigsChanged,
    19: entries.AccessRulesAdded,
    20: entries.AccessRulesRemoved,
    21: entries.UserCredentialSet,
    22: entries.UserCredentialRemoved,
    23: entries.LoginSecretMade,
    24: entries.QuotasChanged,
    25: entries.ClassicGroupChanged,
    26: entries.ShareGroupChanged,
    27: entries.ShareStatesChanged,
    28: entries.ShareStartsSet,
}
_KIND_OF: Final = {entry_type: kind for kind, entry_type in _KINDS.items()}
_FIELD_NAMES: Final = {entry_type: tuple(field.name for field in fields(entry_type)) for entry_type in _KIND_OF}
# The fields that identify an entry's subject, if it has them.
_KEYS: Final = (
    *("group", "name", "number", "partition", "transactional_id", "transactional_ids", "producer_id", "first"),
    *("committed", "user", "mechanism", "entity"),
)
# No tool shows these, because they would allow guessing a password offline.
SECRET_FIELDS: Final = frozenset(("salt", "stored_key", "server_key", "secret"))
# Made once, because `json.dumps` makes one each time. No entry can contain itself.
_TO_JSON: Final = json.JSONEncoder(separators=(",", ":"), default=bytes.hex, check_circular=False).encode


def encode(entry: Entry) -> tuple[int, list[Buffer]]:
    """An entry's kind, and the buffers with its bytes."""
    if isinstance(entry, BatchAppended):
        return BATCH_KIND, [BATCH_HEAD.pack(entry.number, entry.partition, entry.at_ms), entry.batch]
    values = {name: getattr(entry, name) for name in _FIELD_NAMES[type(entry)]}
    if isinstance(entry, ClassicGroupChanged):
        of_clients = [content for member in entry.members for content in (member.subscription, member.assignment)]
        values["members"] = [
            member._replace(subscription=len(member.subscription), assignment=len(member.assignment))  # type: ignore[arg-type]
            for member in entry.members
        ]
        head = _TO_JSON(values).encode()
        return _KIND_OF[type(entry)], [_HEAD_BYTES.pack(len(head)) + head, b"".join(of_clients)]
    return _KIND_OF[type(entry)], [_TO_JSON(values).encode()]


def decode(kind: int, payload: memoryview) -> Entry:
    """The entry with these bytes; ValueError if they are not an entry. A batch is a view of `payload`."""
    if kind == BATCH_KIND:
        if len(payload) < BATCH_HEAD.size + HEADER_BYTES:
            raise ValueError(f"a batch in {len(payload)} bytes")
        number, partition, at_ms = BATCH_HEAD.unpack_from(payload)
        return BatchAppended(number, partition, at_ms, payload[BATCH_HEAD.size :])
    entry_type = _KINDS.get(kind)
    if entry_type is None:
        raise ValueError(f"entries of kind {kind} are not known to this version of semel")
    try:
        values = _with_members(payload) if entry_type is ClassicGroupChanged else json.loads(bytes(payload))
        for field in fields(entry_type):
            value = values[field.name]
            if field.type is bytes:
                values[field.name] = bytes.fromhex(value)
            elif isinstance(value, list):
                values[field.name] = _frozen(value)
        entry: Entry = entry_type(**values)
    except (LookupError, TypeError) as error:
        raise ValueError(f"not {entry_type.__name__} as this version of semel knows it: {error}") from error
    return entry


def _with_members(payload: memoryview) -> dict[str, Any]:
    """The fields of an entry about a classic group."""
    if len(payload) < _HEAD_BYTES.size:
        raise ValueError(f"members of a group in {len(payload)} bytes")
    (head_bytes,) = _HEAD_BYTES.unpack_from(payload)
    at = _HEAD_BYTES.size + head_bytes
    values: dict[str, Any] = json.loads(bytes(payload[_HEAD_BYTES.size : at]))
    members = []
    for *fields_before, subscription_bytes, assignment_bytes in values["members"]:
        middle = at + subscription_bytes
        end = middle + assignment_bytes
        if not at <= middle <= end <= len(payload):
            raise ValueError("the members of a group brought more bytes than the entry has")
        members.append(StoredMember._make((*fields_before, bytes(payload[at:middle]), bytes(payload[middle:end]))))
        at = end
    values["members"] = tuple(members)
    return values


def name_of(entry: Entry) -> str:
    """An entry in a few words, for a person: its type and its subject."""
    names = (field.name for field in fields(entry) if field.name in _KEYS)
    about = (f"{name.replace('_', ' ')} {getattr(entry, name)}" for name in names)
    return " ".join([type(entry).__name__, *about])


def _frozen(value: Any) -> Any:
    """Lists, also within lists, as tuples."""
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
