"""Django on a database of a test: its settings, which it takes once for the process, an alias, and a model."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Column, Engine, Integer, MetaData, Table, Text, func, select

# What the handlers and tasks of tests write, a row for each time.
effects = Table(
    "effects", MetaData(), Column("number", Integer, primary_key=True), Column("name", Text, nullable=False)
)


def configure() -> None:
    import django
    from django.conf import settings

    if not settings.configured:
        apps = ["django.contrib.contenttypes", "django.contrib.auth", "semel.django"]
        options: dict[str, Any] = {"SECRET_KEY": "test", "LOGGING_CONFIG": None, "INSTALLED_APPS": apps}
        settings.configure(ROOT_URLCONF="django_shop", ALLOWED_HOSTS=["*"], **options)
        django.setup()


@contextlib.contextmanager
def alias_of(engine: Engine) -> Iterator[str]:
    """The name of the engine's database as one of Django's."""
    configure()
    from django import VERSION
    from django.db import connections

    name = f"shop_{uuid.uuid4().hex}"
    url = engine.url
    if engine.dialect.name == "sqlite":
        options = {"transaction_mode": "IMMEDIATE", "timeout": 30} if VERSION >= (5, 1) else {"timeout": 30}
        settings = {"ENGINE": "django.db.backends.sqlite3", "NAME": url.database, "OPTIONS": options}
    else:
        settings = {"ENGINE": "django.db.backends.postgresql", "NAME": url.database, "USER": url.username or ""}
        settings |= {"HOST": url.host or "", "PORT": url.port or "", "PASSWORD": url.password or ""}
    connections.settings[name] = connections.configure_settings({"default": {}, name: settings})[name]
    try:
        yield name
    finally:
        connections[name].close()
        del connections[name], connections.settings[name]


def count(engine: Engine, table: Table = effects) -> int:
    with engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(table)) or 0


def model_on(alias: str, table: str = "payments", column: str = "amount") -> Any:
    """The objects of a model with one column, on this database."""
    from django.db import models

    meta = type("Meta", (), {"app_label": f"shop_{uuid.uuid4().hex}", "db_table": table, "managed": False})
    columns = {column: models.CharField(max_length=100)}
    if table == "effects":
        columns["number"] = models.BigAutoField(primary_key=True)
    model: Any = type("Row", (models.Model,), {"__module__": __name__, "Meta": meta, **columns})
    return model.objects.using(alias)
