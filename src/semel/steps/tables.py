"""The tables of recorded steps: one row for each step that was finished, and one for each workflow.

Times are in milliseconds since 1970. HTTP keys and workflows share the table of steps: the scope of a step is the
digest of a caller, or WORKFLOWS, which is none.
"""

from typing import Final

from sqlalchemy import Column, Index, MetaData, Table

from semel.database.columns import INTEGER, TEXT, key, with_options

# At four bytes for each character.
NAME_BYTES_MAX: Final = 1020

metadata: Final = MetaData()

# The scope of all workflows.
WORKFLOWS: Final = "workflow"

steps: Final = Table(
    "semel_steps",
    metadata,
    Column("scope", key(64), primary_key=True),
    # The key of a request, or the id of a workflow.
    Column("key", key(NAME_BYTES_MAX), primary_key=True),
    Column("step", key(NAME_BYTES_MAX), primary_key=True),
    # As JSON; empty while a step whose call takes no key is running.
    Column("result", TEXT, nullable=False),
)

workflows: Final = Table(
    "semel_workflows",
    metadata,
    Column("id", key(NAME_BYTES_MAX), primary_key=True),
    # The name of its function.
    Column("workflow", TEXT, nullable=False),
    Column("queue", key(NAME_BYTES_MAX), nullable=False),
    Column("state", key(32), nullable=False),
    # From when on a worker may take it: the time for which it waits, or the end of its holder's lease; null at its end.
    Column("due_ms", INTEGER),
    # Begins at a random number, rises with each holder, and fences the earlier ones.
    Column("token", INTEGER, nullable=False),
    # How often it was begun since it last waited or was resumed.
    Column("attempts", INTEGER, nullable=False),
    Column("deadline_ms", INTEGER),
    # The arguments as a JSON list; the result as JSON, or what the error says.
    Column("arguments", TEXT, nullable=False),
    Column("result", TEXT),
    # From this step on, the next run does all of them again.
    Column("again_from", TEXT),
    Column("added_ms", INTEGER, nullable=False),
    Column("ended_ms", INTEGER),
)
Index("semel_workflows_due", workflows.c.queue, workflows.c.state, workflows.c.due_ms)
Index("semel_workflows_ended", workflows.c.ended_ms)
with_options(metadata)
