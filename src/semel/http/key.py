"""Reads the header `Idempotency-Key`: a string of RFC 8941 in quotes, or the bare name. Both are the same key.

Pure. What is neither is refused and never mended, or two requests could come to share a key that nobody chose.
"""

import re
from collections.abc import Sequence
from typing import Final

KEY_HEADER: Final = "idempotency-key"
# What the practice of payment interfaces allows, and every index of a database holds.
KEY_CHARACTERS_MAX: Final = 255

# Printable ASCII; inside, a quote and a backslash stand behind a backslash.
_QUOTED: Final = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
# Without quotes nothing may be in it that would separate, quote or escape: a comma is where two headers were joined.
_BARE: Final = re.compile(r"[!#-+\--:<-\[\]-~]+")
_ESCAPED: Final = re.compile(r"\\(.)")


class KeyMalformed(ValueError):
    """The header names no key; the message says why, to whoever sent it."""


def read_key(fields: Sequence[str]) -> str | None:
    """The key that the header's fields name, None where there is no such header."""
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
