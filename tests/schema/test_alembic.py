"""Real Alembic, set as the guide shows, makes semel's tables, and finds nothing to do where they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from shapes import shape
from sqlalchemy import inspect

import forked
from semel import schema
from semel.database import engine_of

MODELS = """
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

class Base(DeclarativeBase):
    pass

class Payment(Base):
    __tablename__ = "payments"
    id: Mapped[int] = mapped_column(primary_key=True)
"""
GUIDE = (Path(__file__).parent.parent.parent / "docs/how-to/schema.md").read_text()
[TARGETS] = re.findall(r"^```\n(import semel\.schema\n.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


def alembic(folder: Path, *words: str) -> str:
    ran = forked.run("alembic", *words, folder=folder)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def project(folder: Path, url: str) -> Path:
    """As `alembic init` makes it, with what a user changes in it."""
    folder.mkdir()
    alembic(folder, "init", "migrations")
    ini, env = folder / "alembic.ini", folder / "migrations/env.py"
    ini.write_text(ini.read_text().replace("driver://user:pass@localhost/dbname", url))
    env.write_text(env.read_text().replace("target_metadata = None", TARGETS))
    (folder / "models.py").write_text(MODELS)
    return folder


@pytest.mark.parametrize("url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True)
def test_autogenerate_makes_the_tables_and_then_has_nothing_more_to_do(tmp_path: Path, url: str) -> None:
    folder, engine = project(tmp_path / "app", url.replace("postgresql://", "postgresql+psycopg://")), engine_of(url)
    alembic(folder, "revision", "--autogenerate", "-m", "semel")
    alembic(folder, "upgrade", "head")
    made_by_alembic = shape(engine)
    assert {table.name for table in schema.metadata.sorted_tables} < set(inspect(engine).get_table_names())
    schema.check(engine)
    assert "No new upgrade operations detected" in alembic(folder, "check")
    assert {made.tables for made in schema.make(engine)} == {()}
    assert "No new upgrade operations detected" in alembic(folder, "check")
    alembic(folder, "downgrade", "base")
    assert inspect(engine).get_table_names() == ["alembic_version"]
    schema.make(engine)
    made = shape(engine)
    assert {name: made_by_alembic[name] for name in made} == made
    alembic(folder, "stamp", "head")
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE payments (id INTEGER NOT NULL PRIMARY KEY)")
    assert "No new upgrade operations detected" in alembic(folder, "check")
