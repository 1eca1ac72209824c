"""What `manage.py check` finds: settings with which claim and effect would not commit together, or answers would be
wrong.

Each says what to do. Only `manage.py check --deploy` uses the database.
"""

import difflib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router
from django.db.utils import DatabaseError

from semel import schema
from semel.database.connections import borrowed
from semel.database.dialects.sqlite import BUSY_TIMEOUT_MS
from semel.django.aliases import ALIAS, CELERY, KAFKA, alias, sends
from semel.django.models import ROOMS
from semel.http.django.configuration import IDEMPOTENCY, SETTINGS, alias_of, chosen, configured

_OURS: Final = "semel.http.django.middleware.IdempotencyMiddleware"
# What has to stand above: without a user nobody knows whose key it is, and an answer in one client's encoding, language
# or for one origin would be kept for all.
_ABOVE: Final = (
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.middleware.gzip.GZipMiddleware",
    "django.middleware.http.ConditionalGetMiddleware",
    "corsheaders.middleware.CorsMiddleware",
)
# Applications whose rows may lie elsewhere: a view under a key seldom writes them.
_OF_OTHERS: Final = ("django.contrib.", "semel.")
_SHOWN_MAX: Final = 3
_KNOWN: Final = (ALIAS, CELERY, IDEMPOTENCY, KAFKA)
# Below it, requests, consumer and relay are seen to refuse each other their turn at the one writer.
_TIMEOUT_SECONDS_MIN: Final = 20


@register("semel")  # type: ignore[untyped-decorator]
def check_settings(**_more: Any) -> Sequence[CheckMessage]:
    try:
        sends()
        return [*_of_names(), *_of_keys(), *_of_database(alias())]
    except ImproperlyConfigured as error:
        return [Error(str(error), hint="see semel's page on Django", id="semel.E003")]


def _of_names() -> Iterator[CheckMessage]:
    for name in getattr(settings, SETTINGS, {}):
        if name not in _KNOWN:
            close = difflib.get_close_matches(str(name).upper(), _KNOWN, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(_KNOWN)}"
            yield Error(f"{SETTINGS} has no setting {name!r}", hint=hint, id="semel.E014")


def _of_keys() -> Iterator[CheckMessage]:
    if _OURS not in settings.MIDDLEWARE:
        if chosen(IDEMPOTENCY) is not None:
            yield Warning("no request has a key", hint=f"put {_OURS!r} into MIDDLEWARE", id="semel.W001")
        return
    place = settings.MIDDLEWARE.index(_OURS)
    for other in _ABOVE:
        if other in settings.MIDDLEWARE[place:]:
            yield Error(f"{other} is below the middleware of the keys", hint="put it above", id="semel.E002")
    using = str(alias_of(configured()))
    if using not in connections.settings or using != alias():
        yield from _of_database(using)
    yield from _of_models(using)
    for name in connections.settings:
        if connections.settings[name]["ATOMIC_REQUESTS"]:
            yield Warning(
                f"{name!r} has ATOMIC_REQUESTS, so a view under a key has a transaction of its own: what it undoes "
                "without an error, as Django REST Framework does for each refusal, is an error of the request",
                hint="set it to False, and write transaction.atomic() where a request without a key needs it",
                id="semel.W008",
            )


def _of_models(using: str) -> Iterator[CheckMessage]:
    if using not in connections.settings:
        return
    own = [model for model in apps.get_models() if not model.__module__.startswith(_OF_OTHERS)]
    elsewhere = [model._meta.label for model in own if model._meta.managed and router.db_for_write(model) != using]
    if elsewhere:
        shown = ", ".join(elsewhere[:_SHOWN_MAX])
        yield Warning(
            f"the keys are in {using!r}, and these models are written elsewhere: {shown}"
            + (" and others" if len(elsewhere) > _SHOWN_MAX else ""),
            hint="a view under a key may not write them: pass partial(transactions, ALIAS) with their alias",
            id="semel.W009",
        )


def _of_database(using: str) -> Iterator[CheckMessage]:
    if using not in connections.settings:
        yield Error(f"DATABASES has no alias {using!r}, which semel has to use", hint="correct it", id="semel.E004")
        return
    database, connection = connections.settings[using], connections[using]
    if connection.vendor not in ("postgresql", "sqlite"):
        yield Error(
            f"semel has to use {using!r}, which is of {connection.vendor}",
            hint="take an alias on PostgreSQL or SQLite",
            id="semel.E005",
        )
    if connection.vendor == "postgresql" and connection.Database.__name__ != "psycopg":
        yield Error(
            f"{using!r} is reached by {connection.Database.__name__}, which semel does not know",
            hint="pip install 'semel[postgres]', and Django takes psycopg",
            id="semel.E010",
        )
    if connection.vendor == "sqlite":
        yield from _of_sqlite(using, database["OPTIONS"])
    if not database["AUTOCOMMIT"]:
        yield Error(
            f"{using!r} has AUTOCOMMIT off, so semel cannot begin a transaction of its own",
            hint="leave it on, as Django does by default",
            id="semel.E007",
        )


def _of_sqlite(using: str, options: Any) -> Iterator[CheckMessage]:
    if str(options.get("transaction_mode")).upper() != "IMMEDIATE":
        yield Error(
            f"transactions of {using!r} begin as readers, and fail when somebody else writes",
            hint='set "OPTIONS": {"transaction_mode": "IMMEDIATE"}, for which SQLite needs Django 5.1',
            id="semel.E006",
        )
    if options.get("timeout", 0) < _TIMEOUT_SECONDS_MIN:
        yield Warning(
            f"{using!r} waits only some seconds for its one writer, while requests, a consumer and a relay may write",
            hint=f'set "OPTIONS": {{"timeout": {BUSY_TIMEOUT_MS // 1000}}}',
            id="semel.W011",
        )


@register("semel", deploy=True)  # type: ignore[untyped-decorator]
def check_tables(**_more: Any) -> Sequence[CheckMessage]:
    """Whether the tables are there, as this semel needs them, in each database that is used."""
    try:
        keys = {str(alias_of(configured()))} if _OURS in settings.MIDDLEWARE else set()
        names = {alias(), *keys} & set(connections.settings)
    except ImproperlyConfigured:
        return []
    return [error for name in sorted(names) for error in _of_tables(name)]


def _of_tables(using: str) -> Iterator[CheckMessage]:
    connection = connections[using]
    try:
        connection.ensure_connection()
        with borrowed(connection.connection) as lent:
            schema.check(lent, *ROOMS)
    except DatabaseError as error:
        yield Error(f"{using!r} cannot be asked for its tables: {error}", hint="start it", id="semel.E012")
    except schema.SchemaDiffers as error:
        hint = f"run manage.py migrate semel --database {using}"
        yield Error(str(error).partition(":")[0], hint=hint, id="semel.E013")
