"""Makes, checks or prints the tables of outbox, inbox, HTTP keys and offsets in an application's database.

    schema.make(engine)                                        # at a start, in a test; or `semel schema --database URL`
    target_metadata = [Base.metadata, schema.metadata]         # in the env.py of Alembic

If you use migrations, you can keep them: there is a MetaData for Alembic, and the SQL for other tools. This room must
never touch a table that is not semel's, nor delete one.
"""

import importlib.util

if importlib.util.find_spec("sqlalchemy") is None or importlib.util.find_spec("confluent_kafka") is None:
    raise ImportError("semel.schema needs SQLAlchemy and confluent-kafka, and one is missing: pip install 'semel[app]'")

from semel.schema.tables import Made, SchemaDiffers, UnknownRoom, check, ddl, make, metadata

__all__ = ["Made", "SchemaDiffers", "UnknownRoom", "check", "ddl", "make", "metadata"]
