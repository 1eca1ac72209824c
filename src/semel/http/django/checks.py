"""What `manage.py check` finds: settings with which a key would not commit with its effect, or answers would be wrong.

Each says what to do. A check must never use the database.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from semel.http.django.configuration import SETTING, alias_of, configured

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


@register("semel")  # type: ignore[untyped-decorator]
def check_settings(**_more: Any) -> Sequence[CheckMessage]:
    return list(_found())


def _found() -> Iterator[CheckMessage]:
    if _OURS not in settings.MIDDLEWARE:
        yield Warning("no request has a key", hint=f"put {_OURS!r} into MIDDLEWARE", id="semel.W001")
        return
    place = settings.MIDDLEWARE.index(_OURS)
    for other in _ABOVE:
        if other in settings.MIDDLEWARE[place:]:
            yield Error(f"{other} is below the middleware of the keys", hint="put it above", id="semel.E002")
    try:
        alias = alias_of(configured())
    except ImproperlyConfigured as error:
        yield Error(str(error), hint=f"see {SETTING} in semel's page on Django", id="semel.E003")
        return
    yield from _of_database(str(alias))


def _of_database(alias: str) -> Iterator[CheckMessage]:
    if alias not in connections.settings:
        yield Error(f"DATABASES has no alias {alias!r}, in which the keys are", hint="correct it", id="semel.E004")
        return
    database, vendor = connections.settings[alias], connections[alias].vendor
    if vendor not in ("postgresql", "sqlite"):
        yield Error(
            f"the keys are in {alias!r}, which is of {vendor}",
            hint="take an alias on PostgreSQL or SQLite",
            id="semel.E005",
        )
    if vendor == "sqlite" and str(database["OPTIONS"].get("transaction_mode")).upper() != "IMMEDIATE":
        yield Error(
            f"transactions of {alias!r} begin as readers, and fail when somebody else writes",
            hint='set "OPTIONS": {"transaction_mode": "IMMEDIATE"}',
            id="semel.E006",
        )
    if not database["AUTOCOMMIT"]:
        yield Error(
            f"{alias!r} has AUTOCOMMIT off, so the middleware cannot begin a transaction of its own",
            hint="leave it on, as Django does by default",
            id="semel.E007",
        )
