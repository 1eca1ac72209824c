"""Keys for outgoing calls, derived from what the call is for: the same wherever and whenever it is made again. Pure."""

import hashlib


def derived_key(*parts: str) -> str:
    """The SHA-256, in hexadecimal digits, of the texts in UTF-8, each after its length in four bytes (most significant
    first), so that no two lists of texts run together."""
    encoded = [part.encode() for part in parts]
    return hashlib.sha256(b"".join(len(part).to_bytes(4) + part for part in encoded)).hexdigest()
