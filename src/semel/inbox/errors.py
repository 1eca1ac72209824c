"""Why the inbox refuses something, each in one line that says what to do instead."""

from typing import Any


class UnusableId(ValueError):
    """The text cannot name an event: it is empty, too long, or no database would keep it as it is."""


class BrokerCoordinates(ValueError):
    """A place in a topic was given as the identity of an event."""

    def __init__(self, given: Any) -> None:
        shown = given if isinstance(given, str) else f"a {type(given).__module__}.{type(given).__qualname__}"
        super().__init__(
            f"{shown} is a place in a topic and no event: an event that its producer sends twice has two places, and "
            "would be taken for new twice; use the id that the producer gave it, or (aggregate, version)"
        )


class IdentityIsPlace(BrokerCoordinates):
    """The program makes its identities of places: a mistake of its own, for which no message is put aside."""


class HeadersUnreadable(ValueError):
    """Kafka takes any bytes for the name of a header, and its clients have only text."""

    def __init__(self) -> None:
        super().__init__("a header has a name that is not UTF-8, so its client can read none of them")


class RetentionTooShort(ValueError):
    """Claims would be thrown away that clocks which differ a little still need."""


class Unsettled(ValueError):
    """What was asked of a quarantined message cannot be done to it."""


class LoopFailed(RuntimeError):
    """A loop cannot begin or go on: its client is set wrongly, or the broker refuses it."""
