"""The small objects of a store that are replaced, such as the lease: fields as JSON, with a digest of them and of the
object's key. So a flipped bit is noticed, and so is a copy of another object.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

_DIGEST: Final = "digest"
_DIGEST_CHARACTERS: Final = 32
# What goes wrong in bytes that are damaged, or that another program wrote.
UNREADABLE: Final = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


def encode_record(key: str, fields: Mapping[str, Any]) -> bytes:
    """The bytes of the object under this key."""
    return json.dumps({**fields, _DIGEST: _digest(key, fields)}).encode()


def decode_record(key: str, content: bytes) -> dict[str, Any]:
    """The fields of the object under this key; one of `UNREADABLE` if they are not what was written."""
    fields: dict[str, Any] = json.loads(content)
    if fields.pop(_DIGEST) != _digest(key, fields):
        raise ValueError("the digest does not match")
    return fields


def _digest(key: str, fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(f"{key} {json.dumps(fields)}".encode()).hexdigest()[:_DIGEST_CHARACTERS]
