"""The planted bugs of the databases: here those that only a server of MySQL or MariaDB shows, or its own words."""

from typing import Final

from saboteurs.planting import Bug

_WORDS: Final = "tests/database/test_dialects.py"

DIALECT_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "a table is made in the middle of a claim's work",
        "semel.database.dialects.mysql:Mysql.commits_by_itself",
        "_KEEPS.match(statement) is None",
        "False",
        (_WORDS, "-k", "commits"),
    ),
    Bug(
        "a key that is too long is cut off",
        "semel.database.dialects.mysql:VARBINARY.bind_processor",
        "len(data) > self.length",
        "False",
        (_WORDS, "-k", "key"),
    ),
    Bug(
        "a deadlock does not pass",
        "semel.database.dialects.mysql:_CONFLICTS",
        "1213",
        "1212",
        (_WORDS, "-k", "passes"),
    ),
)
