"""The principal of a connection: the name that its client has proved. How it proved it is not known here."""

from typing import Final, NamedTuple

USER: Final = "User"


class Principal(NamedTuple):
    """A type and a name, such as `User:app`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


# The principal of a client that has not logged in.
ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
