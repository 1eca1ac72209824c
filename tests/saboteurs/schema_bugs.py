"""The planted bugs of the tables' making."""

from typing import Final

from saboteurs.planting import Bug

_MAKING: Final = "tests/schema/test_making.py"

SCHEMA_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "tables are made without a lock",
        "semel.schema.tables:make",
        "dialect_of(connection).lock_until_end(connection, _LOCK)",
        "pass",
        (_MAKING, "-k", "many_at_once and postgresql"),
    ),
    Bug(
        "an older semel works with newer tables",
        "semel.schema.tables:_stored_version",
        "version is not None and version > room.version",
        "False",
        (_MAKING, "-k", "newer_tables and sqlite"),
    ),
    Bug(
        "a step that was taken is taken again",
        "semel.schema.tables:_bring",
        "room.steps[version - 1 :]",
        "room.steps[version - 2 :]",
        (_MAKING, "-k", "many_at_once and sqlite"),
    ),
    Bug(
        "tables of another shape pass for ours",
        "semel.schema.tables:_compare",
        "sorted(ours - there)",
        "()",
        (_MAKING, "-k", "nobody_knows_whom and sqlite"),
    ),
    Bug(
        "a new file is given up at the first lock",
        "semel.database.dialects.sqlite:_insist",
        "time.monotonic() >= until",
        "True",
        ("tests/database/test_engines.py",),
    ),
)
