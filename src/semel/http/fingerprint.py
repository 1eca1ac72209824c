"""What tells two payloads under one key apart: method, path, query and body, without any loss.

Pure. JSON is compared as it was written, but for white space, the order of keys and how a character is escaped. A
number stays the text it was, so 1.0 and 1.00000000000000001 differ, and a key that occurs twice occurs twice. Any other
body counts by its bytes. A slash at the end of a path does not count: frameworks send a client from one to the other,
and a retry comes by the same way. Nothing here may depend on anything but the request, or a retry would be another one.
"""

import hashlib
import json
import re
from itertools import accumulate
from typing import Any, Final

# Deeper JSON counts by its bytes, so that no document can exhaust the stack. Few documents are nested 20 deep.
JSON_DEPTH_MAX: Final = 100

# A string that does not end goes to the end of the text, or each quote in it would be looked for an end once more.
_STRING_OR_BRACKET: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_STEP: Final = {"[": 1, "{": 1, "]": -1, "}": -1}


class _Number(str):
    """A number, as it was written."""


class _Object(tuple[tuple[str, Any], ...]):
    """The members of an object, as often as they were written."""


def fingerprint(method: str, path: bytes, query: bytes, content_type: str, body: bytes) -> str:
    """A digest of the request, in hexadecimal digits."""
    media_type = content_type.partition(";")[0].strip().lower()
    parts = [method.encode("latin-1"), path.rstrip(b"/"), query, media_type.encode("latin-1"), *_body(media_type, body)]
    digest = hashlib.sha256()
    for part in parts:
        # With its length in front no part can continue in the next one.
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


def _body(media_type: str, body: bytes) -> tuple[bytes, bytes]:
    if media_type == "application/json" or media_type.endswith("+json"):
        canonical = canonical_json(body)
        if canonical is not None:
            return b"json", canonical
    return b"bytes", body


def canonical_json(body: bytes) -> bytes | None:
    """The one way to write this document, None where it is no JSON or is nested too deep."""
    try:
        text = body.decode()
        if _depth(text) > JSON_DEPTH_MAX:
            return None
        document = json.loads(
            text, parse_int=_Number, parse_float=_Number, parse_constant=_Number, object_pairs_hook=_Object
        )
    except ValueError:
        return None
    return _written(document).encode()


def _depth(text: str) -> int:
    steps = (_STEP.get(found[0], 0) for found in _STRING_OR_BRACKET.finditer(text))
    return max(accumulate(steps), default=0)


def _written(value: Any) -> str:
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, _Object):
        # Sorting is stable: members of one name stay in the order in which they were written.
        members = sorted(value, key=lambda member: member[0])
        return "{" + ",".join(f"{json.dumps(name)}:{_written(member)}" for name, member in members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return json.dumps(value)
