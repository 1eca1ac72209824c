"""Keys for outgoing calls, derived from the purpose of the call: the same in every process and each time the call is
repeated; and whether a text has bytes of which a key can be made. Pure."""

import hashlib


def derived_key(*parts: str) -> str:
    """The SHA-256, in hexadecimal digits, of the texts in UTF-8, each after its length in four bytes (most significant
    first), so that no two lists of texts give the same bytes."""
    encoded = [part.encode() for part in parts]
    return hashlib.sha256(b"".join(len(part).to_bytes(4) + part for part in encoded)).hexdigest()


def is_unicode(text: str) -> bool:
    """Whether the text can be encoded: JSON can write half of a character, and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
