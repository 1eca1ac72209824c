"""The databases of Django for the inbox and for the commands, and what the settings say of them in `SEMEL`."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError
from django.db import connections
from django.utils.module_loading import import_string
from sqlalchemy import URL, Connection, Engine

from semel.database import engine_of, within
from semel.http.django.atomic import transactions
from semel.http.django.configuration import chosen
from semel.outbox import Delivery

# What the setting SEMEL may have besides IDEMPOTENCY.
ALIAS: Final = "ALIAS"
KAFKA: Final = "KAFKA"
CELERY: Final = "CELERY"
BOOTSTRAP: Final = "bootstrap.servers"
_AN_APP: Final = "let it be the dotted name of a Celery app, such as 'project.celery.app'"
# What Django adds for its own cursors: the adapters of values, of which semel has its own.
_OF_CURSORS: Final = ("cursor_factory", "context")


def alias() -> str:
    """Where claims and messages are, unless the caller names another one."""
    return str(chosen(ALIAS, "default"))


def kafka(bootstrap: str | None = None) -> dict[str, Any]:
    """The settings of a client; the address may be another one."""
    settings = chosen(KAFKA, {})
    if not isinstance(settings, Mapping):
        raise ImproperlyConfigured(
            f"SEMEL['KAFKA'] is a {type(settings).__name__}: let it be a dict, by librdkafka's names"
        )
    found = {**settings, **({BOOTSTRAP: bootstrap} if bootstrap else {})}
    if not found.get(BOOTSTRAP):
        raise ImproperlyConfigured(f"SEMEL['KAFKA'] has no {BOOTSTRAP!r}: name a broker there, or pass --bootstrap")
    return found


def sends() -> dict[str, Callable[[Delivery], None]]:
    """What the relay sends through functions, by topic: tasks of Celery, if the settings name an app."""
    name = chosen(CELERY)
    if name is None:
        return {}
    from celery import Celery

    from semel.celery import TOPIC, LosesTasks, sender

    try:
        app = import_string(name)
        if not isinstance(app, Celery):
            raise TypeError(f"it is of the kind {type(app).__name__}")
        return {TOPIC: sender(app)}
    except LosesTasks as error:
        raise ImproperlyConfigured(str(error)) from error
    except Exception as error:
        # Whatever its module does.
        raise ImproperlyConfigured(f"SEMEL['CELERY'] is {name!r}, and cannot be used ({error}): {_AN_APP}") from error


def check_sends() -> None:
    """Refuse a task that no relay of the project would send."""
    if chosen(CELERY) is None:
        raise ImproperlyConfigured(f"SEMEL has no 'CELERY', so semel_relay would not send the task: {_AN_APP}")


class Database:
    """An alias in place of an engine: `begin` hands over the driver's connection, in a transaction of the ORM."""

    def __init__(self, using: str) -> None:
        self.using = using

    def begin(self) -> AbstractContextManager[Any]:
        return transactions(self.using)


class StatementsOf:
    """The same for semel's own statements between two events."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        with self._database.begin() as raw, within(raw) as connection:
            yield connection


def place_of(using: str) -> str:
    """The database of an alias, for a person: without the user and the password."""
    settings = connections[using].settings_dict
    host = f"{settings['HOST']}/" if settings["HOST"] else ""
    return f"{using!r} ({connections[using].vendor} {host}{settings['NAME']})"


def engine_for(using: str) -> Engine:
    """An engine of its own on the database of an alias, for what runs beside the application: with its threads, a relay
    could not share the connection of one."""
    connection = connections[using]
    if connection.in_atomic_block:
        raise CommandError(
            f"this command does not see the transaction that is open on {using!r}, and may wait for its end: "
            "call it after `atomic`, in a test in a TransactionTestCase"
        )
    if connection.vendor == "sqlite":
        if connection.is_in_memory_db():
            raise CommandError(
                f"the database {using!r} is in memory, and this command needs a connection of its own to it: let it "
                f"be a file, in tests by DATABASES[{using!r}]['TEST'] = {{'NAME': 'test.db'}}"
            )
        return engine_of(URL.create("sqlite", database=str(connection.settings_dict["NAME"])))
    import psycopg

    settings = {name: value for name, value in connection.get_connection_params().items() if name not in _OF_CURSORS}
    return engine_of("postgresql+psycopg://", creator=lambda: psycopg.connect(**settings))
