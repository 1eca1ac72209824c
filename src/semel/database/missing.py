"""What to do where semel's tables are not there: said beside the database's own error, and never instead of it."""

from typing import Any, Final

from sqlalchemy.exc import DBAPIError

# With the real command and without the real URL, in which there may be a password.
REMEDY: Final = "make semel's tables by: semel schema --database URL"
_POSTGRESQL_UNDEFINED_TABLE: Final = "42P01"


def is_missing_table(error: DBAPIError) -> bool:
    """Whether it is a table of semel's that is not there. What PostgreSQL says depends on its language."""
    raised: Any = error.orig
    undefined = getattr(raised, "sqlstate", None) == _POSTGRESQL_UNDEFINED_TABLE
    return (undefined or "no such table" in str(raised)) and "semel_" in str(raised)


def add_remedy(error: DBAPIError) -> None:
    """Have a traceback end with what to do."""
    if is_missing_table(error) and REMEDY not in getattr(error, "__notes__", ()):
        error.add_note(REMEDY)
