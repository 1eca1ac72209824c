"""Finds the Idempotency that the settings of Django name, and the alias of its database. It must never make one."""

from functools import partial
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS
from django.utils.module_loading import import_string

from semel.http.django.atomic import transactions
from semel.http.idempotency import Idempotency

SETTING: Final = "SEMEL_IDEMPOTENCY"
_OF_WHAT: Final = "the dotted name of an Idempotency(transactions, scope=...)"


def configured() -> Idempotency:
    """The one that the settings name, if it works in transactions of Django."""
    name = getattr(settings, SETTING, None)
    if not isinstance(name, str):
        raise ImproperlyConfigured(f"the settings have no {SETTING}: let it be {_OF_WHAT}")
    try:
        found: Any = import_string(name)
    except ImportError as error:
        raise ImproperlyConfigured(
            f"{SETTING} is {name!r}, and cannot be imported ({error}): let it be {_OF_WHAT}"
        ) from error
    if not isinstance(found, Idempotency):
        raise ImproperlyConfigured(f"{SETTING} is {name!r}, which is a {type(found).__name__}: let it be {_OF_WHAT}")
    if alias_of(found) is None:
        raise ImproperlyConfigured(
            f"{name} does not work in a transaction of Django, so a key would not commit with what the ORM does: make "
            "it of semel.http.django.transactions, or of partial(transactions, ALIAS)"
        )
    return found


def alias_of(idempotency: Idempotency) -> str | None:
    """The alias in whose transactions the keys are; None if they are elsewhere."""
    database = idempotency.database
    if isinstance(database, partial) and database.func is transactions:
        return str((*database.args, *database.keywords.values(), DEFAULT_DB_ALIAS)[0])
    return str(DEFAULT_DB_ALIAS) if database is transactions else None
