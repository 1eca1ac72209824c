"""The error of an audit that can give no verdict: one line that says what to change."""

import difflib
from collections.abc import Iterable
from typing import Final

NAMES_SHOWN_MAX: Final = 20


class AuditFailed(Exception):
    """No verdict: something could not be read, or was named wrongly. The message is one line, for a person."""


def meant(name: str, known: Iterable[str]) -> str:
    """Which name was probably meant, as the end of a sentence; if none is near, which names there are."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"; was {close[0]!r} meant?"
    more = ", ..." if len(names) > NAMES_SHOWN_MAX else ""
    return f": there are {', '.join(names[:NAMES_SHOWN_MAX])}{more}" if names else ""


def failed(name: object, error: object) -> AuditFailed:
    """What a library says of this place, in one line."""
    return AuditFailed(f"{name}: {' '.join(str(error).split())}")
