"""Says in words why OpenSSL does not take a certificate and its key. Of files that are empty or cut off it says only
"PEM lib", and not which of the two it means. This module must never put what a file holds into an error.
"""

import re
import ssl
from typing import Final

_CERTIFICATE: Final = re.compile(rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----.+?-----END ", re.DOTALL)
_KEY: Final = re.compile(rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----.+?-----END ", re.DOTALL)
_REASONS: Final = {
    "KEY_VALUES_MISMATCH": "the key is not that of the certificate",
    "NO_CERTIFICATE_OR_CRL_FOUND": "there is no certificate in it",
}
_DAMAGED: Final = "PEM lib"


def why_refused(error: Exception, certificate: bytes | None = None, key: bytes = b"") -> str:
    """The reason of this error, for the contents of the two files; without them, for a file of authorities."""
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError):
        return error.strerror or str(error)
    reason = str(getattr(error, "reason", None) or error)
    if reason in _REASONS:
        return _REASONS[reason]
    if certificate is not None and not _CERTIFICATE.search(certificate):
        return "the certificate is missing or cut off"
    if certificate is not None and not _KEY.search(key):
        return "the private key is missing or cut off"
    if b"ENCRYPTED" in key:
        return "the key is encrypted, and the password is missing or wrong"
    return "a part of it is cut off or damaged" if _DAMAGED in reason else reason
