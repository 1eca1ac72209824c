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
        (_WORDS, "-k", "known_to_commit"),
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
    Bug(
        "a number of too many bits becomes another one",
        "semel.database.dialects.mysql:BIGINT.bind_processor",
        "-(2**63) <= value < 2**63",
        "True",
        (_WORDS, "-k", "bits"),
    ),
)
