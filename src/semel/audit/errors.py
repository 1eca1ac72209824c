"""The error of an audit that can give no verdict: one line that says what to change."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Final

NAMES_SHOWN_MAX: Final = 20


class AuditFailed(Exception):
    """No verdict: something could not be read, or was named wrongly. The message is one line, for a person."""


def meant(name: str, known: Iterable[str]) -> str:
    """Which name was probably meant, as the end of a sentence; if none is near, which names there are."""
    names = sorted(known)
    if near := near_to(name, names):
        return near
    more = ", ..." if len(names) > NAMES_SHOWN_MAX else ""
    return f": there are {', '.join(names[:NAMES_SHOWN_MAX])}{more}" if names else ""


def near_to(name: str, names: Sequence[str]) -> str:
    """Which of these was probably meant, as the end of a sentence; empty if none is near."""
    # Of "ident" the beginning is "id", although "cents" has more of its letters.
    begun = [one for one in names if one and (name.startswith(one) or one.startswith(name))]
    close = difflib.get_close_matches(name, begun, n=1, cutoff=0) or difflib.get_close_matches(name, names, n=1)
    return f"; was {close[0]!r} meant?" if close else ""


def failed(name: object, error: object) -> AuditFailed:
    """What a library says of this place, in one line."""
    return AuditFailed(f"{name}: {' '.join(str(error).split())}")
