"""All that a database says of its tables, to be compared with another's."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, Inspector, inspect, text


def shape(engine: Engine) -> dict[str, Any]:
    inspector = inspect(engine)
    return {
        name: (
            [(c["name"], str(c["type"]), c["nullable"], c["default"]) for c in inspector.get_columns(name)],
            inspector.get_pk_constraint(name)["constrained_columns"],
            _indexes(inspector, name),
            sorted(map(str, inspector.get_unique_constraints(name))),
            _never_gives_a_number_twice(engine, name),
        )
        for name in inspector.get_table_names()
    }


OPTIONS = "dialect_options"


def _indexes(inspector: Inspector, table: str) -> list[tuple[str, Any, str]]:
    """A condition is an object, which is equal to itself alone."""
    return sorted(
        (str(index["name"]), index["column_names"], str({k: str(v) for k, v in index.get(OPTIONS, {}).items()}))
        for index in inspector.get_indexes(table)
    )


def _never_gives_a_number_twice(engine: Engine, table: str) -> bool:
    if engine.dialect.name != "sqlite":
        return False
    with engine.connect() as connection:
        made_by = connection.scalar(text("SELECT sql FROM sqlite_master WHERE name = :table"), {"table": table})
    return "AUTOINCREMENT" in str(made_by)
