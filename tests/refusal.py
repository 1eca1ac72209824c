"""What a rule refuses, and with which error of the protocol."""

import pytest

from semel.wire.refusals import Refused


def refused(error: int, match: str | None = None) -> "pytest.RaisesExc[Refused]":
    """A block that has to be refused with this error, and a message that matches."""
    return pytest.raises(Refused, match=match, check=lambda refusal: refusal.error == error)
