"""What the guide to the tables shows is what happens."""

from __future__ import annotations

import re
from pathlib import Path

from sqlalchemy import create_engine, inspect

from semel import schema
from semel.database import engine_of
from semel.testing.postgres import PostgresServer

GUIDE = (Path(__file__).parent.parent.parent / "docs/how-to/schema.md").read_text()


def test_another_schema_of_postgresql_is_chosen_as_the_guide_says(postgres: PostgresServer) -> None:
    [options] = re.findall(r"postgresql://host/app(\?\S+)`", GUIDE)
    url = postgres.new_database()
    plain = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with plain.begin() as connection:
        connection.exec_driver_sql("CREATE SCHEMA payments")
    joint = "&" if "?" in url else "?"
    schema.make(engine_of(url + options.replace("?", joint)), "http")
    assert "semel_http_keys" in inspect(plain).get_table_names(schema="payments")
    assert inspect(plain).get_table_names() == []
