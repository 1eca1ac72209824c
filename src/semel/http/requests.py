"""What identifies a request: its key, and the fingerprint that shows whether two requests with one key are the same.

Pure. The header `Idempotency-Key` holds a string of RFC 8941 in quotes, or the bare name; both are the same key. Any
other header is refused and never corrected, because two requests could then share a key that neither chose.

A fingerprint covers method, path, query and body, without any loss. JSON is compared as it was written, except for
white space, the order of keys and how a character is escaped. A number counts as its text, so 1.0 and
1.00000000000000001 differ, and a repeated key counts each time. Any other body counts by its bytes. A slash at the end
of a path does not count: frameworks redirect a client between the two forms, and a retry may use the other one. The
fingerprint may depend only on the request, because otherwise a retry would be another request.
"""

import hashlib
import json
import re
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

# -- the key -----------------------------------------------------------------------------------------------------------


KEY_HEADER: Final = "idempotency-key"
# As long as payment interfaces usually allow, and short enough for the index of every database.
KEY_CHARACTERS_MAX: Final = 255

# Printable ASCII; inside, a backslash comes before each quote and each backslash.
_QUOTED: Final = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
# A bare name may not contain a character that separates, quotes or escapes: a comma shows that two headers were joined.
_BARE: Final = re.compile(r"[!#-+\--:<-\[\]-~]+")
_ESCAPED: Final = re.compile(r"\\(.)")


class KeyMalformed(ValueError):
    """The header contains no valid key; the message tells the sender why."""


def read_key(fields: Sequence[str]) -> str | None:
    """The key in the header's fields; None if there is no such header."""
    if not fields:
        return None
    if len(fields) > 1:
        raise KeyMalformed(f"there are {len(fields)} headers Idempotency-Key; send one")
    key = _unquoted(fields[0].strip(" \t"))
    if not key:
        raise KeyMalformed("the key is empty")
    if len(key) > KEY_CHARACTERS_MAX:
        raise KeyMalformed(f"the key has {len(key)} characters; at most {KEY_CHARACTERS_MAX} are allowed")
    return key


def _unquoted(field: str) -> str:
    quoted = _QUOTED.fullmatch(field)
    if quoted is not None:
        return _ESCAPED.sub(r"\1", quoted[1])
    if field and _BARE.fullmatch(field) is None:
        raise KeyMalformed(
            'the key is neither a string in quotes, such as "8e03978e", nor a bare name of ASCII letters'
        )
    return field


# -- the fingerprint ---------------------------------------------------------------------------------------------------


# JSON that is nested deeper counts by its bytes, so that no document can exhaust the stack. Few documents are 20 deep.
JSON_DEPTH_MAX: Final = 100

# A string without an end matches to the end of the text; otherwise the search would start again at each quote in it.
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_BRACKETS: Final = b"[{]}"
_NO_BRACKETS: Final = bytes(set(range(256)) - set(_BRACKETS))
# One level down or up, as signed bytes.
_LEVELS: Final = bytes.maketrans(_BRACKETS, b"\x01\x01\xff\xff")
# The number of levels that are added up in one call, during which no other thread runs.
_LEVELS_AT_ONCE: Final = 65_536
# How a number begins that the standard library has written as a string.
_NUMBER_BEGINS: Final = '"\\u0000'
_BACKSLASH_ESCAPE: Final = "\\\\"


class _Number(str):
    """A number, as its text."""


class _Object(tuple[tuple[str, Any], ...]):
    """The members of an object, including repeated ones."""


def fingerprint(method: str, path: bytes, query: bytes, content_type: str, body: bytes) -> str:
    """A digest of the request, in hexadecimal digits."""
    media_type = content_type.partition(";")[0].strip().lower()
    parts = [method.encode("latin-1"), path.rstrip(b"/"), query, media_type.encode("latin-1"), *_body(media_type, body)]
    digest = hashlib.sha256()
    for part in parts:
        # The length before each part keeps its border with the next one.
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
    """The canonical text of this document; None if it is no JSON or is nested too deep.

    A document of a megabyte takes some hundredths of a second, because the parser and the writer of the standard
    library do nearly all the work: each number becomes a string that begins with NUL. They cannot tell such a number
    from a string that begins with NUL, and keep one member of those with one name; such a document is written member
    by member.
    """
    try:
        text = body.decode()
        if _is_too_deep(text):
            return None
        escapes = text.replace(_BACKSLASH_ESCAPE, "")
        marked = "\0".__add__
        document = json.loads(text, parse_int=marked, parse_float=marked, parse_constant=marked)
        canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
        # Fewer strings than in the text: a member was left out, or a string passed for a number.
        numbers = canonical.count(_NUMBER_BEGINS)
        if _quotes(canonical.replace(_BACKSLASH_ESCAPE, "")) - 2 * numbers == _quotes(escapes):
            return canonical.encode()
        document = json.loads(
            text, parse_int=_Number, parse_float=_Number, parse_constant=_Number, object_pairs_hook=_Object
        )
    except ValueError:
        return None
    # The line's end keeps it apart from every text of the other kind.
    return b"\n" + _written(document).encode()


def _quotes(text: str) -> int:
    """How many quotes begin and end a string, in a text from which escaped backslashes were removed."""
    return text.count('"') - text.count('\\"')


def _is_too_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= JSON_DEPTH_MAX:
        return False
    steps = array("b", _STRING.sub("", text).encode().translate(_LEVELS, _NO_BRACKETS))
    depth = 0
    for start in range(0, len(steps), _LEVELS_AT_ONCE):
        levels = list(accumulate(steps[start : start + _LEVELS_AT_ONCE], initial=depth))
        if max(levels) > JSON_DEPTH_MAX:
            return True
        depth = levels[-1]
    return False


def _written(value: Any) -> str:
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, _Object):
        # Sorting is stable: members with the same name stay in their order.
        members = sorted(value, key=lambda member: member[0])
        return "{" + ",".join(f"{json.dumps(name)}:{_written(member)}" for name, member in members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_written, value)) + "]"
    return json.dumps(value)
