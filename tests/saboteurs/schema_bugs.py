"""The planted bugs of the tables' making, as those of the broker in `bugs.py`."""

from typing import Final

from bugs import Bug

_MAKING: Final = "tests/schema/test_making.py"

SCHEMA_BUGS: Final[tuple[Bug, ...]] = (
    Bug(
        "tables are made without a lock",
        "semel.schema.making",
        "            connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))\n",
        "            connection.execute(select(_LOCK))\n",
        (_MAKING, "-k", "many_at_once and postgresql"),
    ),
    Bug(
        "an older semel works with newer tables",
        "semel.schema.making",
        "    if noted is not None and noted > room.version:\n",
        "    if False:\n",
        (_MAKING, "-k", "newer_tables and sqlite"),
    ),
    Bug(
        "a step that was taken is taken again",
        "semel.schema.making",
        "        for step in room.steps[noted - 1 :]:\n",
        "        for step in room.steps[noted - 2 :]:\n",
        (_MAKING, "-k", "many_at_once and sqlite"),
    ),
    Bug(
        "tables of another shape pass for ours",
        "semel.schema.making",
        "        for column in sorted(ours - there):\n",
        "        for column in ():\n",
        (_MAKING, "-k", "nobody_knows_whom and sqlite"),
    ),
    Bug(
        "a new file is given up at the first lock",
        "semel.database.engines",
        " or time.monotonic() >= until:\n",
        " or True:\n",
        ("tests/database/test_engines.py",),
    ),
)
