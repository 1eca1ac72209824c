"""The project on the page about Django, made as it stands there: its tests pass. And what the check of the
application finds."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from applications import payments
from conftest_http import caller
from sqlalchemy import Engine, func, make_url, select

from djangos import alias_of, configure, model_on
from semel import schema
from semel.database import engine_of
from semel.http import Idempotency
from semel.http.idempotency import CONTEXT

PAGE = Path(__file__).parent.parent.parent / "docs/how-to/django.md"


def manage(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "django", *words, "--settings", "project.settings"],
        cwd=folder,
        env={"PATH": "", "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def project(url: str, tmp_path: Path) -> Path:
    """As the page shows it, on a database of either kind."""
    for name, code in re.findall(r"^```python\n# (\S+\.py)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        (file.parent / "__init__.py").touch()
        file.write_text(code)
    parsed = make_url(url)
    if parsed.get_backend_name() == "postgresql":
        database = {"ENGINE": "django.db.backends.postgresql", "NAME": parsed.database, "USER": parsed.username}
        database |= {"HOST": parsed.host, "PORT": parsed.port, "TEST": {"NAME": f"test_{parsed.database}"}}
        add(tmp_path, f"DATABASES = {{'default': {database!r}}}")
    return tmp_path


def add(project: Path, lines: str) -> None:
    settings = project / "project/settings.py"
    settings.write_text(f"{settings.read_text()}\n{lines}\n")


def test_the_projects_tests_pass_in_test_case_and_transaction_test_case(project: Path, url: str) -> None:
    (project / "shop/migrations").mkdir()
    made = manage(project, "makemigrations", "shop")
    assert made.returncode == 0, made.stderr
    ran = manage(project, "test", "--no-input")
    assert (ran.returncode, "Ran 8 tests" in ran.stderr) == (0, True), ran.stderr
    # Its check has nothing against it, and nothing is missing in the migrations of the keys.
    migrated = manage(project, "migrate")
    assert migrated.returncode == 0, migrated.stderr
    unmade = manage(project, "makemigrations", "--check", "--dry-run", "semel_http")
    assert "System check identified no issues" in migrated.stdout + manage(project, "check").stdout
    assert unmade.returncode == 0, unmade.stdout + unmade.stderr
    # And they have made what semel makes.
    engine = engine_of(url if url.startswith("postgresql") else f"sqlite:///{project}/shop.db")
    schema.check(engine, "http")
    engine.dispose()


# -- the check ---------------------------------------------------------------------------------------------------------


OURS = "semel.http.django.middleware.IdempotencyMiddleware"
ABOVE = "django.contrib.auth.middleware.AuthenticationMiddleware"
NAME = f"{__name__}.IDEMPOTENCY"
IDEMPOTENCY: Any = None


def found(idempotency: Any = None, **changes: Any) -> list[str]:
    """What `manage.py check` says of these settings."""
    configure()
    from django.test.utils import override_settings

    from semel.http.django.checks import check_settings

    global IDEMPOTENCY
    IDEMPOTENCY = idempotency
    with override_settings(**{"MIDDLEWARE": [ABOVE, OURS], "SEMEL_IDEMPOTENCY": NAME, **changes}):
        return [f"{one.id} {one.msg}" for one in check_settings()]


def on(alias: str) -> Idempotency:
    from semel.http.django import transactions

    return Idempotency(partial(transactions, alias), scope=str)


def test_the_check_finds_middlewares_that_are_missing_or_in_the_wrong_order(engine: Engine) -> None:
    with alias_of(engine) as alias:
        assert found(on(alias)) == []
        assert found(on(alias), MIDDLEWARE=[ABOVE]) == ["semel.W001 no request has a key"]
        assert found(on(alias), MIDDLEWARE=[OURS, ABOVE])[0].startswith(f"semel.E002 {ABOVE} is below")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (None, "the settings have no SEMEL_IDEMPOTENCY"),
        (f"{__name__}.nothing", "cannot be imported"),
        (f"{__name__}.NAME", "which is a str"),
    ],
)
def test_the_check_finds_a_setting_that_names_no_idempotency(name: str | None, said: str) -> None:
    [one] = found(SEMEL_IDEMPOTENCY=name)
    assert one.startswith("semel.E003")
    assert said in one


def test_the_check_finds_keys_that_would_not_commit_with_the_orm(engine: Engine) -> None:
    [one] = found(Idempotency(engine, scope=str))
    from semel.http.django import transactions

    assert "does not work in a transaction of Django" in one
    for same in (transactions, partial(transactions)):
        assert "'default'" in found(Idempotency(same, scope=str))[0]
    assert found(on("elsewhere")) == ["semel.E004 DATABASES has no alias 'elsewhere', in which the keys are"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ENGINE": "django.db.backends.dummy"}, "semel.E005"),
        ({"ENGINE": "django.db.backends.sqlite3", "OPTIONS": {}}, "semel.E006"),
        ({"AUTOCOMMIT": False}, "semel.E007"),
    ],
)
def test_the_check_finds_a_database_that_cannot_keep_the_promise(
    engine: Engine, changes: dict[str, Any], said: str
) -> None:
    with alias_of(engine) as alias:
        from django.db import connections

        connections.settings[alias] |= changes
        [one] = found(on(alias))
    assert one.startswith(said)


# -- what the middleware passes on -------------------------------------------------------------------------------------


def test_a_stream_leaves_after_its_commit_and_is_not_kept(engine: Engine) -> None:
    configure()
    from django.http import HttpResponse, StreamingHttpResponse
    from django.test import RequestFactory, override_settings

    from semel.http.django.middleware import IdempotencyMiddleware

    def view(request: Any) -> Any:
        payment.create(amount="5")
        if request.path == "/whole":
            return HttpResponse("whole")
        return StreamingHttpResponse(str(booked()) for _ in range(2))

    def booked() -> int:
        with engine.connect() as connection:
            return connection.scalar(select(func.count()).select_from(payments)) or 0

    def post(path: str) -> Any:
        return middleware(RequestFactory().post(path, headers={"Idempotency-Key": path, "X-Caller": "anna"}))

    global IDEMPOTENCY
    with alias_of(engine) as alias:
        from semel.http.django import transactions

        payment = model_on(alias)
        IDEMPOTENCY = Idempotency(partial(transactions, alias), scope=caller)
        with override_settings(SEMEL_IDEMPOTENCY=NAME):
            middleware = IdempotencyMiddleware(view)
        assert b"".join(post("/stream")) == b"11"
        again = post("/stream")
        assert (again.status_code, json.loads(again.content)["type"]) == (409, "urn:semel:problem:answer-not-kept")
        assert [post("/whole").content for _ in range(2)] == [b"whole"] * 2
        assert booked() == 2


def test_steps_are_found_under_asgi_as_well(engine: Engine) -> None:
    """Its requests have no environment."""
    configure()
    from django.core.handlers.asgi import ASGIRequest

    key = object()
    request = ASGIRequest({"type": "http", "method": "POST", "path": "/", "headers": []}, io.BytesIO())
    request.META[CONTEXT] = SimpleNamespace(steps=key)
    assert Idempotency(engine, scope=caller).key(request) is key
