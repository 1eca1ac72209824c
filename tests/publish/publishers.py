"""What the tests of this room make publishers with."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from eventually import eventually
from semel.publish import Publisher, PublishFailed, PublishUncertain, Receipt, Record

Publishers = Callable[..., Publisher]
"""Makes a publisher of the test's name, with any options; each is a start of the program."""


def outcome_in_the_end(publisher: Publisher, number: int, record: Record) -> Receipt | None:
    """What came of a number once that is known: with a short timeout a busy machine may take several tries."""

    def once_more() -> Receipt | None:
        with contextlib.suppress(PublishFailed, PublishUncertain):
            return publisher.publish(number, record)
        return None

    return eventually(once_more)
