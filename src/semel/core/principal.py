"""The principal of a connection: under which name its client has logged in. How it proved that is not known here."""

from typing import Final, NamedTuple

USER: Final = "User"


class Principal(NamedTuple):
    """A type and a name, such as `User:app`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


# A client that has not said who it is.
ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
