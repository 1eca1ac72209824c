"""Makes, checks, empties or prints the tables of outbox, inbox, HTTP keys, steps and offsets in a user's database.

    schema.make(engine)                                        # at a start, in a test; or `semel schema --database URL`
    target_metadata = [Base.metadata, schema.metadata]         # in the env.py of Alembic
    schema.empty(engine)                                       # before a test whose database outlives its broker

If you use migrations, you can keep them: there is a MetaData for Alembic, and the SQL for other tools. This room must
never touch a table that is not semel's, nor drop one.
"""

import importlib.util

if importlib.util.find_spec("sqlalchemy") is None or importlib.util.find_spec("confluent_kafka") is None:
    raise ImportError("semel.schema needs SQLAlchemy and confluent-kafka, and one is missing: pip install 'semel[app]'")

from semel.schema.tables import Made, SchemaDiffers, UnknownRoom, check, ddl, empty, make, metadata

__all__ = ["Made", "SchemaDiffers", "UnknownRoom", "check", "ddl", "empty", "make", "metadata"]
