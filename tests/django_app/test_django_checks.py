"""`manage.py check` finds the mistakes with which a claim would not commit with its effect, each by its id."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from djangos import alias_of, configure
from semel import schema
from semel.database import engine_of
from semel.http import Idempotency

OURS = "semel.http.django.middleware.IdempotencyMiddleware"
ABOVE = "django.contrib.auth.middleware.AuthenticationMiddleware"
NAME = f"{__name__}.IDEMPOTENCY"
IDEMPOTENCY: Any = None


@pytest.fixture
def alias(url: str) -> Iterator[str]:
    made = engine_of(url)
    with alias_of(made) as name:
        yield name
    made.dispose()


def found(using: str, idempotency: Any = None, *, deploy: bool = False, **changes: Any) -> dict[str, str]:
    """What the check says of these settings, by id."""
    from django.core.checks import run_checks
    from django.test.utils import override_settings

    global IDEMPOTENCY
    IDEMPOTENCY = idempotency or on(using)
    settings = {"MIDDLEWARE": [ABOVE, OURS], "SEMEL": {"ALIAS": using, "IDEMPOTENCY": NAME}, **changes}
    with override_settings(**settings):
        said = run_checks(tags=["semel"], include_deployment_checks=deploy)
    assert all(one.hint for one in said)
    return {str(one.id): str(one.msg) for one in said}


def on(alias: str) -> Idempotency:
    from semel.http.django import transactions

    return Idempotency(partial(transactions, alias), scope=str)


def test_a_project_as_on_the_page_has_no_mistakes(alias: str) -> None:
    assert found(alias) == {}
    assert found(alias, MIDDLEWARE=[], SEMEL={"ALIAS": alias}) == {}


def test_middlewares_that_are_missing_or_in_the_wrong_order(alias: str) -> None:
    assert found(alias, MIDDLEWARE=[ABOVE]) == {"semel.W001": "no request has a key"}
    assert found(alias, MIDDLEWARE=[OURS, ABOVE])["semel.E002"].startswith(f"{ABOVE} is below")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "the settings have no SEMEL['IDEMPOTENCY']"),
        ({"IDEMPOTENCY": f"{__name__}.nothing"}, "cannot be imported"),
        ({"IDEMPOTENCY": f"{__name__}.NAME"}, "which is a str"),
        (NAME, "the setting SEMEL is a str"),
    ],
)
def test_settings_that_name_no_idempotency(settings: Any, said: str) -> None:
    configure()
    assert said in found("default", SEMEL=settings)["semel.E003"]


def test_an_idempotency_without_a_scope(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused when it is made, and the check says so instead of a traceback."""
    configure()
    (tmp_path / "keys_without_scope.py").write_text(
        "from semel.http import Idempotency\nfrom semel.http.django import transactions\n"
        "idempotency = Idempotency(transactions)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert "scope" in found("default", SEMEL={"IDEMPOTENCY": "keys_without_scope.idempotency"})["semel.E003"]


def test_keys_that_would_not_commit_with_the_orm(alias: str, url: str) -> None:
    engine = engine_of(url)
    assert "does not work in a transaction of Django" in found(alias, Idempotency(engine, scope=str))["semel.E003"]
    engine.dispose()


def test_an_alias_that_is_not_there(alias: str) -> None:
    for of_keys, of_events in ((alias, "elsewhere"), ("elsewhere", alias)):
        said = found(alias, on(of_keys), SEMEL={"ALIAS": of_events, "IDEMPOTENCY": NAME})
        assert said == {"semel.E004": "DATABASES has no alias 'elsewhere', which semel has to use"}


def test_keys_of_an_application_that_is_not_installed(alias: str) -> None:
    """Nobody would make its tables, and its checks do not run: the server does not start."""
    from django.core.exceptions import ImproperlyConfigured
    from django.test.utils import override_settings

    from semel.http.django.middleware import IdempotencyMiddleware

    with override_settings(INSTALLED_APPS=[]), pytest.raises(ImproperlyConfigured, match="into INSTALLED_APPS"):
        IdempotencyMiddleware(lambda _: None)  # type: ignore[arg-type, return-value]


def test_requests_that_have_a_transaction_of_their_own(alias: str) -> None:
    from django.db import connections

    connections.settings[alias]["ATOMIC_REQUESTS"] = True
    assert list(found(alias)) == ["semel.W008"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ENGINE": "django.db.backends.dummy"}, "semel.E005"),
        ({"ENGINE": "django.db.backends.sqlite3", "OPTIONS": {"timeout": 30}}, "semel.E006"),
        ({"AUTOCOMMIT": False}, "semel.E007"),
        (
            {"ENGINE": "django.db.backends.sqlite3", "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 5}},
            "semel.W011",
        ),
    ],
)
def test_a_database_that_cannot_keep_the_promise(alias: str, changes: dict[str, Any], said: str) -> None:
    from django.db import connections

    connections.settings[alias] |= changes
    assert list(found(alias)) == [said]


def test_a_driver_that_semel_does_not_know(alias: str) -> None:
    from types import SimpleNamespace

    from django.db import connections

    if connections[alias].vendor != "postgresql":
        pytest.skip("of PostgreSQL alone")
    connections[alias].Database = SimpleNamespace(__name__="psycopg2")
    assert list(found(alias)) == ["semel.E010"]


def test_migrations_that_were_not_applied(alias: str, url: str) -> None:
    assert "has no table" in found(alias, deploy=True)["semel.E013"]
    engine = engine_of(url)
    schema.make(engine)
    engine.dispose()
    assert found(alias, deploy=True) == {}


def test_a_database_that_cannot_be_asked_for_its_tables(alias: str) -> None:
    from django.db import connections

    connections[alias].settings_dict["NAME"] = "/nowhere/nothing"
    assert list(found(alias, deploy=True)) == ["semel.E012"]


def test_a_setting_that_semel_does_not_know(alias: str) -> None:
    """A misspelt name would leave the default in force, and nobody would notice."""
    from django.core.checks import run_checks
    from django.test.utils import override_settings

    with override_settings(SEMEL={"ALIAS": alias, "KAFKAA": {}, "of_nobody": 1}):
        said = {str(one.msg): str(one.hint) for one in run_checks(tags=["semel"])}
    assert said == {
        "SEMEL has no setting 'KAFKAA'": "did you mean 'KAFKA'?",
        "SEMEL has no setting 'of_nobody'": "there are ALIAS, CELERY, IDEMPOTENCY, KAFKA",
    }
