"""What the settings of Django say of semel: among it the Idempotency and the alias of its database. It must never make
one."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS
from django.utils.module_loading import import_string

from semel.http.django.atomic import transactions
from semel.http.idempotency import Idempotency

SETTINGS: Final = "SEMEL"
IDEMPOTENCY: Final = "IDEMPOTENCY"
_OF_WHAT: Final = "the dotted name of an Idempotency(transactions, scope=...)"
_SHOWN: Final = f"{SETTINGS}[{IDEMPOTENCY!r}]"


def chosen(name: str, default: Any = None) -> Any:
    """What the settings of the project say of semel."""
    settings_of_semel = getattr(settings, SETTINGS, {})
    if not isinstance(settings_of_semel, Mapping):
        raise ImproperlyConfigured(f"the setting {SETTINGS} is a {type(settings_of_semel).__name__}: let it be a dict")
    return settings_of_semel.get(name, default)


def configured() -> Idempotency:
    """The one that the settings name, if it works in transactions of Django, whose tables the project has."""
    name = chosen(IDEMPOTENCY)
    if not isinstance(name, str):
        raise ImproperlyConfigured(f"the settings have no {_SHOWN}: let it be {_OF_WHAT}")
    try:
        found: Any = import_string(name)
    except Exception as error:
        # Whatever the module does: an Idempotency without a scope is refused when it is made.
        raise ImproperlyConfigured(
            f"{_SHOWN} is {name!r}, and cannot be imported ({error}): let it be {_OF_WHAT}"
        ) from error
    if not isinstance(found, Idempotency):
        raise ImproperlyConfigured(f"{_SHOWN} is {name!r}, which is a {type(found).__name__}: let it be {_OF_WHAT}")
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
