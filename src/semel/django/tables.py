"""The operation of the migrations: it makes the tables, or brings them up to date, by `semel.schema`.

Its state is that of the models, which are made of the same declarations: so a later semel needs a migration of its own
for new steps of the tables, and `makemigrations` never finds anything. It must never drop a table: with the claims,
effects would be forgotten, and done again.
"""

from typing import Any

from django.db import router
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ModelState

from semel import schema
from semel.database.connections import borrowed


class MakeTables(Operation):  # type: ignore[misc]
    reversible = False

    def state_forwards(self, app_label: str, state: Any) -> None:
        from semel.django.models import MODELS

        for model in MODELS.values():
            state.add_model(ModelState.from_model(model))

    def database_forwards(self, app_label: str, editor: Any, _before: Any, _after: Any) -> None:
        from semel.django.models import ROOMS

        connection = editor.connection
        if not router.allow_migrate(connection.alias, app_label):
            return
        if editor.collect_sql:
            editor.collected_sql.append(schema.ddl(connection.vendor, *ROOMS))
            return
        connection.ensure_connection()
        with borrowed(connection.connection) as lent:
            schema.make(lent, *ROOMS)

    def database_backwards(self, app_label: str, editor: Any, _before: Any, _after: Any) -> None:
        """Never called."""

    def describe(self) -> str:
        return "Make the tables of semel, or bring them up to date"
