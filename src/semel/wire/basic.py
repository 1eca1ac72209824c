"""A name and a password over HTTP (RFC 7617): as a client sends them, and as a server compares them."""

import base64
import hmac
from typing import NamedTuple


class BasicLogin(NamedTuple):
    """A login."""

    name: str
    password: str

    @property
    def header(self) -> str:
        """The value of its `Authorization` header."""
        return f"Basic {base64.b64encode(f'{self.name}:{self.password}'.encode()).decode()}"

    def is_in(self, headers: dict[str, str]) -> bool:
        """Whether a request with these headers has this login."""
        _, _, expected = self.header.partition(" ")
        scheme, _, credentials = headers.get("authorization", "").partition(" ")
        sent_credentials = credentials.strip().encode(errors="replace")
        return scheme.lower() == "basic" and hmac.compare_digest(sent_credentials, expected.encode())
