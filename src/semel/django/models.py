"""The tables as models, made of the declarations of `semel.schema`, so that Django's tests empty them and admin pages
show them. Nobody else writes through these: claims and messages are written by the rooms that have the rules.
"""

from typing import Any, Final

from django.db import models
from sqlalchemy import BigInteger, Column, Integer, LargeBinary, Table, Text

from semel.schema.tables import rooms_named

# The rooms whose tables the application has.
ROOMS: Final = ("outbox", "inbox", "http")
_FIELDS: Final = {
    Text: models.TextField,
    BigInteger: models.BigIntegerField,
    Integer: models.IntegerField,
    LargeBinary: models.BinaryField,
}


def _field_of(column: Column[Any], **options: Any) -> Any:
    if options.get("primary_key") and column.autoincrement is True:
        return models.BigAutoField(**options)
    return _FIELDS[type(column.type)](null=bool(column.nullable), **options)


def _model_of(table: Table) -> Any:
    """On Django before 5.2, which knows no keys of several columns, the last one stands for the key: migrations make
    the tables without looking at the models."""
    key = [column.name for column in table.primary_key.columns]
    is_composite = len(key) > 1 and hasattr(models, "CompositePrimaryKey")
    fields: dict[str, Any] = {"pk": models.CompositePrimaryKey(*key)} if is_composite else {}
    for column in table.columns:
        options = {"primary_key": True} if column.name == key[-1] and not is_composite else {}
        fields[column.name] = _field_of(column, **options)
    name = "".join(part.capitalize() for part in table.name.split("_")[1:])
    meta = type("Meta", (), {"app_label": "semel", "db_table": table.name})
    return type(name, (models.Model,), {"__module__": __name__, "Meta": meta, **fields})


MODELS: Final = {table.name: _model_of(table) for room in rooms_named(ROOMS) for table in room.tables}
# Under their names, by which Django's shell imports them.
globals().update({model.__name__: model for model in MODELS.values()})
