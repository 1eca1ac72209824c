"""What a database says of an error: in one line for people, and by SQLite's numbers for rules."""

from typing import Final

from sqlalchemy.exc import DBAPIError

# The rest of a number says more of the same.
_PRIMARY_CODE: Final = 0xFF


def one_line(error: Exception) -> str:
    said = error.orig if isinstance(error, DBAPIError) else error
    return str(said).strip().partition("\n")[0]


def sqlite_code(raised: BaseException | None) -> int | None:
    """The primary code of the driver's own exception; None where SQLite has not raised it."""
    code: int | None = getattr(raised, "sqlite_errorcode", None)
    return None if code is None else code & _PRIMARY_CODE
